"""A small store in memory, whose process can be killed and whose power can be cut."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from roquet.store.config import StoreConfig
from roquet.store.layout import ENTRY_SIZE
from roquet.store.recovery.open_directory import OpenDirectory, open_directory
from roquet.store.store import AppendResult, BatchColumns, Draft, Store
from roquet.testing.power_loss_files import PowerLossFiles as PowerLossFiles
from roquet.wire.records.record import ENTRY, decode_many, encode_properties

Row = tuple[int, bytes, bytes, int]
"""Flag, body, properties and tag code of a message of a batch."""

NOW = 1_700_000_000_000

SMALL = StoreConfig(
    log_file_size=8192,
    queue_file_entries=50,
    index_slots=20,
    index_entries=100,
    log_step=4096,
    queue_step=400,
    index_step=400,
    maps_max=12,
)


def parts(rows: Sequence[Row]) -> BatchColumns:
    """A batch of these messages."""
    return BatchColumns(*zip(*rows, strict=True)) if rows else BatchColumns((), (), (), ())


class DataDir:
    """One data directory; `files` may be replaced by what a later process finds."""

    def __init__(self) -> None:
        self.files = PowerLossFiles()
        self.directory = Path("/data")
        self.config = SMALL
        self.now_ms = NOW

    def open(self) -> Store:
        return Store.open(self.directory, self.config, files=self.files, now_ms=self.now_ms, pid=7)

    def open_parts(self) -> tuple[Store, OpenDirectory]:
        """A store, and the log, queues and key index that it is made of."""
        opened = open_directory(self.directory, self.config, self.files, 7)
        return Store(opened, self.config), opened

    def open_after_kill(self) -> Store:
        """The store of the next process: everything was written, nothing closed."""
        self.files = self.files.copy()
        return self.open()

    def path(self, name: str) -> Path:
        return self.directory / name

    def content(self, name: str) -> memoryview:
        """A file's own bytes, to be examined or damaged."""
        return memoryview(self.files.contents[self.path(name)])

    def entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int]:
        """Position, size and tag code of a message, from the queue's first file."""
        found = self.content(f"consumequeue/{topic}/{queue_id}/{0:020d}")
        position, size, tag_code = ENTRY.unpack_from(found, offset * ENTRY_SIZE)
        return position, size, tag_code

    def bytes_at(self, position: int, size: int) -> memoryview:
        """The log's own bytes, to be damaged."""
        start = position // self.config.log_file_size * self.config.log_file_size
        return self.content(f"commitlog/{start:020d}")[position - start : position - start + size]

    def snapshot(self) -> dict[Path, bytes]:
        return {path: bytes(content) for path, content in self.files.contents.items()}


def draft(body: bytes = b"body", topic: str = "T", queue_id: int = 0, **more: Any) -> Draft:
    properties = encode_properties(more.pop("properties", {"TAGS": "red", "UNIQ_KEY": "U1"}))
    return Draft(
        topic=topic, queue_id=queue_id, body=body, properties=properties,
        tag_code=more.pop("tag_code", 112785), **more,
    )  # fmt: skip


def read_bodies(store: Store, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """All bodies of a queue, read a few at a time; asserts that offsets and queues are right."""
    offset, end = store.bounds(topic, queue_id)
    bodies: list[bytes] = []
    while offset < end:
        found = store.read(topic, queue_id, offset, count_max=7)
        assert found.next_offset > offset
        records = [r for part in found.parts for r in decode_many(part)]
        assert len(records) == found.count
        for record in records:
            assert (record.topic, record.queue_id) == (topic, queue_id)
            assert offset <= record.queue_offset < found.next_offset
        bodies += [record.body for record in records]
        offset = found.next_offset
    return bodies


def fill(store: Store, count: int, size: int = 100, **more: Any) -> list[AppendResult]:
    """Append messages of a size, each with a body of its own."""
    return [
        store.append(draft(f"{n} ".encode().ljust(size, b"."), **more), NOW + n)
        for n in range(count)
    ]


def index_all(store: Store) -> None:
    """Index every record of a store's log."""
    while store.dispatch():
        pass


@pytest.fixture
def store_dir() -> DataDir:
    return DataDir()


@pytest.fixture
def store(store_dir: DataDir) -> Store:
    return store_dir.open()
