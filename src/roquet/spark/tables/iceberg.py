"""Iceberg table: one snapshot publishes files and offsets together.

Offsets and the number of the commit are a property of the table, set by the change that adds the
snapshot, so they outlive expired snapshots. The catalog accepts the change only for the snapshot
that was read. The default catalog is an SQLite file in the directory; a table in an object store
needs another one.

Rows are partitioned by Iceberg's own transform, the day of `stored_at`, without a column for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from roquet.model.errors import ConfigError
from roquet.spark.queue_offsets import QueueKey, from_json
from roquet.spark.tables.disk import Disk
from roquet.spark.tables.object_location import (
    ENDPOINT,
    REGION,
    ObjectLocation,
    StagingDirectory,
    TableLocation,
)
from roquet.spark.tables.object_staging import ObjectStaging
from roquet.spark.tables.object_store import ObjectStore, explained
from roquet.spark.tables.partitioning import schema_of
from roquet.spark.tables.staging import Staging, check_target
from roquet.spark.tables.table import (
    ArchiveIdentity,
    DataFile,
    StagingArea,
    TableCommit,
    TableConflict,
    TableNote,
    TableState,
    agree_identity,
    check_base,
    check_removed,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.table import Table as IceTable
    from pyiceberg.table.snapshots import Snapshot

NAMESPACE: Final = "roquet"

IDENTITY: Final = "roquet.archive"
STATE: Final = "roquet.state"
"""Table properties with the archive's identity and state."""

NAMES: Final = "schema.name-mapping.default"
"""The table property that maps columns of our files by name, since the files have no field ids."""

SETTINGS: Final[Mapping[str, str]] = {
    # No automatic retries: a refused change is checked against the table first.
    "commit.retry.num-retries": "0",
    # Each change leaves a metadata file.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}

IO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {ENDPOINT: "s3.endpoint", REGION: "s3.region"}
)
"""pyiceberg's names of our options; it has credentials from the environment itself."""

REGION_DEFAULT: Final = "us-east-1"
"""Without a region pyiceberg asks AWS, whatever the endpoint is."""

TRIES: Final = 20
"""Attempts to commit a change while other writers commit theirs."""


