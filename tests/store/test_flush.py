from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from tests.store.conftest import NOW, DataDir, fill, read_bodies

from roquet.model.errors import StoreError, StoreFailed, StoreFull
from roquet.store.layout import StoreCheckpoint, unpack_checkpoint
from roquet.store.store import Store

QUEUES = 30
"""More queues than the small store may have maps."""


def checkpoint(store_dir: DataDir) -> StoreCheckpoint:
    return unpack_checkpoint(bytes(store_dir.content("checkpoint")))


def noted(store_dir: DataDir) -> int:
    note = checkpoint(store_dir).note
    assert note is not None
    return note.position


def synced(store_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Paths in the order in which they are made durable from now on."""
    order, sync = list[Path](), store_dir.files.sync

    def recording(path: Path, view: memoryview | None = None) -> None:
        order.append(path)
        sync(path, view)

    monkeypatch.setattr(store_dir.files, "sync", recording)
    return order


def test_a_flushed_log_is_on_the_disk_with_its_names(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 100)
    order = synced(store_dir, monkeypatch)
    assert store.flushed_position == 0
    assert store.flush_log() == store.end_position == store.flushed_position
    assert [p.name for p in order if p.parent.name == "commitlog"] == [
        f"{start:020d}" for start in (0, 8192, 16384)
    ]
    assert store_dir.path("commitlog") in order
    assert store_dir.directory in order


def test_only_what_is_new_is_flushed_again(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 100)
    store.flush_log()
    order = synced(store_dir, monkeypatch)
    store.flush_log()
    assert order == []
    fill(store, 1)
    store.flush_log()
    assert [p.name for p in order] == ["00000000000000016384"]


def test_the_log_is_flushed_before_queues_and_the_checkpoint_last(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    store.dispatch()
    order = synced(store_dir, monkeypatch)
    store.flush_all(NOW)
    folders = [p.parent.parts[2] if len(p.parent.parts) > 2 else p.name
               for p in order if p in store_dir.files.contents]  # fmt: skip
    assert folders[0] == "commitlog"
    assert set(folders[1:-1]) == {"consumequeue", "index"}
    assert folders[-1] == "checkpoint"
    assert store.flushed_position == store.end_position


def test_the_checkpoint_has_the_fields_of_apaches_broker_and_ours(
    store_dir: DataDir, store: Store
) -> None:
    appended = fill(store, 10)
    store.dispatch(5)
    store.flush_all(NOW + 77)
    found = checkpoint(store_dir)
    assert (found.log_ms, found.queues_ms, found.index_ms) == (NOW + 9, NOW + 9, NOW + 4)
    assert found.note is not None
    assert found.flushed_position == found.note.position == store.end_position
    assert found.note.last_record == appended[-1].position
    assert found.note.index_position == appended[5].position
    assert found.note.made_ms == NOW + 77


def test_a_snapshot_promises_no_more_than_it_saw(store_dir: DataDir, store: Store) -> None:
    fill(store, 3)
    seen, work = store.end_position, store.flush_task(NOW)
    fill(store, 3)
    work()
    assert noted(store_dir) == seen
    store.flush_all(NOW)
    assert noted(store_dir) == store.end_position


def test_concurrent_flushes_and_appends_lose_nothing(store_dir: DataDir, store: Store) -> None:
    for _ in range(30):
        work = store.flush_task(NOW)
        work.write()
        threads = [Thread(target=work), Thread(target=store.flush_log)]
        for thread in threads:
            thread.start()
        fill(store, 20)
        for thread in threads:
            thread.join()
    store.flush_all(NOW)
    assert len(read_bodies(store_dir.open_after_kill())) == 600


def test_a_file_that_retention_took_is_no_error(store: Store) -> None:
    fill(store, 3, topic="U")
    work = store.flush_task(NOW)
    store.delete_topic("U")
    work()
    assert store.flushed_position == store.end_position


def test_files_deleted_during_a_flush_are_no_error(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    sync = store_dir.files.sync

    def losing(path: Path, view: memoryview | None = None) -> None:
        if "consumequeue" in path.parts:
            raise FileNotFoundError(path)
        sync(path, view)

    monkeypatch.setattr(store_dir.files, "sync", losing)
    store.flush_all(NOW)
    assert store.flushed_position == store.end_position


def test_pages_that_are_on_the_disk_leave_but_for_the_end_of_the_log(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.flush.LOG_RESIDENT_SIZE", 1_000)
    left: list[tuple[int, int]] = []
    monkeypatch.setattr(
        store_dir.files, "release_pages", lambda view, size: left.append((len(view), size))
    )
    store = store_dir.open()
    fill(store, 25)
    left.clear()
    store.flush_all(NOW)
    assert store.end_position - 1_000 > 4096
    assert (store_dir.config.log_file_size, 4096) in left
    assert (store_dir.config.queue_file_entries * 20,) * 2 in left
    left.clear()
    store.flush_all(NOW)
    assert left == [(store_dir.config.log_file_size, 4096)]


def test_pages_may_leave_before_they_are_on_the_disk_and_nothing_is_lost(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.flush.LOG_RESIDENT_SIZE", 1_000)
    monkeypatch.setattr(
        "roquet.store.flush.LARGE_FILE_SIZE", store_dir.config.queue_file_entries * 20
    )
    left: list[int] = []
    monkeypatch.setattr(store_dir.files, "release_pages", lambda view, _: left.append(len(view)))
    store = store_dir.open()
    fill(store, 25)
    store.flush_log()
    dirty = store.dirty_files
    left.clear()
    store.release_task()()
    assert left.count(store_dir.config.queue_file_entries * 20) > 0
    assert store_dir.config.log_file_size in left
    assert store.dirty_files == dirty > 0
    monkeypatch.setattr(
        "roquet.store.flush.LARGE_FILE_SIZE", store_dir.config.queue_file_entries * 20 + 1
    )
    left.clear()
    store.release_task()()
    assert store_dir.config.queue_file_entries * 20 not in left
    store.flush_all(NOW)
    assert store.dirty_files == 0


class FakeDiskSync:
    """A disk synced as a whole, which counts its syncs or reports a failure."""

    def __init__(self, store_dir: DataDir) -> None:
        self.store_dir = store_dir
        self.syncs = 0
        self.is_sound = True
        self.is_open = True

    def sync(self) -> bool:
        self.syncs += 1
        if self.is_sound:
            files = self.store_dir.files
            for path in [*files.contents, *files.directories()]:
                files.sync(path)
        return self.is_sound

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def disk_sync(store_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> FakeDiskSync:
    disk = FakeDiskSync(store_dir)
    monkeypatch.setattr(store_dir.files, "disk_sync", lambda _: disk)
    monkeypatch.setattr("roquet.store.flush.WHOLE_DISK_FILES_MIN", 5)
    return disk


def one_for_each(store: Store, count: int = QUEUES) -> None:
    for queue_id in range(count):
        fill(store, 2, queue_id=queue_id)


def test_very_many_files_are_made_durable_at_once(
    store_dir: DataDir, disk_sync: FakeDiskSync, store: Store
) -> None:
    fill(store, 2)
    store.flush_all(NOW)
    assert disk_sync.syncs == 0
    one_for_each(store)
    store.flush_all(NOW)
    assert disk_sync.syncs == 1
    assert noted(store_dir) == store.end_position
    store_dir.files = store_dir.files.after_power_loss(Random(1))
    store = store_dir.open()
    assert [len(read_bodies(store, "T", n)) for n in range(QUEUES)] == [4] + [2] * (QUEUES - 1)


def test_a_failure_of_syncfs_is_followed_by_a_sync_of_each_file(
    store_dir: DataDir, disk_sync: FakeDiskSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_sync.is_sound = False
    store = store_dir.open()
    one_for_each(store)
    order = synced(store_dir, monkeypatch)
    store.flush_all(NOW)
    assert len([path for path in order if path.parent.parent.name == "T"]) == QUEUES
    one_for_each(store)

    def failing(path: Path, view: memoryview | None = None) -> None:
        raise OSError("the disk is broken")

    monkeypatch.setattr(store_dir.files, "sync", failing)
    with pytest.raises(StoreError, match="could not be made durable"):
        store.flush_all(NOW)


def test_a_closed_store_lets_its_disk_go(disk_sync: FakeDiskSync, store: Store) -> None:
    fill(store, 1)
    store.close(NOW)
    assert not disk_sync.is_open


def test_buffered_bytes_without_a_map_are_written_by_a_flush(
    store_dir: DataDir, store: Store
) -> None:
    one_for_each(store)
    assert store_dir.entry("T", QUEUES - 1, 1) == (0, 0, 0)
    store.flush_all(NOW)
    assert store.mapped_count <= (store_dir.config.maps_max or 0)
    entries = [store_dir.entry("T", n, 1) for n in range(QUEUES)]
    assert all(size for _, size, _ in entries)
    assert entries == sorted(entries)
    fill(store, 1, queue_id=QUEUES - 1)
    store.flush_all(NOW)
    assert store_dir.entry("T", QUEUES - 1, 2)[0] > entries[-1][0]
    store_dir.files = store_dir.files.after_power_loss(Random(1))
    assert len(read_bodies(store_dir.open(), "T", QUEUES - 1)) == 3


def test_buffered_entries_are_read_before_they_are_written(
    store_dir: DataDir, store: Store
) -> None:
    one_for_each(store)
    work = store.flush_task(NOW)
    assert work.write(1)
    assert [len(read_bodies(store, "T", n)) for n in range(QUEUES)] == [2] * QUEUES
    one_for_each(store)
    assert not work.write(QUEUES)
    work()
    assert [len(read_bodies(store, "T", n)) for n in range(QUEUES)] == [4] * QUEUES
    assert [len(read_bodies(store_dir.open_after_kill(), "T", n)) for n in range(QUEUES)] == [
        4
    ] * QUEUES


def test_buffered_entries_of_a_deleted_topic_do_not_reach_its_successor(
    store_dir: DataDir, store: Store
) -> None:
    one_for_each(store)
    work = store.flush_task(NOW)
    store.delete_topic("T")
    fill(store, 1, queue_id=QUEUES - 1)
    work.write(QUEUES)
    work()
    assert store_dir.entry("T", QUEUES - 1, 1) == (0, 0, 0)
    assert store.flushed_position == store.end_position


def test_a_write_that_fails_is_remembered(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_for_each(store)

    def failing(*_: object) -> None:
        raise OSError("the disk is broken")

    monkeypatch.setattr(store_dir.files, "write", failing)
    with pytest.raises(StoreError, match="could not be made durable"):
        store.flush_all(NOW)
    with pytest.raises(StoreError, match="could not be made durable"):
        fill(store, 1)


def test_a_flush_that_was_given_up_is_made_up_for_by_the_next(
    store_dir: DataDir, store: Store
) -> None:
    one_for_each(store)
    given_up = store.flush_task(NOW)
    assert given_up.write(3)
    fill(store, 1)
    store.flush_all(NOW)
    assert noted(store_dir) == store.end_position
    store_dir.files = store_dir.files.after_power_loss(Random(2))
    store = store_dir.open()
    assert [len(read_bodies(store, "T", n)) for n in range(QUEUES)] == [3] + [2] * (QUEUES - 1)
    assert store.damage == []


def test_a_late_flush_leaves_a_later_one_what_is_its(store_dir: DataDir, store: Store) -> None:
    fill(store, 1)
    late = store.flush_task(NOW)
    fill(store, 1, topic="U")
    store.flush_task(NOW)
    late()
    assert store_dir.files.durable.get(store_dir.path(f"consumequeue/U/0/{0:020d}")) is None
    store.flush_all(NOW)
    assert store_dir.files.durable.get(store_dir.path(f"consumequeue/U/0/{0:020d}")) is not None


def test_unwritten_positions_are_never_called_durable(store: Store) -> None:
    one_for_each(store)
    with pytest.raises(RuntimeError, match="not written"):
        store.flush_task(NOW)()


def test_a_checkpoint_waits_for_room(
    store_dir: DataDir,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(store, 3)
    store.flush_all(NOW)
    before = bytes(store_dir.content("checkpoint"))
    fill(store, 3)

    def refuse(*_: object, **__: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(store_dir.files, "replace", refuse)
        store.flush_all(NOW)
    assert bytes(store_dir.content("checkpoint")) == before
    assert "the checkpoint waits for room: no room" in caplog.text
    store.close(NOW)
    assert store_dir.open().bounds("T", 0) == (0, 6)


def test_ends_of_queues_that_the_disk_does_not_take_end_writing(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("queue-ends cannot be used: Input/output error")

    monkeypatch.setattr(store_dir.files, "replace", refuse)
    with pytest.raises(StoreFailed, match="look at the disk, then restart"):
        store.flush_all(NOW)
    with pytest.raises(StoreFailed):
        fill(store, 1)


class FailingSync:
    """Makes one sync of a path fail; later ones succeed, as on Linux."""

    def __init__(self, store_dir: DataDir, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
        self._sync, self._part = store_dir.files.sync, part
        self.failures = 0
        monkeypatch.setattr(store_dir.files, "sync", self.sync)

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        if not self.failures and self._part in str(path):
            self.failures += 1
            raise OSError(5, "Input/output error")
        self._sync(path, view)


@pytest.mark.parametrize(
    "part",
    ["commitlog/0", "commitlog", "consumequeue", "consumequeue/T/0/", "index/", "checkpoint"],
)
def test_after_one_failed_sync_nothing_more_is_ever_called_durable(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    fill(store, 2)
    store.flush_all(NOW)
    good = noted(store_dir)
    fill(store, 2, topic="U")
    fill(store, 60)
    store.dispatch()
    disk = FailingSync(store_dir, monkeypatch, part)
    end = store.flushed_position
    for _ in range(3):
        with pytest.raises(StoreFailed, match="look at the disk, then restart"):
            store.flush_all(NOW)
    assert disk.failures == 1
    assert store.flushed_position in (end, store.end_position)
    assert store.failure is not None
    with pytest.raises(StoreFailed):
        fill(store, 1)
    store.close(NOW)
    if part != "checkpoint":  # that one may exist: everything that it names is durable
        assert noted(store_dir) == good


def test_positions_durable_before_the_disk_failed_stay_durable(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 2)
    end = store.flush_log()
    FailingSync(store_dir, monkeypatch, "consumequeue")
    with pytest.raises(StoreFailed):
        store.flush_all(NOW)
    assert store.flush_log() == end, "progress that speaks of it may be saved"


def test_a_flush_concurrent_with_a_failing_one_proves_nothing(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 2)
    sync, told, may_go_on = store_dir.files.sync, Event(), Event()

    def failing_late(path: Path, view: memoryview | None = None) -> None:
        if told.is_set():
            return sync(path, view)
        told.set()  # Linux has reported the failure to the first thread, which has not noted it yet
        may_go_on.wait(5)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store_dir.files, "sync", failing_late)
    failures: list[StoreFailed] = []

    def flush() -> None:
        try:
            store.flush_log()
        except StoreFailed as error:
            failures.append(error)

    first, second = Thread(target=flush), Thread(target=flush)
    first.start()
    assert told.wait(5)
    second.start()
    second.join(0.05)
    may_go_on.set()
    first.join()
    second.join()
    assert len(failures) == 2
    assert store.flushed_position == 0


def test_the_operator_is_advised_once(
    store_dir: DataDir,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(store, 2)
    FailingSync(store_dir, monkeypatch, "commitlog/0")
    for _ in range(3):
        with pytest.raises(StoreFailed):
            store.flush_log()
    store.fail("something else")
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "CRITICAL"]
    assert "could not be made durable" in line
    assert "look at the disk, then restart" in line
