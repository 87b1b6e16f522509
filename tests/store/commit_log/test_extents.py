from hypothesis import given
from hypothesis import strategies as st

from roquet.store.commit_log.extents import LogExtents, merge_adjacent, select_rows

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
    assert merge_adjacent((10, 15, 17), (5, 2, 3)) == ([10], [20])
    assert merge_adjacent((10, 15, 18, 20), (5, 2, 2, 1)) == ([10, 18], [17, 21])
    assert merge_adjacent((7,), (3,)) == ([7], [10])


@given(RECORDS)
def test_extents_hold_each_byte_of_the_records_once(records: list[tuple[int, int]]) -> None:
    positions, sizes = placed(records)
    starts, stops = merge_adjacent(positions, sizes)
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
    pieces = LogExtents()
    for at in range(0, len(sizes), step):
        pieces.add_records(positions[at : at + step], sizes[at : at + step])
    assert (pieces.starts, pieces.stops) == merge_adjacent(positions, sizes)
    assert (pieces.count, pieces.size) == (len(sizes), sum(sizes))


def test_complete_extents_are_extended() -> None:
    pieces = LogExtents()
    pieces.add([0], [10], 2, 10)
    pieces.add([10, 20], [15, 30], 2, 15)
    pieces.add_records((30, 40), (5, 5))
    assert (pieces.starts, pieces.stops) == ([0, 20, 40], [15, 35, 45])
    assert (pieces.count, pieces.size) == (6, 35)


def test_records_are_limited_by_count_and_by_bytes() -> None:
    pieces = LogExtents()
    assert pieces.fitting_count((5, 5, 5), 2, 100) == 2
    assert pieces.fitting_count((5, 5, 5), 9, 10) == 2
    assert pieces.fitting_count((5, 5, 5), 9, 9) == 1
    assert pieces.fitting_count((), 9, 9) == 0


def test_the_first_record_always_fits_and_no_other_one() -> None:
    pieces = LogExtents()
    assert pieces.fitting_count((50, 5), 9, 10) == 1
    pieces.add_records((0,), (50,))
    assert pieces.fitting_count((5,), 9, 10) == 0


def test_all_columns_are_selected_consistently() -> None:
    assert select_rows([True, False, True], (1, 2, 3), range(7, 10)) == [(1, 3), (7, 9)]
