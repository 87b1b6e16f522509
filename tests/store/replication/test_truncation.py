"""A log is cut with its queues and its index; a crash on the way leaves the old or the cut one."""

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.conftest import (
    NOW,
    DataDir,
    PowerLossFiles,
    draft,
    fill,
    index_all,
    read_bodies,
)

from roquet.model.errors import StoreError, StoreFailed
from roquet.store.replication.truncation import has_blank_at, is_boundary, last_record, whole_end
from roquet.store.store import AppendResult, Store
from roquet.wire.records.record import decode


def fill_queues(store: Store, count: int, size: int = 90) -> list[AppendResult]:
    """Messages with a key of their own in three queues."""
    return [
        store.append(
            draft(b"%03d" % n + b"." * size, queue_id=n % 3, properties={"UNIQ_KEY": f"K{n}"}),
            NOW + n,
        )
        for n in range(count)
    ]


def assert_holds(store: Store, count: int) -> None:
    """Assert that a store has the first messages of `fill_queues`, and nothing of the others."""
    numbers = sorted(int(body[:3]) for n in range(3) for body in read_bodies(store, "T", n))
    assert numbers == list(range(count))
    index_all(store)
    for n in range(count + 5):
        found = store.query("T", f"K{n}")
        assert [decode(record).body[:3] for record in found.records] == [b"%03d" % n] * (n < count)


@given(st.integers(0, 60), st.integers(0, 60), st.booleans(), st.sampled_from([0, 7, 100]))
@settings(max_examples=60, deadline=None)
def test_a_cut_store_goes_on_as_one_that_never_had_the_rest(
    left: int, flushed_at: int, is_indexed: bool, size: int
) -> None:  # fmt: skip
    directory = DataDir()
    store = directory.open()
    results = fill_queues(store, flushed_at, size)
    store.flush_all(NOW)
    results += [
        store.append(
            draft(b"%03d" % n + b"." * size, queue_id=n % 3, properties={"UNIQ_KEY": f"K{n}"}),
            NOW + n,
        )
        for n in range(flushed_at, 61)
    ]
    while is_indexed and store.dispatch():
        pass
    store.raw.truncate(results[left].position)
    assert store.end_position == store.raw.dispatched == results[left].position
    assert store.flushed_position <= store.end_position
    assert_holds(store, left)
    assert_holds(directory.open_after_kill(), left)
    store = directory.open_after_kill()
    for n in range(left, 70):
        again = store.append(
            draft(b"%03d" % n + b"." * size, queue_id=n % 3, properties={"UNIQ_KEY": f"K{n}"}),
            NOW + n,
        )
        assert again.queue_offset == n // 3
    assert_holds(store, 70)
    store.close(NOW)
    store = directory.open()
    assert_holds(store, 70)
    assert not store.damage


def test_it_is_known_before_a_cut_where_queues_will_end() -> None:
    store = Store.open(None, now_ms=NOW)
    stored = fill_queues(store, 10)
    assert store.raw.ends_at(stored[4].position) == {("T", 0): 2, ("T", 1): 1, ("T", 2): 1}
    assert store.raw.ends_at(store.raw.begin) == {("T", n): 0 for n in range(3)}
    store.set_confirmed(stored[4].position)
    assert (store.bounds("T", 0), store.stored_end("T", 0)) == ((0, 2), 4)
    assert store.stored_end("T", 7) == 0


def test_queues_that_nobody_has_used_since_the_start_are_cut_too(
    store_dir: DataDir, store: Store
) -> None:
    results = fill_queues(store, 61)
    store.close(NOW)
    store = store_dir.open()
    store.raw.truncate(results[20].position)
    assert_holds(store, 20)
    store.close(NOW)
    assert_holds(store_dir.open(), 20)


class Killed(BaseException):
    """The process ends here."""


class KillFiles(PowerLossFiles):
    """Files that end the process at one of their changes."""

    left: int | None = None

    def _count(self) -> None:
        if self.left is not None:
            if not self.left:
                raise Killed
            self.left -= 1

    def copy(self) -> PowerLossFiles:
        return PowerLossFiles.copy(self)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)
        self._count()

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        self._count()
        super().replace(path, data, keep=keep)

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        self._count()
        super().sync(path, view)


COUNT = 130


