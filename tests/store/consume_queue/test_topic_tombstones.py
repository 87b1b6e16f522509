"""A deleted topic stays deleted whatever happens to the process; the tombstone file."""

from pathlib import Path
from random import Random

import pytest
from tests.store.conftest import NOW, DataDir, draft, fill, read_bodies

from roquet.model.errors import StoreError, StoreFailed
from roquet.rules.retention import HOUR_MS, DiskUsage
from roquet.store.check import check
from roquet.store.consume_queue.topic_tombstones import FILE_NAME, TopicTombstones
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store

DIRECTORY = Path("/data")


def test_a_tombstone_survives_a_restart() -> None:
    files = MemoryFiles()
    marks = TopicTombstones(files, DIRECTORY)
    assert marks.position_of("orders") == 0
    marks.add("orders", 500)
    marks.add("%DLQ%billing", 700)
    marks.add("orders", 900)
    again = TopicTombstones(files, DIRECTORY)
    assert (again.position_of("orders"), again.position_of("%DLQ%billing")) == (900, 700)
    assert again.position_of("T") == 0


def test_a_tombstone_is_removed_with_its_records() -> None:
    files = MemoryFiles()
    marks = TopicTombstones(files, DIRECTORY)
    marks.add("old", 500)
    marks.add("young", 900)
    marks.forget_before(500)
    marks.forget_before(500)
    assert TopicTombstones(files, DIRECTORY).positions == {b"young": 900}


def test_records_after_the_end_of_the_log_are_never_deleted() -> None:
    marks = TopicTombstones(MemoryFiles(), DIRECTORY)
    marks.add("orders", 900)
    marks.limit(1000)
    assert marks.position_of("orders") == 900
    marks.limit(600)
    assert marks.position_of("orders") == 600


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"orders": "many"}', b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(text: bytes) -> None:
    files = MemoryFiles()
    files.replace(DIRECTORY / FILE_NAME, text)
    with pytest.raises(StoreError, match=FILE_NAME):
        TopicTombstones(files, DIRECTORY)


@pytest.mark.parametrize("flushed", [True, False], ids=["behind the checkpoint", "before it"])
def test_a_kill_right_after_brings_no_deleted_topic_back(
    store_dir: DataDir, store: Store, flushed: bool
) -> None:
    fill(store, 5, topic="U")
    if flushed:
        store.flush_all(NOW)
    fill(store, 40, topic="T")
    fill(store, 5, topic="U")
    store.delete_topic("T")
    store = store_dir.open_after_kill()
    assert store.topics() == ["U"]
    assert len(read_bodies(store, "U")) == 10
    assert check(store_dir.directory, store_dir.config, files=store_dir.files).problems == ()


def test_a_recreated_topic_has_only_its_new_messages(store_dir: DataDir, store: Store) -> None:
    fill(store, 20)
    store.delete_topic("T")
    for n in range(3):
        assert store.append(draft(b"new %d" % n), NOW).queue_offset == n
    for _ in range(2):
        store = store_dir.open_after_kill()
        assert read_bodies(store) == [b"new 0", b"new 1", b"new 2"]
    store.delete_topic("T")
    store.append(draft(b"newer"), NOW)
    assert read_bodies(store_dir.open_after_kill()) == [b"newer"]


def test_no_deleted_topic_comes_back_when_all_queues_are_made_again(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 20)
    fill(store, 20, topic="U")
    store.delete_topic("T")
    store.close(NOW)
    store_dir.files = store_dir.files.copy()
    store_dir.files.remove(store_dir.path("consumequeue"))
    store = store_dir.open()
    assert store.topics() == ["U"]
    assert len(read_bodies(store, "U")) == 20


def powerless(store_dir: DataDir, seed: int) -> Store:
    store_dir.files = store_dir.files.after_power_loss(Random(seed))
    return store_dir.open()


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_of_power_neither_brings_it_back_nor_takes_what_is_new(
    store_dir: DataDir, store: Store, seed: int
) -> None:
    fill(store, 20)
    store.flush_all(NOW)
    fill(store, 20)
    store.delete_topic("T")
    if seed % 2:
        store = powerless(store_dir, seed)
        assert read_bodies(store) == []
    store.append(draft(b"new"), NOW)
    store.flush_log()
    assert read_bodies(powerless(store_dir, seed)) == [b"new"]


