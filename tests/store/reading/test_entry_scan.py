from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.conftest import NOW, DataDir, draft

from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.reading import entry_scan
from roquet.store.store import Slice, Store
from roquet.wire.records.record import decode_many


def queue_of(codes: list[int], file_entries: int = 10_000) -> ConsumeQueue:
    """A queue of adjacent records, 5 bytes each."""
    queues = ConsumeQueues(MapPool(MemoryFiles(), 9), Path("/cq"), file_entries, 6_000)
    queue = queues.obtain("T", 0)
    for number, code in enumerate(codes):
        if queue.end >= queue.capacity:
            queue.reserve()
        queue.put(5 * number, 5, code)
    return queue


def steps(rows: entry_scan.EntryScan, left: int = 1_000) -> list[list[int]]:
    """The offsets that each step gives."""
    found = []
    while rows.offset < rows.stop:
        offsets, positions, sizes = rows.next_entries(left)
        assert list(positions) == [5 * offset for offset in offsets]
        assert list(sizes) == [5] * len(offsets)
        found.append(list(offsets))
    return found


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=300),
    st.frozensets(st.integers(0, 9)),
    st.integers(0, 50),
    st.integers(7, 400),
    st.integers(1, 500),
)
def test_each_entry_that_is_wanted_is_found_once(
    codes: list[int], wanted: frozenset[int], at: int, file_entries: int, left: int
) -> None:
    queue = queue_of(codes, file_entries)
    expected = [n for n, code in enumerate(codes) if n >= at and code in wanted]
    for way in (wanted, wanted.__contains__):
        rows = entry_scan.EntryScan(queue, at, max(at, len(codes)), way)
        assert not rows.wants_all
        assert list(chain(*steps(rows, left))) == expected
    rows = entry_scan.EntryScan(queue, at, max(at, len(codes)), None)
    assert rows.wants_all
    assert list(chain(*steps(rows, left))) == list(range(at, len(codes)))


def looked_at(codes: list[int], left: int) -> list[int]:
    rows, ends = entry_scan.EntryScan(queue_of(codes), 0, len(codes), frozenset({1})), [0]
    while rows.offset < rows.stop:
        rows.next_entries(left)
        ends.append(rows.offset)
    return [end - begin for begin, end in pairwise(ends)]


def test_a_scan_without_matches_searches_ever_more_entries_at_once() -> None:
    counts = looked_at([0] * 9_000, 32)
    assert counts[0] == entry_scan.SEARCH_MIN
    assert max(counts) == entry_scan.SEARCH_MAX
    assert len(counts) == 5


def test_no_more_are_searched_than_are_likely_to_be_needed() -> None:
    assert max(looked_at([0] * 9 + [1] + [0] * 1_990, 10_000)) > 1_000
    assert max(looked_at(([0] * 9 + [1]) * 200, 3)) <= entry_scan.SEARCH_MIN


def test_a_scan_with_many_matches_examines_entries_one_by_one() -> None:
    counts = looked_at(([0] * (entry_scan.DENSE_RATIO - 1) + [1]) * 200, 50)
    assert counts[:2] == [entry_scan.SEARCH_MIN, 50]


def test_what_is_asked_for_each_code_may_be_asked_for_a_few_more() -> None:
    asked: list[int] = []

    def is_wanted(code: int) -> bool:
        asked.append(code)
        return True

    rows = entry_scan.EntryScan(queue_of(list(range(100))), 0, 100, is_wanted)
    rows.next_entries(1)
    assert asked == list(range(rows.offset))
    with pytest.raises(AssertionError, match="has no offset"):
        entry_scan.EntryScan(queue_of([]), 5, 6, None).next_entries(1)


RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1)
"""Gap in front of a record, and its size."""


def placed(records: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    positions, sizes, at = [], [], 0
    for gap, size in records:
        positions.append(at + gap)
        sizes.append(size)
        at += gap + size
    return positions, sizes


def test_adjacent_records_are_one_extent() -> None:
    assert entry_scan.merge_adjacent((10, 15, 17), (5, 2, 3)) == ([10], [20])
    assert entry_scan.merge_adjacent((10, 15, 18, 20), (5, 2, 2, 1)) == ([10, 18], [17, 21])
    assert entry_scan.merge_adjacent((7,), (3,)) == ([7], [10])


@given(RECORDS)
def test_extents_hold_each_byte_of_the_records_once(records: list[tuple[int, int]]) -> None:
    positions, sizes = placed(records)
    starts, stops = entry_scan.merge_adjacent(positions, sizes)
    held = [at for piece in zip(starts, stops, strict=True) for at in range(*piece)]
    assert held == [
        at
        for first, size in zip(positions, sizes, strict=True)
        for at in range(first, first + size)
    ]
    assert all(stop < start for stop, start in zip(stops, starts[1:], strict=False))


@given(RECORDS, st.integers(1, 5))
def test_extents_do_not_depend_on_how_many_records_come_at_once(
    records: list[tuple[int, int]], step: int
) -> None:
    positions, sizes = placed(records)
    pieces = entry_scan.LogExtents()
    for at in range(0, len(sizes), step):
        pieces.add_records(positions[at : at + step], sizes[at : at + step])
    assert (pieces.starts, pieces.stops) == entry_scan.merge_adjacent(positions, sizes)
    assert (pieces.count, pieces.size) == (len(sizes), sum(sizes))


def test_complete_extents_are_extended() -> None:
    pieces = entry_scan.LogExtents()
    pieces.add([0], [10], 2, 10)
    pieces.add([10, 20], [15, 30], 2, 15)
    pieces.add_records((30, 40), (5, 5))
    assert (pieces.starts, pieces.stops) == ([0, 20, 40], [15, 35, 45])
    assert (pieces.count, pieces.size) == (6, 35)


def test_records_are_limited_by_count_and_by_bytes() -> None:
    pieces = entry_scan.LogExtents()
    assert pieces.fitting_count((5, 5, 5), 2, 100) == 2
    assert pieces.fitting_count((5, 5, 5), 9, 10) == 2
    assert pieces.fitting_count((5, 5, 5), 9, 9) == 1
    assert pieces.fitting_count((), 9, 9) == 0


def test_the_first_record_always_fits_and_no_other_one() -> None:
    pieces = entry_scan.LogExtents()
    assert pieces.fitting_count((50, 5), 9, 10) == 1
    pieces.add_records((0,), (50,))
    assert pieces.fitting_count((5,), 9, 10) == 0


def test_all_columns_are_selected_consistently() -> None:
    assert entry_scan.select_rows([True, False, True], (1, 2, 3), range(7, 10)) == [(1, 3), (7, 9)]


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


def test_known_damage_is_left_to_the_careful_reader(store_dir: DataDir, store: Store) -> None:
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
    store = DataDir().open()
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