@pytest.mark.parametrize("has_power", [True, False])
@pytest.mark.parametrize("flushed", [0, 20, COUNT])
@pytest.mark.parametrize("left", [0, 1, 20, 33, 50, COUNT - 1])
def test_a_crash_leaves_the_old_log_or_the_cut_one(
    left: int, flushed: int, has_power: bool
) -> None:  # fmt: skip
    outcomes, kill_at, is_done = list[int](), 0, False
    while not is_done:
        directory = DataDir()
        directory.files = files = KillFiles()
        store = directory.open()
        if not flushed:
            store.flush_all(NOW)
        results = []
        for n in range(COUNT):
            key = {"UNIQ_KEY": f"K{n}"}
            made = draft(b"%03d" % n + b"." * 90, queue_id=n % 3, properties=key)
            results.append(store.append(made, NOW + n))
            if n + 1 == flushed:
                store.dispatch()
                store.flush_all(NOW)
        store.flush_log()
        files.left = kill_at
        try:
            store.raw.truncate(results[left].position)
            is_done = True
        except Killed:
            pass
        files.left = None
        random = Random(kill_at)
        directory.files = files.copy() if has_power else files.after_power_loss(random)
        after = directory.open()
        count = COUNT if after.end_position > results[left].position else left
        assert after.end_position == (results[-1].position + results[-1].size if count == COUNT else
                                      results[left].position)  # fmt: skip
        assert_holds(after, count)
        assert not after.damage
        outcomes.append(count)
        kill_at += 1
    assert outcomes[0] == COUNT or flushed <= left
    assert outcomes[-1] == left
    assert outcomes == sorted(outcomes, reverse=True), "once cut, it stays cut"


def test_a_log_is_cut_at_records_blanks_and_files_alone(store_dir: DataDir, store: Store) -> None:
    results = fill(store, 100)
    file_size = store.raw.file_size
    last = max((r for r in results if r.position < file_size), key=lambda r: r.position)
    allowed = {r.position for r in results} | {last.position + last.size, file_size}
    for position in range(last.position - 3, file_size + 1):
        if position not in allowed:
            with pytest.raises(StoreError, match=f"cannot be cut at {position}: no record"):
                store.raw.truncate(position)
    with pytest.raises(StoreError, match="positions 0 to"):
        store.raw.truncate(store.end_position + 1)
    with pytest.raises(StoreError):
        store.raw.truncate(-1)
    store.raw.truncate(store.end_position)
    assert len(read_bodies(store)) == 100
    store.raw.truncate(file_size)
    assert len(read_bodies(store)) == last.queue_offset + 1
    store.raw.truncate(last.position + last.size)
    assert (store.end_position, len(read_bodies(store))) == (
        last.position + last.size, last.queue_offset + 1
    )  # fmt: skip
    assert store.append(draft(b"x" * 200), NOW).position == file_size
    assert len(read_bodies(store_dir.open_after_kill())) == last.queue_offset + 2


def test_a_log_cut_to_nothing_begins_again(store_dir: DataDir, store: Store) -> None:
    fill(store, 100)
    store.flush_all(NOW)
    store.raw.truncate(0)
    assert (store.raw.begin, store.raw.end, store.bounds("T", 0)) == (0, 0, (0, 0))
    assert fill(store, 3)[0].queue_offset == 0
    assert len(read_bodies(store_dir.open_after_kill())) == 3


def test_a_flush_that_began_before_the_cut_leaves_the_checkpoint_alone(
    store_dir: DataDir, store: Store
) -> None:
    results = fill(store, 50)
    work = store.flush_task(NOW)
    work.write()
    store.raw.truncate(results[20].position)
    work()
    store = store_dir.open_after_kill()
    assert len(read_bodies(store)) == 20
    fill(store, 5)
    assert len(read_bodies(store_dir.open_after_kill())) == 25


def test_a_scrub_goes_on_up_to_the_cut(store_dir: DataDir, store: Store) -> None:
    results = fill(store, 100)
    store.close(NOW)
    store = store_dir.open()
    store.scrub(3000)
    store.raw.truncate(results[40].position)
    while store.scrub(1000):
        pass
    assert not store.damage
    assert len(read_bodies(store)) == 40
    assert store.query("T", "U1", count_max=99).positions[-1] == results[39].position


def test_known_damage_behind_the_cut_is_forgotten(store_dir: DataDir, store: Store) -> None:
    results = fill(store, 60)
    store.close(NOW)
    for number in (10, 50):
        store_dir.bytes_at(results[number].position, 20)[:] = bytes(20)
    store = store_dir.open()
    while store.scrub(10_000):
        pass
    assert len(store.damage) == 2
    store.raw.truncate(results[40].position)
    assert [known.start for known in store.damage] == [results[10].position]
    assert len(bodies_of(store)) == 39


