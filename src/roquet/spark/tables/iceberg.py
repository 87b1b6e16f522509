"""Iceberg table: one snapshot publishes files and offsets together.

Offsets and the number of the commit are a property of the table, set by the change that adds the
snapshot, so no snapshot's end of life takes them along. The catalog accepts the change only for the
snapshot that was looked at. Without another catalog there is one in the directory: SQLite.

The partition is Iceberg's own: the day of `stored_at`, without a column for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from roquet.model.errors import ConfigError
from roquet.spark.queue_offsets import OffsetsJson, QueueKey, from_json
from roquet.spark.tables.disk import Disk
from roquet.spark.tables.partitioning import schema_of
from roquet.spark.tables.staging import Staging, check_target
from roquet.spark.tables.table import (
    ArchiveIdentity,
    DataFile,
    TableCommit,
    TableConflict,
    TableState,
    agree_identity,
    check_base,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.table import Table as IceTable

NAMESPACE: Final = "roquet"

IDENTITY: Final = "roquet.archive"
STATE: Final = "roquet.state"
"""Properties of the table."""

NAMES: Final = "schema.name-mapping.default"
"""The property by which readers find the columns in our files: by name, not by number."""

SETTINGS: Final[Mapping[str, str]] = {
    # A change that was refused is for us to look at: tried again by itself it would go in twice.
    "commit.retry.num-retries": "0",
    # Each change leaves a file of all that the table is.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}

TRIES: Final = 20
"""Changes that others may make while we want to make one."""


class _Note(msgspec.Struct, frozen=True):
    """The table's property: where the archive is."""

    number: int
    offsets: OffsetsJson
    topic_ids: Mapping[str, str] = {}


