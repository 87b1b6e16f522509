"""Tables of each kind, batches for them, a disk that crashes at a chosen step, an S3 server."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from roquet.lake.columns.partitioning import schema_of
from roquet.lake.files.disk import Disk
from roquet.lake.files.parquet_writer import PartitionedWriter
from roquet.lake.objects import object_store
from roquet.lake.objects.object_location import ObjectLocation, StagingDirectory, parse_location
from roquet.lake.queue_offsets import QueueOffsets
from roquet.lake.table import ArchiveIdentity, ArchiveTable, DataFile, TableState

if TYPE_CHECKING:
    from pyiceberg.table import Table as IceTable
    from tests.spark_suite.conftest import S3Server

COLUMNS = ("topic", "broker", "queue_id", "queue_offset", "body", "properties", "stored_at")
WANTED = ArchiveIdentity(topic="orders", columns=COLUMNS)
START = datetime(2026, 1, 31, 23, 50, tzinfo=UTC)
QUEUES = (("orders", "broker-a", 0), ("orders", "broker-b", 1))

Place = tuple[str, int, int]


class Crash(BaseException):
    """The process was killed."""


class CrashingDisk(Disk):
    """Crashes at a chosen step, before or after it is done."""

    def __init__(self, steps: int, *, last_is_done: bool) -> None:
        self.left, self._last_is_done = steps, last_is_done

    def _step(self, action: Callable[..., None], *args: Any) -> None:
        self.left -= 1
        if self.left > 0:
            return action(*args)
        if self.left == 0 and self._last_is_done:
            action(*args)
        raise Crash

    def make(self, directory: Path) -> None:
        self._step(super().make, directory)

    def put(self, path: Path, data: bytes) -> None:
        self._step(super().put, path, data)

    def move(self, source: Path, target: Path) -> None:
        self._step(super().move, source, target)

    def remove(self, path: Path) -> None:
        self._step(super().remove, path)

    def clear(self, directory: Path) -> None:
        self._step(super().clear, directory)

    def sync(self, directory: Path) -> None:
        self._step(super().sync, directory)


def batch(offsets: Iterable[int], *, broker: str = "broker-a", queue_id: int = 0) -> pa.RecordBatch:
    """Messages of one queue, one a minute: the first day ends after ten."""
    places = list(offsets)
    rows: dict[str, list[Any]] = {
        "topic": ["orders"] * len(places),
        "broker": [broker] * len(places),
        "queue_id": [queue_id] * len(places),
        "queue_offset": places,
        "body": [b"%d" % at for at in places],
        "properties": [[("TAGS", "red")] for _ in places],
        "stored_at": [START + timedelta(minutes=at) for at in places],
    }
    return pa.RecordBatch.from_pydict(rows, schema=schema_of(COLUMNS))


def written(directory: StagingDirectory, *batches: pa.RecordBatch) -> list[DataFile]:
    """Files with these rows, as a task writes them."""
    writer = PartitionedWriter(directory, schema_of(COLUMNS))
    for rows in batches:
        writer.write(rows)
    return writer.close()


def commit_rows(table: ArchiveTable, after: QueueOffsets, *batches: pa.RecordBatch) -> None:
    """Commit the offsets and files with these rows, in the partitions of the table."""
    directory, files = table.begin(), list[DataFile]()
    for rows in batches:
        writer = PartitionedWriter(directory, rows.schema, scheme=table.identity.scheme)
        writer.write(rows)
        files += writer.close()
    table.commit(table.state(after).then(after, directory.name, files, ()))


def archive(table: ArchiveTable, before: int, after: int) -> None:
    """Commit one batch of both queues, as the driver does."""
    state = table.state(QUEUES)
    directory = table.begin()
    files = [
        file
        for _, broker, queue_id in QUEUES
        for file in written(
            directory, batch(range(before, after), broker=broker, queue_id=queue_id)
        )
    ]
    table.commit(state.then(dict.fromkeys(QUEUES, after), directory.name, files, ()))


def merge(table: ArchiveTable, end: int, removed: Sequence[DataFile]) -> None:
    """Commit one file for each queue in the place of others; the offsets stay."""
    state, attempt = table.state(QUEUES), table.begin()
    rows = [batch(range(end), broker=name, queue_id=at) for _, name, at in QUEUES]
    table.commit(state.then(state.offsets, attempt.name, written(attempt, *rows), removed))


def places(rows: pa.Table) -> list[Place]:
    """Broker, queue and offset of each row, in order."""
    names = ("broker", "queue_id", "queue_offset")
    return sorted(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def whole(after: int) -> list[Place]:
    return sorted((broker, queue, at) for _, broker, queue in QUEUES for at in range(after))


def offsets(after: int, queues: Sequence[tuple[str, str, int]] = QUEUES) -> QueueOffsets:
    return dict.fromkeys(queues, after)


def raising(error: Exception) -> Callable[..., Any]:
    """A function that raises."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


