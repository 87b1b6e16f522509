"""A contiguous range holds only the records of the requested queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.conftest import NOW, StoreDirectory, draft

from roquet.store.store import Slice, Store
from roquet.wire.records.record import decode_many

ROOM = 4096


def mixed(store: Store, queue_ids: list[int], size: int = 20) -> None:
    for queue_id in queue_ids:
        store.append(draft(b"x" * size, queue_id=queue_id), NOW)


def places(found: Slice | None) -> list[tuple[int, int]]:
    assert found is not None
    (part,) = found.parts
    records = [(record.queue_id, record.queue_offset) for record in decode_many(bytes(part))]
    assert (len(records), len(part)) == (found.count, found.size)
    return records


def test_records_of_all_queues_come_as_they_lie(store: Store) -> None:
    mixed(store, [0, 1, 2, 0, 1])
    found = store.read_together("T", {0: 0, 1: 0, 2: 0}, bytes_max=ROOM)
    assert places(found) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
    assert found is not None
    assert found.next_offset == 2


def test_a_range_begins_with_the_first_missing_record(store: Store) -> None:
    mixed(store, [0, 1, 0, 1, 0, 1])
    assert places(store.read_together("T", {0: 2, 1: 1}, bytes_max=ROOM)) == [
        (1, 1),
        (0, 2),
        (1, 2),
    ]
    # A queue at its end lacks nothing, but its records may lie between.
    assert places(store.read_together("T", {1: 1, 0: 3}, bytes_max=ROOM)) == [
        (1, 1),
        (0, 2),
        (1, 2),
    ]


def test_the_size_is_a_limit(store: Store) -> None:
    mixed(store, [0, 1] * 5)
    whole = store.read_together("T", {0: 0, 1: 0}, bytes_max=ROOM)
    assert whole is not None
    one = whole.size // 10
    for size, count in ((3 * one, 3), (3 * one - 1, 2), (whole.size, 10)):
        found = store.read_together("T", {0: 0, 1: 0}, bytes_max=size)
        assert len(places(found)) == count
    assert store.read_together("T", {0: 0, 1: 0}, bytes_max=one - 1) is None


def test_records_outside_the_request_are_never_returned(store: Store) -> None:
    mixed(store, [0, 1, 0, 7, 0, 1])
    assert store.read_together("T", {0: 0, 1: 0}, bytes_max=ROOM) is None
    store.append(draft(b"x", topic="other"), NOW)
    mixed(store, [0])
    assert store.read_together("T", {0: 0, 1: 0, 7: 0}, bytes_max=ROOM) is None
    assert store.read_together("T", {0: 0, 5: 0}, bytes_max=ROOM) is None


def test_shorter_stretches_are_tried_up_to_a_strange_record(store: Store) -> None:
    mixed(store, [0, 1] * 4 + [7] + [0, 1] * 4)
    found = store.read_together("T", {0: 0, 1: 0}, bytes_max=ROOM, bytes_least=100)
    assert 2 <= len(places(found)) <= 8
    assert places(store.read_together("T", {0: 4, 1: 4}, bytes_max=ROOM))[0] == (0, 4)


def test_the_leading_queue_gets_on_or_nothing_comes(store: Store) -> None:
    mixed(store, [1] * 20 + [0], size=300)
    assert store.read_together("T", {0: 0, 1: 0}, bytes_max=2000) is None
    assert places(store.read_together("T", {1: 0, 0: 0}, bytes_max=2000))[0] == (1, 0)


def test_known_damage_is_left_to_the_careful_reader(
    store_dir: StoreDirectory, store: Store
) -> None:
    mixed(store, [0, 1] * 5)
    whole = store.read_together("T", {0: 0, 1: 0}, bytes_max=ROOM)
    assert whole is not None
    store.close(NOW)
    store_dir.bytes_at(whole.size // 2, 4)[:] = bytes(4)
    store = store_dir.open()
    while store.scrub(1000):
        pass
    assert len(store.damage) == 1
    assert store.read_together("T", {0: 0, 1: 0}, bytes_max=ROOM) is None
    assert store.read("T", 0, 0).count + store.read("T", 1, 0).count == 9


@given(st.lists(st.integers(0, 3), min_size=1, max_size=150), st.integers(200, ROOM))
def test_reading_on_brings_every_record_once(queue_ids: list[int], size: int) -> None:
    store = StoreDirectory().open()
    mixed(store, queue_ids)
    at, ends = dict.fromkeys(range(4), 0), {q: queue_ids.count(q) for q in range(4)}
    for queue_id in set(range(4)) - set(queue_ids):
        del at[queue_id]
    seen: list[tuple[int, int]] = []
    while unread := [queue_id for queue_id in at if at[queue_id] < ends[queue_id]]:
        for leading in unread:
            order = {leading: at[leading]} | at
            found = store.read_together("T", order, bytes_max=size)
            if found is not None:
                break
        for queue_id, offset in places(found):
            assert offset == at[queue_id]
            at[queue_id] += 1
            seen.append((queue_id, offset))
    assert len(seen) == len(queue_ids)
    assert [queue_id for queue_id, _ in seen] == queue_ids


@pytest.mark.parametrize("count", [0, 65])
def test_too_many_queues_are_not_examined(store: Store, count: int) -> None:
    mixed(store, list(range(count)))
    assert store.read_together("T", dict.fromkeys(range(count), 0), bytes_max=ROOM) is None