class IcebergTable:
    """An Iceberg table of a catalog, made when there is none."""

    def __init__(
        self,
        root: Path,
        wanted: ArchiveIdentity,
        disk: Disk | None = None,
        *,
        name: str = "",
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        check_installed()
        if not catalog:
            check_target(root, "iceberg")
        self._disk = disk or Disk()
        self._disk.make(root)
        self._name = name or name_of(wanted.topic)
        self._catalog = catalog_of(root, catalog or {})
        self._table, self.identity = self._opened(root, wanted)
        home = local_path(self._table.location())
        self._staging = Staging(home, home / "data", self._disk)
        try:
            self._staging.settle(self.state().number)
            self._staging.sweep()
        except BaseException:
            self._staging.close()
            raise

    def state(self, queues: Iterable[QueueKey] = ()) -> TableState:  # noqa: ARG002 - it knows them all
        """How far it has come."""
        self._table.refresh()
        text = self._table.properties.get(STATE)
        if text is None:
            return TableState(0, {})
        note = msgspec.json.decode(text, type=_Note)
        return TableState(note.number, from_json(note.offsets), note.topic_ids)

    def begin(self) -> Path:
        """A fresh directory for the files of one attempt."""
        return self._staging.begin()

    def commit(self, commit: TableCommit) -> None:
        """Bring the files to their places and make the snapshot."""
        from pyiceberg.exceptions import CommitFailedException

        check_base(commit, self.state())
        self._staging.intend(commit)
        self._staging.place(commit.attempt, commit.added)
        for _ in range(TRIES):
            try:
                self._change(commit)
                break
            except CommitFailedException:  # somebody else's change came first
                check_base(commit, self.state())
        else:
            raise TableConflict(f"others change {self._name} all the time; nothing was committed")
        self._staging.settle(commit.number)
        self._staging.sweep()

    def files(self) -> Sequence[DataFile]:
        """The files of the current snapshot."""
        self._table.refresh()
        return [_file_of(entry) for entry in self._entries()]

    def path(self, file: DataFile) -> Path:
        """Where one of them lies."""
        return self._staging.path(file)

    def close(self) -> None:
        """Let others have it."""
        self._staging.close()
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, root: Path, wanted: ArchiveIdentity) -> "tuple[IceTable, ArchiveIdentity]":
        """The table, and whose archive it is."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            identity = agree_identity(wanted, None, root)
            return self._made(identity), identity
        text = table.properties.get(IDENTITY)
        if text is None:
            raise ConfigError(f"the table {self._name} of {root} is no archive: give another name")
        found = msgspec.json.decode(text, type=ArchiveIdentity)
        return table, agree_identity(wanted, found, f"the table {self._name} of {root}")

    def _made(self, identity: ArchiveIdentity) -> "IceTable":
        from pyiceberg.transforms import DayTransform

        self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        note = msgspec.json.encode(identity).decode()
        properties = {**SETTINGS, IDENTITY: note}
        schema = schema_of(identity.columns)
        new = self._catalog.create_table_transaction(self._name, schema, properties=properties)
        with new as making, making.update_spec() as spec:
            spec.add_field("stored_at", DayTransform(), "day")
        table = self._catalog.load_table(self._name)
        try:
            local_path(table.location())
        except ConfigError:
            self._catalog.drop_table(self._name)
            raise
        return table

    def _change(self, commit: TableCommit) -> None:
        """Snapshot and offsets in one change, or CommitFailedException."""
        known = _Note(commit.number, commit.after, commit.topic_ids)
        note = msgspec.json.encode(known).decode()
        told = {"roquet.number": str(commit.number), "roquet.offsets": note}
        gone = {f"day={file.day}/{file.name}" for file in commit.removed}
        with self._table.transaction() as change:
            change.set_properties({**SETTINGS, NAMES: self._names(), STATE: note})
            producer = change.update_snapshot(snapshot_properties=told)
            with producer.overwrite() if gone else producer.fast_append() as snapshot:
                for entry in self._entries() if gone else ():
                    if _file_of(entry).path in gone:
                        snapshot.delete_data_file(entry)
                for entry in self._described(commit.added):
                    snapshot.append_data_file(entry)

    def _names(self) -> str:
        return self._table.schema().name_mapping.model_dump_json()

    def _described(self, files: Iterable[DataFile]) -> "Iterable[Entry]":
        """The files as a snapshot lists them, with what their footers say."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        where = self._table.location().rstrip("/")
        for file in files:
            path = f"{where}/data/{file.path}"
            yield parquet_file_to_data_file(self._table.io, self._table.metadata, path)

    def _entries(self) -> "Iterable[Entry]":
        snapshot = self._table.current_snapshot()
        if snapshot is not None:
            for manifest in snapshot.manifests(self._table.io):
                for entry in manifest.fetch_manifest_entry(self._table.io):
                    yield entry.data_file


def catalog_of(root: Path, options: Mapping[str, str]) -> "Catalog":
    """The catalog that is given, else the one of the directory."""
    from pyiceberg.catalog import load_catalog

    local_path(options.get("warehouse", ""))
    mark = root.resolve() / "catalog.db"
    own = {"type": "sql", "uri": f"sqlite:///{mark}", "warehouse": f"file://{root.resolve()}"}
    return load_catalog("roquet", **{**(own if not options else {}), **options})


def local_path(location: str) -> Path:
    """The directory of a table; pyiceberg takes what follows the scheme as it stands."""
    scheme, separator, path = location.partition("://")
    if separator and scheme != "file":
        raise ConfigError(f"{location} is no directory: a warehouse of files is needed")
    return Path(path if separator else location)


def name_of(topic: str) -> str:
    """What a topic's table is called where nobody names it."""
    return f"{NAMESPACE}.{_plain(topic)}"


def _plain(topic: str) -> str:
    """A topic's name as tables may be called: letters, digits and lines."""
    return "".join(one if one.isalnum() else "_" for one in topic)


def _file_of(entry: "Entry") -> DataFile:
    path = Path(entry.file_path)
    return DataFile(
        name=path.name,
        day=path.parent.name.removeprefix("day="),
        rows=entry.record_count,
        size=entry.file_size_in_bytes,
    )


def check_installed() -> None:
    """ConfigError, which says what to do, without pyiceberg."""
    try:
        import pyiceberg  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise ConfigError("Iceberg tables need pyiceberg: pip install 'roquet[iceberg]'") from error
