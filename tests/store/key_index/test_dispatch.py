from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.store.conftest import parts

from roquet.model.errors import StoreError
from roquet.rules.retention import HOUR_MS, DiskUsage
from roquet.store.key_index.dispatch import Dispatcher
from roquet.store.store import Store
from roquet.wire.records.record import encode_properties

if TYPE_CHECKING:
    from tests.store.conftest import Fill, MakeDraft, StoreDirectory

NOW = 1_700_000_000_000


def test_the_index_follows_the_log_in_pieces(store_dir: "StoreDirectory", fill: "Fill") -> None:
    store = store_dir.open()
    fill(store, 100)
    store._log.unindexed.drop_before(store.end_position)
    assert store.dispatch(30) == 30
    assert 0 < store.indexed_position < store.end_position
    assert len(store.query("T", "U1", count_max=999).positions) == 30
    assert [store.dispatch(30) for _ in range(4)] == [30, 30, 10, 0]
    assert store.indexed_position == store.end_position


def test_the_later_the_index_the_more_it_takes_at_once(
    store_dir: "StoreDirectory", fill: "Fill"
) -> None:
    store = store_dir.open()
    fill(store, 1_000)
    assert [store.dispatch(30) for _ in range(8)] == [500, 250, 125, 62, 31, 30, 2, 0]
    assert store.indexed_position == store.end_position


def test_a_late_index_that_reads_the_log_stays_slow(
    store_dir: "StoreDirectory", fill: "Fill"
) -> None:
    store = store_dir.open()
    fill(store, 1_000)
    store._log.unindexed.take(1)
    assert store.dispatch(30) == 30


def test_rolled_back_messages_are_not_found(
    store_dir: "StoreDirectory", draft: "MakeDraft"
) -> None:
    store = store_dir.open()
    store.append(draft(sys_flag=12), NOW)
    store.append(draft(sys_flag=8), NOW)
    while store.dispatch():
        pass
    assert len(store.query("T", "U1").positions) == 1


def test_a_hole_in_the_log_is_stepped_over(store_dir: "StoreDirectory", fill: "Fill") -> None:
    store = store_dir.open()
    appended = fill(store, 20)
    store_dir.bytes_at(appended[5].position, 60)[:] = bytes(60)
    while store.dispatch(4):
        pass
    assert len(store.query("T", "U1", count_max=99).positions) == 19


def test_what_expired_before_it_was_indexed_is_passed_over(
    store_dir: "StoreDirectory", draft: "MakeDraft"
) -> None:
    store = store_dir.open()
    for day in range(10):
        store.append(draft(b"x" * 7000), NOW + day * 24 * HOUR_MS)
    store.flush_all(NOW)
    store.expire(NOW + 9 * 24 * HOUR_MS, DiskUsage(100, 20))
    assert store.indexed_position < store.begin_position
    while store.dispatch():
        pass
    positions = store.query("T", "U1", count_max=99).positions
    assert positions[0] == store.begin_position
    assert store.indexed_position == store.end_position


def test_a_full_disk_leaves_the_index_behind_until_there_is_room(
    store_dir: "StoreDirectory", fill: "Fill"
) -> None:
    store = store_dir.open()
    fill(store, 60)
    store_dir.files.capacity = sum(store_dir.files.blocks.values()) + 500
    while store.dispatch(10):
        pass
    assert store.indexed_position < store.end_position
    store_dir.files.capacity *= 2
    while store.dispatch(10):
        pass
    assert len(store.query("T", "U1", count_max=99).positions) == 60


def entries(store: Store) -> list[tuple[int, int, int, int]]:
    """All entries of the index, in order of insertion."""
    files = store._index.files
    return [file.entry(number) for file in files for number in range(1, file.next)]


def mixed(store: Store, draft: "MakeDraft", kinds: list[int]) -> None:
    """Messages of all kinds: alone, in a batch, in a transaction, without keys, long ones."""
    for n, kind in enumerate(kinds):
        if kind == 0:
            part = (0, b"body", encode_properties({"UNIQ_KEY": f"B{n}", "KEYS": "x y"}), 0)
            store.append_batch(draft(), parts([part] * 3), NOW + n)
        elif kind in {4, 8, 12}:
            store.append(draft(sys_flag=kind), NOW + n)
        elif kind == 1:
            store.append(draft(properties={"KEYS": "k" * 2000}), NOW + n)
        else:
            store.append(draft(properties={"KEYS": f"a  b {n}"} if kind == 2 else {}), NOW + n)


def next_record(store: Store) -> int:
    """Where the index continues: in front of or behind a blank at the end of a file."""
    end = store.end_position
    found = store._log.walk(store.indexed_position, end, end, check_crc=False)
    return next((at for _, at, _ in found), end)


KINDS = st.lists(st.sampled_from([0, 0, 1, 2, 2, 3, 4, 8, 12]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KINDS, st.integers(1, 50)), max_size=4))
@example([([2, 3, 3], 3)])
@example([([0, 0, 0, 3, 3], 1)])
def test_what_was_just_written_is_indexed_as_if_it_were_read(
    new_store_dir: "type[StoreDirectory]", draft: "MakeDraft", rounds: list[tuple[list[int], int]]
) -> None:
    followed, read = new_store_dir().open(), new_store_dir().open()
    for kinds, count_max in rounds:
        for store in (followed, read):
            mixed(store, draft, kinds)
        read._log.unindexed.drop_before(read.end_position)
        taken = followed.dispatch(count_max)
        assert read.dispatch(taken or count_max) == taken
        assert next_record(followed) == next_record(read)
        assert entries(followed) == entries(read)
    read._log.unindexed.drop_before(read.end_position)
    while followed.dispatch(7):
        pass
    while read.dispatch(7):
        pass
    assert followed.indexed_position == read.indexed_position == followed.end_position
    assert entries(followed) == entries(read)


