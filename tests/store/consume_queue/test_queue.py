from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import StoreFull
from roquet.store.consume_queue.entries import ConsumeQueueEntry, EntryExtents
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.layout import FILLER_SIZE
from roquet.wire.records.record import ENTRY


def make_queues(files: MemoryFiles | None = None) -> ConsumeQueues:
    return ConsumeQueues(MapPool(files or MemoryFiles(), 9), Path("/cq"), 10, 60)


@pytest.fixture
def queues() -> ConsumeQueues:
    return make_queues()


def put(queue: ConsumeQueue, *positions: int, size: int = 5) -> None:
    for position in positions:
        if queue.end >= queue.capacity:
            queue.reserve()
        queue.put(position, size, -position)


def reopened(queues: ConsumeQueues) -> ConsumeQueues:
    again = make_queues(cast("MemoryFiles", queues.files))
    for topic, queue_id in queues.names():
        again.add(topic, queue_id)
    return again


@given(st.integers(0, 45))
def test_entries_read_back_across_files_and_processes(count: int) -> None:
    queues = make_queues()
    put(queues.obtain("T", 0), *range(100, 100 + count))
    queue = reopened(queues).obtain("T", 0)
    assert (queue.begin, queue.end) == (0, count)
    found: list[ConsumeQueueEntry] = []
    while len(found) < count:
        found += queue.entries(len(found), 99)
    assert found == [(n, 5, -n) for n in range(100, 100 + count)]
    assert [queue.entry(n) for n in range(count)] == found


def test_entries_with_some_codes_are_found_up_to_the_end_of_a_file(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, *range(100, 112))
    assert queue.find_tagged(2, 6, frozenset({-101, -103, -107})) == (6, [(3, 103, 5), (7, 107, 5)])
    assert queue.find_tagged(8, 9, frozenset({-109, -110})) == (2, [(9, 109, 5)])
    assert queue.find_tagged(10, 2, frozenset({-110})) == (2, [(10, 110, 5)])


def test_a_code_that_only_ends_like_a_wanted_one_is_another(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, 5, 5 + (1 << 32))
    assert queue.find_tagged(0, 2, frozenset({-5})) == (2, [(0, 5, 5)])


def test_columns_of_entries_end_with_their_file(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, 100, 105, 120)
    assert queue.columns(0, 2) == ([100, 105], [5, 5], [-100, -105])
    put(queue, *range(9))
    assert queue.columns(8, 9) == ([5, 6], [5, 5], [-5, -6])


def test_extents_of_entries_are_ranges_of_the_log(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, 100, 105, 120)
    assert queue.extents(0, 3) == EntryExtents(3, 15, [100, 120], [110, 125])
    assert queue.extents(1, 9) == EntryExtents(2, 10, [105, 120], [110, 125])
    assert queue.extents(0, 3, 3, least=1) == EntryExtents(1, 5, [100], [105])


def test_adjacent_records_have_one_range_if_their_entries_are_in_one_file(
    queues: ConsumeQueues,
) -> None:
    queue = queues.obtain("T", 0)
    assert queue.adjacent_range(0, 1, 99) is None
    put(queue, *range(100, 160, 5))
    assert queue.adjacent_range(1, 3, 99) == (105, 120)
    assert queue.adjacent_range(8, 4, 99) is None
    assert reopened(queues).obtain("T", 0).adjacent_range(1, 3, 99) is None


def test_room_for_many_crosses_files_and_is_all_or_an_error() -> None:
    files = MemoryFiles(capacity=450)
    queue = make_queues(files).obtain("T", 0)
    queue.reserve(15)
    files.capacity = sum(files.blocks.values())
    put(queue, *range(15))
    with pytest.raises(StoreFull):
        queue.reserve(20)
    assert (queue.end, queue.entry(14)) == (15, (14, 5, -14))


def test_the_first_offset_at_a_position(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, 0, 10, 20, 30)
    assert [queue.offset_of(p) for p in (0, 1, 10, 25, 31)] == [0, 1, 1, 3, 4]


def test_the_least_offset_follows_the_log(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, 0, 10, 20, 30)
    assert [queue.min_offset(begin) for begin in (0, 15, 99)] == [0, 2, 4]


def test_a_queue_may_begin_inside_a_file(queues: ConsumeQueues) -> None:
    """Apache RocketMQ fills the beginning with entries without a message."""
    queue = queues.obtain("T", 0)
    queue.end = 13
    put(queue, 0, 500)
    queue = reopened(queues).obtain("T", 0)
    assert (queue.begin, queue.end, queue.min_offset(0)) == (10, 15, 13)
    assert queue.entry(12) == (0, FILLER_SIZE, 0)


def test_settling_leaves_no_entry_behind(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, *range(25))
    assert queue.truncate(7)
    assert not queue.truncate(7)
    assert reopened(queues).obtain("T", 0).end == 7
    put(queue, 99)
    assert reopened(queues).obtain("T", 0).end == 8
    assert queue.truncate(0)
    assert reopened(queues).obtain("T", 0).end == 0


def test_settling_at_a_files_end_goes_on_in_the_next(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, *range(25))
    queue.truncate(10)
    put(queue, 77)
    assert queue.entry(10) == (77, 5, -77)


def test_an_entry_may_be_set_right(queues: ConsumeQueues) -> None:
    queue = queues.obtain("T", 0)
    put(queue, 1, 2, 3)
    queue.overwrite(1, 8, 9, 10)
    assert list(queue.entries(0, 9)) == [(1, 5, -1), (8, 9, 10), (3, 5, -3)]


def crowded(maps_max: int = 1) -> ConsumeQueues:
    """Queues of which only a few can be mapped."""
    return ConsumeQueues(MapPool(MemoryFiles(), maps_max), Path("/cq"), 10, 60)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 13)), max_size=12), st.randoms())
def test_entries_are_the_same_with_and_without_a_map(
    runs: list[tuple[int, int]], random: Random
) -> None:
    queues = crowded()
    wanted: dict[int, list[ConsumeQueueEntry]] = {0: [], 1: [], 2: []}
    for number, (queue_id, count) in enumerate(runs):
        queue, held = queues.obtain("T", queue_id), wanted[queue_id]
        new = [(number * 100 + n, 5, -n) for n in range(count)]
        if count and random.random() < 0.5:
            if queue.end + count > queue.capacity:
                queue.reserve(count)
            queue.put_many(b"".join([ENTRY.pack(*entry) for entry in new]))
        else:
            for position, size, code in new:
                if queue.end >= queue.capacity:
                    queue.reserve()
                queue.put(position, size, code)
        held += new
        if held and random.random() < 0.5:
            at = random.randrange(len(held))
            assert queue.entry(at) == held[at]
    for queue_id, held in wanted.items():
        queue = queues.obtain("T", queue_id)
        found = [queue.entry(n) for n in range(queue.end)]
        assert found == held
