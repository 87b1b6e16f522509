"""Iceberg table: one snapshot publishes files and offsets together.

Offsets and the number of the commit are a property of the table, set by the change that adds the
snapshot, so they outlive expired snapshots. The catalog accepts the change only for the snapshot
that was read.

Rows are partitioned by Iceberg's own transforms, the day or hour of `stored_at` and a bucket of a
column, without columns for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from roquet.lake.columns.body_columns import BodyField, file_schema
from roquet.lake.files.disk import Disk
from roquet.lake.files.staging import check_target, clean_if_due
from roquet.lake.kinds.iceberg import layout
from roquet.lake.kinds.iceberg.catalog import (
    catalog_of,
    check_catalog,
    check_installed,
    check_name,
    explained_catalog,
    name_of,
    place_of_new,
)
from roquet.lake.kinds.iceberg.commits import CommitTries, check_lineage, commit_change
from roquet.lake.kinds.iceberg.named_files import expire, named_files
from roquet.lake.kinds.iceberg.table_place import (
    check_free,
    check_place,
    object_home,
    relative_path,
    staging_area,
)
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.objects.object_store import ObjectStore
from roquet.lake.queue_offsets import QueueKey, QueueOffsets, from_json
from roquet.lake.table import (
    ArchiveIdentity,
    ArchiveTable,
    DataFile,
    ExpiredVersions,
    TableCommit,
    TableDamaged,
    TableNote,
    TableState,
    agree_identity,
    check_base,
    check_removed,
)
from roquet.model.errors import ConfigError, RoquetError

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table import Transaction
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.typedef import Record

IDENTITY: Final = "roquet.archive"
STATE: Final = "roquet.state"
"""Table properties with the archive's identity and state."""

NUMBER: Final = "roquet.number"
OFFSETS: Final = "roquet.offsets"
"""Keys of the summaries of our snapshots: the commit, and what the table's state was after it."""

RETIRED: Final = "roquet.retired"
"""The table property with the first day that stayed when older ones were removed."""

NAMES: Final = "schema.name-mapping.default"
"""The table property that maps columns of our files by name, since the files have no field ids."""

