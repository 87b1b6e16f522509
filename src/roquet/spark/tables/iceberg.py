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

from roquet.model.errors import ConfigError, RoquetError
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
from roquet.spark.tables.object_store import ObjectStore, explanation
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


CATALOG_PACKAGES: Final = frozenset({"pyiceberg", "requests", "sqlalchemy"})
"""Packages whose errors are those of a catalog."""

SECRET_PARTS: Final = ("access-key", "credential", "password", "secret", "token")
"""Parts of the names of catalog options whose values are secret."""


class CatalogFailed(RoquetError):
    """A catalog that refused, failed or did not answer."""


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
        with explained_catalog(root):
            self._catalog = catalog_of(root, catalog or {})
            self._table, self.identity = self._opened(root, wanted)
        self._staging = _staging_area(root, self._table.location(), self._disk)
        try:
            self._staging.settle(self.state().number)
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
                with explained_catalog(self._root):
                    self._change(commit)
                break
            except (CommitFailedException, CommitStateUnknownException):
                # Another writer's change came first, or only the answer was lost.
                if self._is_committed(commit):
                    break
            except RoquetError:
                if isinstance(self._root, Path) or not self._is_committed(commit):
                    raise
                break
        else:
            raise TableConflict(
                f"other writers changed {self._name} {TRIES} times in a row; nothing was committed"
            )
        self._staging.settle(commit.number)

    def files(self) -> Sequence[DataFile]:
        """The files of the current snapshot."""
        with explained_catalog(self._root):
            self._table.refresh()
            return [_file_of(entry) for entry in self._entries(self._table.current_snapshot())]

    def path(self, file: DataFile) -> str:
        """The path or URL of one of the files."""
        return self._staging.address(file)

    def clean(self) -> int:
        """Nothing in a directory, where opening has done it; ConfigError in an object store.

        Another catalog may have files of its own at the same place, which this one cannot know.
        """
        if not isinstance(self._root, Path):
            raise ConfigError(
                "orphans of an Iceberg table in an object store are not removed here: another "
                "catalog may name them. Use remove_orphan_files of the catalog's own engine"
            )
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
        check_place(root, table.location())
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
        check_place(self._root, new.table_metadata.location)
        _check_free(self._root, new.table_metadata.location)
        with new as making, making.update_spec() as spec:
            spec.add_field("stored_at", DayTransform(), "day")
        return self._catalog.load_table(self._name)

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
        with explained_catalog(self._root):
            self._table.refresh()
        text = self._table.properties.get(STATE)
        return msgspec.json.decode(text, type=TableNote) if text else TableNote(0, {})

    def _is_committed(self, commit: TableCommit) -> bool:
        """Whether the table has this very commit, perhaps with others after it."""
        if self._note().attempt == commit.attempt:
            return True
        summaries = [each.summary for each in self._table.snapshots() if each.summary is not None]
        notes = [text for each in summaries if (text := each["roquet.offsets"])]
        return any(
            msgspec.json.decode(text, type=TableNote).attempt == commit.attempt for text in notes
        )

    def _all_named(self) -> set[str]:
        """The paths of the files of all snapshots."""
        with explained_catalog(self._root):
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


def check_place(root: TableLocation, home: str) -> None:
    """ConfigError when a table of a catalog lies elsewhere than in its target."""
    if isinstance(root, Path):
        local_path(home)
    elif not f"{home.replace('s3a://', 's3://', 1).rstrip('/')}/".startswith(f"{root.url}/"):
        raise ConfigError(
            f"the catalog has the table outside of {root}: give the place that the catalog gives "
            "its tables, or another name (--table)"
        )


def _check_free(root: TableLocation, home: str) -> None:
    """ConfigError when a new table would share its place with files of another one."""
    if isinstance(root, Path):
        return
    place = ObjectLocation(home.replace("s3a://", "s3://", 1).rstrip("/"), root.options)
    if ObjectStore(place).names():
        raise ConfigError(
            f"{place} is not empty, and the catalog knows no table there: another catalog may. "
            "Give another name (--table) or another path"
        )


@contextmanager
def explained_catalog(root: TableLocation) -> Iterator[None]:
    """Give errors of an object store or a catalog a sentence; those of a directory pass.

    A refused change and one of unknown outcome pass, too.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    try:
        yield
    except (RoquetError, CommitFailedException, CommitStateUnknownException, FileNotFoundError):
        raise
    except Exception as error:
        if isinstance(root, Path):
            raise
        if not CATALOG_PACKAGES.isdisjoint(
            each.__module__.partition(".")[0] for each in type(error).__mro__
        ):
            line = (str(error).strip().splitlines() or [""])[0]
            raise CatalogFailed(
                f"the catalog of {root} refused or did not answer: {type(error).__name__} {line}"
            ) from error
        if isinstance(error, OSError):
            raise explanation(error, root) from error
        raise


def catalog_of(root: TableLocation, options: Mapping[str, str]) -> "Catalog":
    """The catalog with these options; without options the SQLite catalog of the directory."""
    from pyiceberg.catalog import load_catalog

    _check_no_secrets(options)
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


def _check_no_secrets(options: Mapping[str, str]) -> None:
    """ConfigError, which does not repeat them, for secrets among the options of a catalog."""
    for name, value in options.items():
        is_secret = any(part in name.lower() for part in SECRET_PARTS)
        if is_secret or ("://" in value and "@" in value):
            variable = name.upper().replace(".", "__").replace("-", "_")
            raise ConfigError(
                f"--catalog {name} holds a secret: every user of the machine sees the words of a "
                f"command; set PYICEBERG_CATALOG__ROQUET__{variable} in the environment"
            )


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