def test_what_memory_does_not_reach_back_to_is_read_from_the_log(
    store_dir: "StoreDirectory", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.commit_log.unindexed_buffer.BUFFERED_MAX", 10)
    store = store_dir.open()
    appended = fill(store, 95)
    assert 7 < len(store._log.unindexed) <= 10
    while store.dispatch(20):
        pass
    assert [position for _, position, _, _ in entries(store)] == [a.position for a in appended]
    assert not store._log.unindexed


def test_ordinary_messages_are_not_read_again(
    store_dir: "StoreDirectory", draft: "MakeDraft", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_dir.open()
    fill(store, 20)
    part = (0, b"", encode_properties({"UNIQ_KEY": "U1"}), 0)
    store.append_batch(draft(), parts([part] * 20), NOW)
    monkeypatch.setattr(store._log, "walk", None)
    assert store.dispatch(100) == 40
    assert len(store.query("T", "U1", count_max=99).positions) == 40


def test_long_properties_do_not_fill_the_memory(
    store_dir: "StoreDirectory", draft: "MakeDraft"
) -> None:
    store = store_dir.open()
    properties = {"KEYS": "k" * 2000}
    store.append(draft(properties=properties), NOW)
    store.append_batch(draft(), parts([(0, b"", encode_properties(properties), 0)]), NOW)
    assert not store._log.unindexed
    store.dispatch()
    assert len(store.query("T", "k" * 2000).positions) == 2


def test_after_a_kill_the_rest_is_indexed_and_nothing_twice(
    store_dir: "StoreDirectory", fill: "Fill"
) -> None:
    store = store_dir.open()
    appended = fill(store, 30)
    store.dispatch(10)
    store.flush_all(NOW)
    store.dispatch(10)
    store = store_dir.open_after_kill()
    appended += fill(store, 30)
    while store.dispatch(7):
        pass
    assert [position for _, position, _, _ in entries(store)] == [a.position for a in appended]


def test_keys_that_may_be_there_already_are_looked_for(
    store_dir: "StoreDirectory", fill: "Fill"
) -> None:
    store = store_dir.open()
    appended = fill(store, 20)
    store.dispatch(8)
    follower = store._dispatcher
    fill(store, 5)
    again = type(follower)(store._log, store._index, 0)
    while again.step(6):
        pass
    assert len(entries(store)) == len(appended) + 5


def test_a_record_that_cannot_be_indexed_is_told_and_the_others_are(
    store_dir: "StoreDirectory",
    fill: "Fill",
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = store_dir.open()
    appended = fill(store, 20)
    bad, told = appended[5].position, list[tuple[int, Exception]]()
    collect = Dispatcher._collect

    def stumble(dispatcher: Dispatcher, position: int, *others: Any) -> None:
        if position == bad:
            raise OverflowError("odd")
        collect(dispatcher, position, *others)

    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "_hashes", lambda *_: 1 / 0)
        patch.setattr(Dispatcher, "_collect", stumble)
        while store.dispatch(4):
            pass
        assert "cannot be found by its keys" in caplog.text
        store._dispatcher.position = 0
        store._dispatcher._known_until = store.end_position
        store.on_unindexed(lambda *found: told.append(found))
        while store.dispatch(4):
            pass
    assert [position for position, _ in told] == [bad]
    assert store.indexed_position == store.end_position
    assert bad not in store.query("T", "U1", count_max=99).positions
    store.reindex(bad + 1)
    assert bad not in store.query("T", "U1", count_max=99).positions
    store.reindex(bad)
    assert len(store.query("T", "U1", count_max=99).positions) == 20


@pytest.mark.parametrize("error", [StoreError("gone"), OSError(5, "EIO")])
def test_a_disk_that_fails_is_no_fault_of_a_record(
    store_dir: "StoreDirectory", fill: "Fill", monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = store_dir.open()
    fill(store, 3)

    def fail(*_: object) -> None:
        raise error

    for name in ("_step", "_index_one"):
        with monkeypatch.context() as patch:
            patch.setattr(Dispatcher, "_step", lambda *_: 1 / 0)
            patch.setattr(Dispatcher, name, fail)
            with pytest.raises(type(error)):
                store.dispatch()
        assert store.indexed_position == 0


def test_a_full_disk_lets_a_record_wait_that_is_indexed_alone(
    store_dir: "StoreDirectory", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_dir.open()
    fill(store, 1)
    monkeypatch.setattr(Dispatcher, "_step", lambda *_: 1 / 0)
    monkeypatch.setattr(Dispatcher, "_index_one", lambda *_: False)
    assert store.dispatch() == 0
    assert store.indexed_position == 0


def test_where_no_record_is_left_the_index_is_at_the_end(
    store_dir: "StoreDirectory", fill: "Fill", monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_dir.open()
    fill(store, 1)
    monkeypatch.setattr(Dispatcher, "_step", lambda *_: 1 / 0)
    monkeypatch.setattr(Dispatcher, "_first", lambda *_: None)
    assert store.dispatch() == 0
    assert store.indexed_position == store.end_position
