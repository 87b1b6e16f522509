from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.reading.entry_scan import DENSE_RATIO, SEARCH_MAX, SEARCH_MIN, EntryScan


def queue_of(codes: list[int], file_entries: int = 10_000) -> ConsumeQueue:
    """A queue of adjacent records, 5 bytes each."""
    queues = ConsumeQueues(MapPool(MemoryFiles(), 9), Path("/cq"), file_entries, 6_000)
    queue = queues.obtain("T", 0)
    for number, code in enumerate(codes):
        if queue.end >= queue.capacity:
            queue.reserve()
        queue.put(5 * number, 5, code)
    return queue


def steps(rows: EntryScan, left: int = 1_000) -> list[list[int]]:
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
        rows = EntryScan(queue, at, max(at, len(codes)), way)
        assert not rows.wants_all
        assert list(chain(*steps(rows, left))) == expected
    rows = EntryScan(queue, at, max(at, len(codes)), None)
    assert rows.wants_all
    assert list(chain(*steps(rows, left))) == list(range(at, len(codes)))


def looked_at(codes: list[int], left: int) -> list[int]:
    rows, ends = EntryScan(queue_of(codes), 0, len(codes), frozenset({1})), [0]
    while rows.offset < rows.stop:
        rows.next_entries(left)
        ends.append(rows.offset)
    return [end - begin for begin, end in pairwise(ends)]


def test_a_scan_without_matches_searches_ever_more_entries_at_once() -> None:
    counts = looked_at([0] * 9_000, 32)
    assert counts[0] == SEARCH_MIN
    assert max(counts) == SEARCH_MAX
    assert len(counts) == 5


def test_no_more_are_searched_than_are_likely_to_be_needed() -> None:
    assert max(looked_at([0] * 9 + [1] + [0] * 1_990, 10_000)) > 1_000
    assert max(looked_at(([0] * 9 + [1]) * 200, 3)) <= SEARCH_MIN


def test_a_scan_with_many_matches_examines_entries_one_by_one() -> None:
    counts = looked_at(([0] * (DENSE_RATIO - 1) + [1]) * 200, 50)
    assert counts[:2] == [SEARCH_MIN, 50]


def test_what_is_asked_for_each_code_may_be_asked_for_a_few_more() -> None:
    asked: list[int] = []

    def is_wanted(code: int) -> bool:
        asked.append(code)
        return True

    rows = EntryScan(queue_of(list(range(100))), 0, 100, is_wanted)
    rows.next_entries(1)
    assert asked == list(range(rows.offset))
    with pytest.raises(AssertionError, match="has no offset"):
        EntryScan(queue_of([]), 5, 6, None).next_entries(1)