SETTINGS: Final[Mapping[str, str]] = {
    # No automatic retries: a refused change is checked against the table first.
    "commit.retry.num-retries": "0",
    # Each change leaves a metadata file.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergTable(ArchiveTable):
    """An archive as an Iceberg table of a catalog."""

    kind = "iceberg"

    def __init__(
        self,
        root: TableLocation,
        wanted: ArchiveIdentity,
        disk: Disk | None = None,
        *,
        name: str = "",
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        check_installed()
        self._root, self._disk = root, disk or Disk()
        self._name = name or name_of(wanted.topic)
        check_name(self._name)
        _prepare(root, catalog or {}, self._disk)
        with explained_catalog(root):
            self._catalog = catalog_of(root, catalog or {})
            self._table, self.identity = self._opened(root, wanted)
            self._check_writable()
        self._staging = staging_area(root, self._table.location(), self._disk)
        try:
            self._staging.settle(self.state().number)
            clean_if_due(self._staging, self.clean)
        except BaseException:
            self._staging.close()
            raise

    def state(self, queues: Iterable[QueueKey] = ()) -> TableState:  # noqa: ARG002 - it knows them all
        """The last commit and its offsets."""
        note = self._note()
        return TableState(note.number, from_json(note.offsets), note.topic_ids)

    def commit(self, commit: TableCommit) -> None:
        """Bring the files to their days, then commit the snapshot."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        tries = CommitTries(self._name, "nothing was committed")
        while True:
            check_base(commit, self.state())
            self._check_writable()
            if commit.removed:
                self._check_no_deletes()
            self._staging.publish(commit)
            try:
                with explained_catalog(self._root):
                    self._change(commit)
                break
            except (CommitFailedException, CommitStateUnknownException) as error:
                # Another writer's change came first, or only the answer was lost.
                if self._is_committed(commit):
                    break
                tries.refused(error)
            except RoquetError:
                if not self._is_committed(commit):
                    raise
                break
        self._staging.settle(commit.number)

    def files(self) -> Sequence[DataFile]:
        """The files of the current snapshot; ConfigError while it has delete files."""
        with explained_catalog(self._root):
            self._table.refresh()
            self._check_no_deletes()
            return [
                layout.file_of(entry)
                for entry in layout.entries_of(self._table, self._table.current_snapshot())
            ]

    def expire(self, before_ms: int, *, is_preview: bool) -> ExpiredVersions:
        """Expire older snapshots, and remove the files that only they have."""
        with explained_catalog(self._root):
            self._table.refresh()
            return expire(self._table, before_ms, is_preview=is_preview)

    def body_fields(self) -> tuple[BodyField, ...]:
        """The body columns of the table's schema."""
        with explained_catalog(self._root):
            self._table.refresh()
        if not self.identity.body_format:
            return ()
        return layout.body_fields(self._table, self.own_columns)

    def add_body_fields(self, fields: Iterable[BodyField]) -> None:
        """Add columns for these fields, unless they are there."""
        with explained_catalog(self._root):
            layout.add_body_fields(self._table, [*fields], self._name, self.own_columns)

    def close(self) -> None:
        """Release the lock and close the catalog."""
        super().close()
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def _opened(
        self, root: TableLocation, wanted: ArchiveIdentity
    ) -> "tuple[IceTable, ArchiveIdentity]":
        """The table and the archive's identity; creates the table when there is none."""
        from pyiceberg.exceptions import (
            CommitFailedException,
            CommitStateUnknownException,
            NoSuchTableError,
        )

        tries = CommitTries(self._name, "the table was not made")
        while True:
            try:
                table = self._catalog.load_table(self._name)
                check_place(root, table.location())
                return table, self._agree(wanted, table)
            except NoSuchTableError:
                identity = self._agree(wanted, None)
            try:
                return self._made(identity), identity
            except (CommitFailedException, CommitStateUnknownException) as error:
                tries.refused(error)

    def _agree(self, wanted: ArchiveIdentity, table: "IceTable | None") -> ArchiveIdentity:
        """The identity of the table; None is one that is to be created."""
        if table is None:
            return agree_identity(wanted, None, self._root)
        text = table.properties.get(IDENTITY)
        if text is None:
            raise ConfigError(f"{self._where} is not an archive: give another name")
        return agree_identity(wanted, msgspec.json.decode(text, type=ArchiveIdentity), self._where)

    def _identity_property(self, identity: ArchiveIdentity) -> tuple[str, object]:
        """The key and the value of the property by which a new table is known."""
        return IDENTITY, identity

    def _schema(self, identity: ArchiveIdentity) -> pa.Schema:
        """The columns of a new table, but for those of bodies."""
        return file_schema(identity.columns, () if identity.body_format else None)

    def _set_layout(self, making: "Transaction", identity: ArchiveIdentity) -> None:
        layout.set_layout(making, identity)

    def _partition_fields(self) -> Sequence[tuple[str, str]]:
        return layout.partition_fields(self.identity)

    def _record(self, file: DataFile) -> "Record":
        return layout.partition_record(file, self.identity.scheme)

    def _check_writable(self) -> None:
        """Raise ConfigError when another writer has made the table one of other rows."""
        layout.check_writable(
            self._table, self._schema(self.identity), self._partition_fields(), self._where
        )
        check_lineage(self._table, self._whole_snapshots(), self._where)

    def _whole_snapshots(self) -> "list[Snapshot]":
        """Our snapshots that end at the table's offsets, in the version that was read last.

        Empty when that of the last commit is not there. A commit is known by its whole note, since
        one that was given up by a rollback may have the same number.
        """
        state = self._table.properties.get(STATE)
        noted = [
            (each, note)
            for each in self._table.snapshots()
            if each.summary is not None and (note := each.summary[OFFSETS])
        ]
        if not state or all(note != state for _, note in noted):
            return []
        offsets = _offsets(state)
        whole = [(each, note) for each, note in noted if _offsets(note) == offsets]
        whole.sort(key=lambda found: found[1] == state)  # the last commit's comes last
        return [each for each, _ in whole]

    def _check_no_deletes(self) -> None:
        """Raise ConfigError while the version that was read last has delete files."""
        with explained_catalog(self._root):
            layout.check_no_deletes(self._table, self._where)

    @property
    def _where(self) -> str:
        return f"the table {self._name} of {self._root}"

    def _made(self, identity: ArchiveIdentity) -> "IceTable":
        try:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        except ValueError as error:
            raise ConfigError(f"--table {self._name}: {error}") from error
        key, value = self._identity_property(identity)
        properties = {**SETTINGS, key: msgspec.json.encode(value).decode()}
        schema = self._schema(identity)
        new = self._catalog.create_table_transaction(
            self._name,
            schema,
            location=place_of_new(self._catalog, self._name),
            properties=properties,
        )
        check_place(self._root, new.table_metadata.location)
        check_free(self._root, new.table_metadata.location)
        with new as making:
            self._set_layout(making, identity)
        return self._catalog.load_table(self._name)

    def _change(self, commit: TableCommit) -> None:
        """Commit snapshot and offsets in one change; raises CommitFailedException."""
        known = TableNote(commit.number, commit.after, commit.topic_ids, commit.attempt)
        note = msgspec.json.encode(known).decode()
        summary = {NUMBER: str(commit.number), OFFSETS: note}
        gone = {file.path for file in commit.removed}
        present = layout.entries_of(self._table, self._table.current_snapshot()) if gone else ()
        removed = [entry for entry in present if layout.file_of(entry).path in gone]
        check_removed(commit, {layout.file_of(entry).path for entry in removed})
        retired = {RETIRED: commit.retired_before} if commit.retired_before else {}
        change = self._table.transaction()
        change.set_properties({**SETTINGS, NAMES: self._names(), STATE: note, **retired})
        producer = change.update_snapshot(snapshot_properties=summary)
        with producer.overwrite() if gone else producer.fast_append() as snapshot:
            for entry in removed:
                snapshot.delete_data_file(entry)
            for entry in layout.described(self._table, commit.added, self._record):
                snapshot.append_data_file(entry)
        commit_change(change, lambda: self._is_committed(commit))

    def _note(self) -> TableNote:
        """The state in the newest version of the table."""
        with explained_catalog(self._root):
            self._table.refresh()
        text = self._table.properties.get(STATE)
        if text:
            return msgspec.json.decode(text, type=TableNote)
        if any(one.summary is not None and one.summary[NUMBER] for one in self._table.snapshots()):
            raise TableDamaged(
                f"{self._where} has no property {STATE} any more, so its offsets are unknown: "
                f"another writer removed it. Set it to the value of {OFFSETS} in the summary of "
                "the last snapshot that has one"
            )
        return TableNote(0, {})

    def _is_committed(self, commit: TableCommit) -> bool:
        """Whether the table has this very commit, perhaps with others after it."""
        if self._note().attempt == commit.attempt:
            return True
        summaries = [each.summary for each in self._table.snapshots() if each.summary is not None]
        notes = [text for each in summaries if (text := each[OFFSETS])]
        return any(
            msgspec.json.decode(text, type=TableNote).attempt == commit.attempt for text in notes
        )

    def _named_paths(self) -> set[str]:
        """The paths of the data files of all versions of a table in an object store."""
        assert not isinstance(self._root, Path), "in a directory nothing is left to be removed"
        home = object_home(self._root, self._table.location())
        with explained_catalog(self._root):
            return {relative_path(url) for url in named_files(self._table, home)}

    def _names(self) -> str:
        return self._table.schema().name_mapping.model_dump_json()


def _offsets(note: str) -> QueueOffsets:
    return from_json(msgspec.json.decode(note, type=TableNote).offsets)


def _prepare(root: TableLocation, catalog: Mapping[str, str], disk: Disk) -> None:
    """Create a directory, or check a bucket; ConfigError where there is something else."""
    if isinstance(root, Path):
        if not catalog:
            check_target(root, "iceberg")
        disk.make(root)
    else:
        check_catalog(root, catalog)
        ObjectStore(root).check_bucket()