class IcebergTable:
    """An archive as an Iceberg table of a catalog."""

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
        _prepare(root, catalog or {}, self._disk)
        self._name = name or name_of(wanted.topic)
        self._catalog = catalog_of(root, catalog or {})
        with _explained(root):
            self._table, self.identity = self._opened(root, wanted)
        self._staging = _staging_area(root, self._table.location(), self._disk)
        try:
            self._staging.settle(self.state().number)
            if self._staging.has_leftovers():
                self.clean()
        except BaseException:
            self._staging.close()
            raise

    def state(self, queues: Iterable[QueueKey] = ()) -> TableState:  # noqa: ARG002 - it knows them all
        """The last commit and its offsets."""
        note = self._note()
        return TableState(note.number, from_json(note.offsets), note.topic_ids)

    @property
    def storage(self) -> Mapping[str, str]:
        """The options of the object store, if the table lies in one."""
        return {} if isinstance(self._root, Path) else self._root.options

    def begin(self) -> StagingDirectory:
        """Where the tasks of a new attempt write their files."""
        return self._staging.begin()

    def commit(self, commit: TableCommit) -> None:
        """Bring the files to their days, then commit the snapshot."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        for _ in range(TRIES):
            check_base(commit, self.state())
            self._staging.publish(commit)
            try:
                with _explained(self._root):
                    self._change(commit)
                break
            except (CommitFailedException, CommitStateUnknownException):
                # Another writer's change came first, or only the answer was lost.
                if self._note().attempt == commit.attempt:
                    break
        else:
            raise TableConflict(
                f"other writers changed {self._name} {TRIES} times in a row; nothing was committed"
            )
        self._staging.settle(commit.number)

    def files(self) -> Sequence[DataFile]:
        """The files of the current snapshot."""
        with _explained(self._root):
            self._table.refresh()
            return [_file_of(entry) for entry in self._entries(self._table.current_snapshot())]

    def path(self, file: DataFile) -> str:
        """The path or URL of one of the files."""
        return self._staging.address(file)

    def clean(self) -> int:
        """Remove files that no snapshot names and no commit can name any more."""
        return self._staging.clean(self._all_named)

    def close(self) -> None:
        """Release the lock and close the catalog."""
        self._staging.close()
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(
        self, root: TableLocation, wanted: ArchiveIdentity
    ) -> "tuple[IceTable, ArchiveIdentity]":
        """The table and the archive's identity; creates the table when there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            identity = agree_identity(wanted, None, root)
            return self._made(identity), identity
        text = table.properties.get(IDENTITY)
        if text is None:
            raise ConfigError(
                f"the table {self._name} of {root} is not an archive: give another name"
            )
        existing = msgspec.json.decode(text, type=ArchiveIdentity)
        return table, agree_identity(wanted, existing, f"the table {self._name} of {root}")

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
            _check_place(self._root, table.location())
        except ConfigError:
            self._catalog.drop_table(self._name)
            raise
        return table

    def _change(self, commit: TableCommit) -> None:
        """Commit snapshot and offsets in one change; raises CommitFailedException."""
        known = TableNote(commit.number, commit.after, commit.topic_ids, commit.attempt)
        note = msgspec.json.encode(known).decode()
        summary = {"roquet.number": str(commit.number), "roquet.offsets": note}
        gone = {file.path for file in commit.removed}
        present = self._entries(self._table.current_snapshot()) if gone else ()
        removed = [entry for entry in present if _file_of(entry).path in gone]
        check_removed(commit, {_file_of(entry).path for entry in removed})
        with self._table.transaction() as change:
            change.set_properties({**SETTINGS, NAMES: self._names(), STATE: note})
            producer = change.update_snapshot(snapshot_properties=summary)
            with producer.overwrite() if gone else producer.fast_append() as snapshot:
                for entry in removed:
                    snapshot.delete_data_file(entry)
                for entry in self._described(commit.added):
                    snapshot.append_data_file(entry)

    def _note(self) -> TableNote:
        """The state in the newest version of the table."""
        with _explained(self._root):
            self._table.refresh()
        text = self._table.properties.get(STATE)
        return msgspec.json.decode(text, type=TableNote) if text else TableNote(0, {})

    def _all_named(self) -> set[str]:
        """The paths of the files of all snapshots."""
        with _explained(self._root):
            self._table.refresh()
            snapshots = list(self._table.snapshots())
            return {_file_of(entry).path for each in snapshots for entry in self._entries(each)}

    def _names(self) -> str:
        return self._table.schema().name_mapping.model_dump_json()

    def _described(self, files: Iterable[DataFile]) -> "Iterable[Entry]":
        """The files as manifest entries, with the statistics of their footers."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        where = self._table.location().rstrip("/")
        for file in files:
            path = f"{where}/data/{file.path}"
            yield parquet_file_to_data_file(self._table.io, self._table.metadata, path)

    def _entries(self, snapshot: "Snapshot | None") -> "Iterable[Entry]":
        if snapshot is not None:
            for manifest in snapshot.manifests(self._table.io):
                for entry in manifest.fetch_manifest_entry(self._table.io):
                    yield entry.data_file


def _prepare(root: TableLocation, catalog: Mapping[str, str], disk: Disk) -> None:
    """Create a directory, or check a bucket; ConfigError where there is something else."""
    if isinstance(root, Path):
        if not catalog:
            check_target(root, "iceberg")
        disk.make(root)
    else:
        check_catalog(root, catalog)
        ObjectStore(root).check_bucket()


def check_catalog(root: ObjectLocation, catalog: Mapping[str, str]) -> None:
    """Raise ConfigError without a catalog: an object store is no place for an SQLite file."""
    if not catalog:
        raise ConfigError(
            f"an Iceberg table in {root} needs a catalog elsewhere: --catalog type=sql --catalog "
            "uri=DATABASE, or --catalog type=rest --catalog uri=http://…"
        )


def _staging_area(root: TableLocation, home: str, disk: Disk) -> StagingArea:
    if isinstance(root, Path):
        directory = local_path(home)
        return Staging(directory, directory / "data", disk)
    return ObjectStaging(ObjectLocation(f"{home.rstrip('/')}/data", root.options))


def _check_place(root: TableLocation, home: str) -> None:
    """ConfigError when a catalog has put a new table elsewhere than into such a place."""
    if isinstance(root, Path):
        local_path(home)
    elif not home.startswith("s3://"):
        raise ConfigError(f"the catalog puts the table to {home}, and not into {root}")


@contextmanager
def _explained(root: TableLocation) -> Iterator[None]:
    if isinstance(root, Path):
        yield
    else:
        with explained(root):
            yield


def catalog_of(root: TableLocation, options: Mapping[str, str]) -> "Catalog":
    """The catalog with these options; without options the SQLite catalog of the directory."""
    from pyiceberg.catalog import load_catalog

    if not isinstance(root, Path):
        known = {
            IO_OPTIONS[name]: root.options[name] for name in IO_OPTIONS if name in root.options
        }
        known.setdefault(IO_OPTIONS[REGION], REGION_DEFAULT)
        return load_catalog("roquet", **{**known, "warehouse": root.url, **options})
    local_path(options.get("warehouse", ""))
    mark = root.resolve() / "catalog.db"
    own = {"type": "sql", "uri": f"sqlite:///{mark}", "warehouse": f"file://{root.resolve()}"}
    return load_catalog("roquet", **{**(own if not options else {}), **options})


def local_path(location: str) -> Path:
    """The directory of a table location; pyiceberg does not unquote file URLs, nor is it done here.

    Raises ConfigError for other schemes.
    """
    scheme, separator, path = location.partition("://")
    if separator and scheme != "file":
        raise ConfigError(f"{location} is no directory: the warehouse must be a local one")
    return Path(path if separator else location)


def name_of(topic: str) -> str:
    """The default table name of a topic."""
    return f"{NAMESPACE}.{_plain(topic)}"


def _plain(topic: str) -> str:
    """A topic's name with an underscore for anything but letters and digits."""
    return "".join(letter if letter.isalnum() else "_" for letter in topic)


def _file_of(entry: "Entry") -> DataFile:
    path = Path(entry.file_path)
    return DataFile(
        name=path.name,
        day=path.parent.name.removeprefix("day="),
        rows=entry.record_count,
        size=entry.file_size_in_bytes,
    )


def check_installed() -> None:
    """Raise ConfigError, with the command to install it, without pyiceberg and sqlalchemy."""
    try:
        import pyiceberg  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise ConfigError("Iceberg tables need pyiceberg: pip install 'roquet[iceberg]'") from error