def bodies_of(store: Store) -> list[bytes]:
    block = store.read_block("T", 0, 0, count_max=999, bytes_max=1 << 20)
    return [decode(block.data, at).body for at in block.edges[:-1]]


def test_records_of_a_deleted_topic_get_no_entries_behind_a_cut(
    store_dir: DataDir, store: Store
) -> None:
    first = store.append(draft(topic="U"), NOW)
    second = store.append(draft(topic="T"), NOW)
    store.delete_topic("T")
    store.raw.truncate(second.position)
    assert store.deleted_before("T") == second.position
    store.append(draft(b"new", topic="T"), NOW)
    store = store_dir.open_after_kill()
    assert read_bodies(store) == [b"new"]
    assert len(read_bodies(store, "U")) == 1
    assert first.position == 0


@pytest.mark.parametrize("name", ["sync", "remove"])
def test_a_disk_that_fails_under_a_cut_fails_the_store(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    results = fill(store, 100)
    store.flush_all(NOW)

    def refuse(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store_dir.files, name, refuse)
    with pytest.raises(StoreFailed):
        store.raw.truncate(results[10].position)
    with pytest.raises(StoreFailed):
        store.raw.append(store.raw.end, b"x")
    with pytest.raises(StoreFailed):
        store.raw.truncate(0)


def test_queues_that_cannot_be_cut_fail_the_store(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [store.append(draft(b"x"), NOW) for _ in range(120)]
    remove: Callable[[Path], None] = store_dir.files.remove

    def refuse(path: Path) -> None:
        if "consumequeue" in path.parts:
            raise OSError(5, "Input/output error")
        remove(path)

    monkeypatch.setattr(store_dir.files, "remove", refuse)
    with pytest.raises(StoreFailed, match="could not be cut"):
        store.raw.truncate(results[3].position)


def test_the_end_of_a_queue_is_noted_anew_after_a_cut(
    store_dir: DataDir, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut and filled again to the same offset, its last entry leads elsewhere."""
    store = store_dir.open()
    results = fill(store, 20)
    store.flush_all(NOW)
    store.raw.truncate(results[10].position)
    fill(store, 10, size=300)
    store.close(NOW)
    with caplog.at_level(logging.WARNING):
        assert store_dir.open().bounds("T", 0) == (0, 20)
    assert "rebuilt" not in caplog.text


def test_records_blanks_and_files_begin_at_boundaries(store_dir: DataDir) -> None:
    store, opened = store_dir.open_parts()
    results = fill(store, 60)
    blank = max(r.position + r.size for r in results if r.position < 8192)
    starts = {r.position for r in results} | {blank, 8192, store.end_position}
    found = {at for at in range(store.end_position + 1) if is_boundary(opened.log, at)}
    assert found == starts
    assert has_blank_at(opened.log, blank)
    assert not has_blank_at(opened.log, 0)
    assert not has_blank_at(opened.log, store.end_position)


def test_the_begin_of_a_torn_record_is_a_boundary() -> None:
    master = DataDir().open()
    results = fill(master, 3)
    replica, opened = DataDir().open_parts()
    stop = results[2].position
    replica.raw.append(0, master.raw.read(0, stop + 50))
    assert whole_end(opened.log) == stop
    assert is_boundary(opened.log, stop)
    assert not is_boundary(opened.log, stop + 1)
    replica.raw.truncate(stop)
    assert replica.raw.end == stop


def test_the_last_whole_record_is_found_behind_queues_and_in_front_of_a_torn_one() -> None:
    master = DataDir().open()
    results = fill(master, 60)
    replica, opened = DataDir().open_parts()
    assert last_record(opened.log, opened.log.last, opened.log.end) is None
    for number in (3, 40, 59):
        stop, last = results[number].position, results[number - 1]
        while replica.raw.end < stop + 50:
            at = replica.raw.end
            replica.raw.append(at, master.raw.read(at, stop + 50 - at))
        assert last_record(opened.log, opened.log.last, opened.log.end) == (
            last.position,
            last.size,
        )
        replica.raw.dispatch()
        assert last_record(opened.log, opened.log.last, opened.log.end) == (
            last.position,
            last.size,
        )