def test_queues_that_came_back_are_deleted_once_more(store_dir: DataDir, store: Store) -> None:
    fill(store, 20)
    store.flush_all(NOW)
    before = store_dir.files.copy()
    store.delete_topic("T")
    store_dir.files = store_dir.files.copy()
    ghosts = {p: c for p, c in before.contents.items() if "consumequeue" in p.parts}
    store_dir.files.contents.update(ghosts)
    store_dir.files.blocks.update({p: before.blocks[p] for p in ghosts})
    assert store_dir.open().topics() == []
    assert not any("consumequeue" in p.parts for p in store_dir.files.contents)


@pytest.mark.parametrize("empty", [1, 2])
def test_a_queue_that_came_back_empty_does_not_keep_the_others(
    store_dir: DataDir, store: Store, empty: int
) -> None:
    for queue_id in range(3):
        fill(store, 20, queue_id=queue_id)
    store.flush_all(NOW)
    before = store_dir.files.copy()
    store.delete_topic("T")
    store_dir.files = store_dir.files.copy()
    ghosts = {p: c for p, c in before.contents.items() if "consumequeue" in p.parts}
    store_dir.files.contents.update(ghosts)
    store_dir.files.blocks.update({p: before.blocks[p] for p in ghosts})
    for path in ghosts:
        if int(path.parent.name) < empty:
            store_dir.files.map(path, len(ghosts[path]))[:] = bytes(len(ghosts[path]))
    assert store_dir.open().topics() == []


def test_a_topic_without_messages_leaves_no_tombstone(store: Store) -> None:
    store.delete_topic("T")
    assert store.deleted_before("T") == 0
    fill(store, 3)
    store.delete_topic("T")
    assert store.deleted_before("T") == store.end_position


def test_tombstones_are_removed_with_the_files_of_the_log(store: Store) -> None:
    fill(store, 3)
    store.delete_topic("T")
    for day in range(10):
        store.append(draft(b"x" * 7000, "U"), NOW + day * 24 * HOUR_MS)
    assert store.deleted_before("T") > 0
    store.flush_all(NOW)
    store.expire(NOW + 9 * 24 * HOUR_MS, DiskUsage(100, 20))
    assert store.deleted_before("T") == 0


def test_a_list_that_may_not_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()

    def refuse(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "read", refuse)
    with pytest.raises(StoreError, match=r"deleted-topics\.json cannot be used: Permission denied"):
        TopicTombstones(files, Path("/data"))


def test_a_topic_has_messages_until_it_is_deleted(store: Store) -> None:
    assert not store.has_messages("T")
    fill(store, 1)
    assert store.has_messages("T")
    store.delete_topic("T")
    fill(store, 1)
    assert not store.has_messages("T"), "what lies there came after it was deleted"


class FilesThatReportFailure(MemoryFiles):
    """Files that store a write and then report a failure, for the first `times` calls."""

    refusals = 0

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        super().replace(path, data, keep=keep)
        if self.refusals:
            self.refusals -= 1
            raise StoreError(f"{path} cannot be used: Input/output error")


def test_a_tombstone_that_may_be_on_the_disk_is_undone() -> None:
    files = FilesThatReportFailure()
    marks = TopicTombstones(files, DIRECTORY)
    marks.add("old", 500)
    files.refusals = 1
    with pytest.raises(StoreError, match="Input/output error") as caught:
        marks.add("orders", 900)
    assert not isinstance(caught.value, StoreFailed)
    assert TopicTombstones(files, DIRECTORY).positions == marks.positions == {b"old": 500}


def test_a_tombstone_that_cannot_be_undone_ends_writing(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 2)
    monkeypatch.setattr(
        store_dir.files, "replace", FilesThatReportFailure.replace.__get__(FilesThatReportFailure())
    )
    monkeypatch.setattr(FilesThatReportFailure, "refusals", 2)
    with pytest.raises(StoreFailed, match="look at the disk"):
        store.delete_topic("T")
    with pytest.raises(StoreFailed):
        fill(store, 1)


def test_tombstones_that_cannot_be_removed_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    files = FilesThatReportFailure()
    marks = TopicTombstones(files, DIRECTORY)
    marks.add("old", 500)
    files.refusals = 1
    marks.forget_before(600)
    assert "stay until the next time" in caplog.text