def patch_first(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, action: Callable[..., Any]
) -> list[Any]:
    """Let the first call of a method be `action`, given the method itself first; the calls made."""
    method, calls = getattr(owner, name), list[Any]()

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return action(method, *args, **kwargs) if len(calls) == 1 else method(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


class TableKind:
    """A table of one kind in a directory, and how readers see it."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root

    def open(self, disk: Disk | None = None, wanted: ArchiveIdentity = WANTED) -> ArchiveTable:
        if self.name == "delta":
            from roquet.lake.kinds.delta.delta_table import DeltaTable

            return DeltaTable(self.root, wanted, disk)
        from roquet.lake.kinds.iceberg import IcebergTable

        return IcebergTable(self.root, wanted, disk)

    def fill(self, *ends: int) -> None:
        """Archive a batch up to each of these offsets, from the first one on."""
        with self.open() as table:
            for before, after in itertools.pairwise((0, *ends)):
                archive(table, before, after)

    def rows(self) -> pa.Table:
        """The rows that readers see."""
        if self.name == "delta":
            from deltalake import DeltaTable

            return DeltaTable(str(self.root)).to_pyarrow_table()
        with self.loaded() as table:
            return table.scan().to_arrow()

    @contextmanager
    def loaded(self) -> "Iterator[IceTable]":
        """The Iceberg table as another writer has it."""
        from pyiceberg.catalog.sql import SqlCatalog

        with SqlCatalog("roquet", uri=f"sqlite:///{self.root}/catalog.db") as catalog:
            yield catalog.load_table("roquet.orders")

    def set_back(self, number: int) -> None:
        """Let another writer set the table back to what it was after a commit."""
        if self.name == "delta":
            from deltalake import DeltaTable

            DeltaTable(str(self.root)).restore(number)
            return
        with self.loaded() as table:
            snapshot = table.snapshots()[number - 1].snapshot_id
            table.manage_snapshots().set_current_snapshot(snapshot).commit()

    def state(self) -> TableState:
        with self.open() as table:
            return table.state(QUEUES)

    def places(self) -> list[Place]:
        """Broker, queue and offset of each row that readers see, sorted."""
        return places(self.rows())

    def on_disk(self) -> set[str]:
        """The names of all Parquet files in the directory."""
        return {path.name for path in self.root.rglob("*.parquet")}

    def listed(self) -> set[str]:
        """The names of the files in the table."""
        with self.open() as table:
            return {file.name for file in table.files()}

    wanted = WANTED
    queues = QUEUES
    crash = Crash
    crashing_disk = CrashingDisk
    batch = staticmethod(batch)
    written = staticmethod(written)
    archive = staticmethod(archive)
    merge = staticmethod(merge)
    whole = staticmethod(whole)
    offsets = staticmethod(offsets)


@pytest.fixture
def kinds(tmp_path: Path) -> Callable[[str], TableKind]:
    """A table by the name of its kind, in a directory that does not exist yet."""
    return lambda name: TableKind(name, tmp_path / "lake of orders")


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest, kinds: Callable[[str], TableKind]) -> TableKind:
    """A table of each kind."""
    return kinds(request.param)


@pytest.fixture
def delta(kinds: Callable[[str], TableKind]) -> TableKind:
    """A Delta table."""
    return kinds("delta")


@pytest.fixture
def iceberg(kinds: Callable[[str], TableKind]) -> TableKind:
    """An Iceberg table."""
    return kinds("iceberg")


def location_of(url: str, **storage: str) -> ObjectLocation:
    """A location in an object store, with what the environment says of it."""
    return parse_location(url, storage, os.environ)


class DirectoryObjects:
    """A directory in the place of an object store: bucket and key are its paths."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = pafs.SubTreeFileSystem(str(root), pafs.LocalFileSystem())

    def open_output_stream(self, key: str, metadata: object = None) -> Any:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        return self._files.open_output_stream(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def age(self, key: str, hours: float) -> None:
        """Make an object older."""
        path = self.root / key
        then = path.stat().st_mtime - hours * 3600
        os.utime(path, (then, then))

    def stored(self) -> set[str]:
        """The keys of all objects."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)) for path in files}


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirectoryObjects:
    """An object store with the empty bucket `lake`, without a network."""
    fake = DirectoryObjects(tmp_path / "objects")
    (fake.root / "lake").mkdir(parents=True)
    monkeypatch.setattr(object_store, "s3_file_system", lambda options: fake)
    return fake


@pytest.fixture(scope="session")
def s3_of_session() -> "Iterator[S3Server]":
    """An S3 server, one for all tests of this process."""
    from tests.spark_suite.conftest import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_of_session: "S3Server") -> "Iterator[S3Server]":
    """The server with an empty bucket, and the environment to reach it."""
    with s3_of_session.reached():
        yield s3_of_session
        s3_of_session.files().delete_dir_contents(s3_of_session.bucket)
