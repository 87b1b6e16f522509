from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from roquet.store.layout import Checkpoint, unpack_checkpoint

if TYPE_CHECKING:
    from tests.store.conftest import Fill, ReadBodies, Shelf

NOW = 1_700_000_000_000


def checkpoint(shelf: "Shelf") -> Checkpoint:
    return unpack_checkpoint(bytes(shelf.content("checkpoint")))


def noted(shelf: "Shelf") -> int:
    note = checkpoint(shelf).note
    assert note is not None
    return note.position


def synced(shelf: "Shelf", monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Paths in the order in which they were made durable, from now on."""
    order, sync = list[Path](), shelf.files.sync

    def recording(path: Path, view: memoryview | None = None) -> None:
        order.append(path)
        sync(path, view)

    monkeypatch.setattr(shelf.files, "sync", recording)
    return order


def test_a_flushed_log_is_on_the_disk_with_its_names(
    shelf: "Shelf", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shelf.open()
    fill(store, 100)
    order = synced(shelf, monkeypatch)
    assert store.flushed_position == 0
    assert store.flush_log() == store.end_position == store.flushed_position
    assert [p.name for p in order if p.parent.name == "commitlog"] == [
        f"{start:020d}" for start in (0, 8192, 16384)
    ]
    assert shelf.path("commitlog") in order
    assert shelf.directory in order


def test_only_what_is_new_is_flushed_again(
    shelf: "Shelf", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shelf.open()
    fill(store, 100)
    store.flush_log()
    order = synced(shelf, monkeypatch)
    store.flush_log()
    assert order == []
    fill(store, 1)
    store.flush_log()
    assert [p.name for p in order] == ["00000000000000016384"]


def test_the_checkpoint_comes_last_and_queues_behind_the_log(
    shelf: "Shelf", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shelf.open()
    fill(store, 3)
    store.dispatch()
    order = synced(shelf, monkeypatch)
    store.flush_all(NOW)
    folders = [p.parent.parts[2] if len(p.parent.parts) > 2 else p.name
               for p in order if p in shelf.files.contents]  # fmt: skip
    assert folders[0] == "commitlog"
    assert set(folders[1:-1]) == {"consumequeue", "index"}
    assert folders[-1] == "checkpoint"
    assert store.flushed_position == store.end_position


def test_the_checkpoint_says_what_a_genuine_broker_and_we_need(
    shelf: "Shelf", fill: "Fill"
) -> None:
    store = shelf.open()
    appended = fill(store, 10)
    store.dispatch(4)
    store.flush_all(NOW + 77)
    found = checkpoint(shelf)
    assert (found.log_ms, found.queues_ms, found.index_ms) == (NOW + 9, NOW + 9, NOW + 3)
    assert found.note is not None
    assert found.flushed_position == found.note.position == store.end_position
    assert found.note.last_record == appended[-1].position
    assert found.note.index_position == appended[4].position
    assert found.note.made_ms == NOW + 77


def test_a_snapshot_promises_no_more_than_it_saw(shelf: "Shelf", fill: "Fill") -> None:
    store = shelf.open()
    fill(store, 3)
    seen, work = store.end_position, store.flushing(NOW)
    fill(store, 3)
    work()
    assert noted(shelf) == seen
    store.flush_all(NOW)
    assert noted(shelf) == store.end_position


def test_flushing_beside_appending_loses_nothing(
    shelf: "Shelf", fill: "Fill", bodies: "ReadBodies"
) -> None:
    store = shelf.open()
    for _ in range(30):
        work = store.flushing(NOW)
        threads = [Thread(target=work), Thread(target=store.flush_log)]
        for thread in threads:
            thread.start()
        fill(store, 20)
        for thread in threads:
            thread.join()
    store.flush_all(NOW)
    assert len(bodies(shelf.open_after_kill())) == 600


def test_a_file_that_retention_took_is_no_error(shelf: "Shelf", fill: "Fill") -> None:
    store = shelf.open()
    fill(store, 3, topic="U")
    work = store.flushing(NOW)
    store.delete_topic("U")
    work()
    assert store.flushed_position == store.end_position


def test_files_that_went_meanwhile_are_no_error(
    shelf: "Shelf", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shelf.open()
    fill(store, 3)
    sync = shelf.files.sync

    def losing(path: Path, view: memoryview | None = None) -> None:
        if "consumequeue" in path.parts:
            raise FileNotFoundError(path)
        sync(path, view)

    monkeypatch.setattr(shelf.files, "sync", losing)
    store.flush_all(NOW)
    assert store.flushed_position == store.end_position


def test_pages_that_are_on_the_disk_leave_but_for_the_end_of_the_log(
    shelf: "Shelf", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.flush.LOG_KEPT", 1_000)
    left: list[tuple[int, int]] = []
    monkeypatch.setattr(shelf.files, "forget", lambda view, size: left.append((len(view), size)))
    store = shelf.open()
    fill(store, 25)
    left.clear()
    store.flush_all(NOW)
    assert store.end_position - 1_000 > 4096
    assert (shelf.config.log_file_size, 4096) in left
    assert (shelf.config.queue_file_entries * 20,) * 2 in left
    left.clear()
    store.flush_all(NOW)
    assert left == [(shelf.config.log_file_size, 4096)]


def test_pages_may_leave_before_they_are_on_the_disk_and_nothing_is_lost(
    shelf: "Shelf", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.flush.LOG_KEPT", 1_000)
    left: list[int] = []
    monkeypatch.setattr(shelf.files, "forget", lambda view, _: left.append(len(view)))
    store = shelf.open()
    fill(store, 25)
    store.flush_log()
    dirty = store.dirty_files
    left.clear()
    store.letting_go()()
    assert left.count(shelf.config.queue_file_entries * 20) > 0
    assert shelf.config.log_file_size in left
    assert store.dirty_files == dirty > 0
    store.flush_all(NOW)
    assert store.dirty_files == 0
