import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.store.consume_queue import entries as store
from roquet.store.layout import ENTRY_SIZE, FILLER
from roquet.wire.records.record import ENTRY

pytestmark = pytest.mark.usefixtures("form")


def encoded(*rows: tuple[int, int, int]) -> bytes:
    return b"".join([ENTRY.pack(*row) for row in rows])


@given(st.integers(1, 70), st.data())
def test_the_end_of_a_queue_is_found_wherever_it_is(capacity: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, capacity))
    view = memoryview(bytearray(capacity * ENTRY_SIZE))
    for offset in range(count):
        ENTRY.pack_into(view, offset * ENTRY_SIZE, offset * 100, 100, 0)
    assert store.count_entries(view, capacity) == count


def test_entries_are_read_as_columns() -> None:
    entries = encoded((5 << 32, 5, -1), (105, 7, 2**40))
    assert store.entry_columns(memoryview(entries)) == ([5 << 32, 105], [5, 7], [-1, 2**40])
    assert store.entry_columns(b"") == ([], [], [])


def test_sizes_of_entries_add_up() -> None:
    assert store.sum_sizes(memoryview(encoded((0, 5, 0), (9, 2**31 - 1, 0)))) == 2**31 + 4
    assert store.sum_sizes(b"") == 0


def test_adjacent_records_share_one_extent() -> None:
    entries = encoded((100, 5, 0), (105, 7, 0), (120, 3, 0), (123, 4, 0))
    assert store.entry_extents(entries, 99) == store.EntryExtents(4, 19, [100, 120], [112, 127])
    assert store.entry_extents(b"", 99, least=1) == store.EntryExtents(0, 0, [], [])


def test_extents_end_with_the_last_record_that_fits() -> None:
    entries = encoded((100, 5, 0), (105, 7, 0), (120, 3, 0))
    assert store.entry_extents(entries, 14) == store.EntryExtents(2, 12, [100], [112])
    assert store.entry_extents(entries, 4) == store.EntryExtents(0, 0, [], [])
    assert store.entry_extents(entries, 4, least=1) == store.EntryExtents(1, 5, [100], [105])


def test_extents_end_in_front_of_an_entry_without_a_record() -> None:
    entries = encoded((100, 5, 0)) + FILLER + encoded((105, 7, 0))
    assert store.entry_extents(entries, 99) == store.EntryExtents(1, 5, [100], [105])
    assert store.entry_extents(FILLER, 2**40, least=1) == store.EntryExtents(0, 0, [], [])


def test_records_that_follow_each_other_have_one_range() -> None:
    entries = encoded((9, 1, 0), (100, 5, 0), (105, 7, 0), (120, 3, 0))
    assert store.adjacent_range(entries, ENTRY_SIZE, 2, 12) == (100, 112)
    assert store.adjacent_range(memoryview(entries), ENTRY_SIZE, 1, 5) == (100, 105)


@pytest.mark.parametrize(
    ("start", "count", "size_max"), [(1, 3, 99), (0, 2, 99), (1, 2, 11), (1, 0, 99), (3, 2, 99)]
)
def test_other_records_have_no_range_of_their_own(start: int, count: int, size_max: int) -> None:
    entries = encoded((9, 1, 0), (100, 5, 0), (105, 7, 0), (120, 3, 0))
    assert store.adjacent_range(entries, start * ENTRY_SIZE, count, size_max) is None
    assert store.adjacent_range(FILLER, 0, 1, 2**40) is None


def test_a_damaged_entry_is_taken_as_it_is() -> None:
    assert store.adjacent_range(encoded((-5, 3, 0)), 0, 1, 99) == (-5, -2)


CODES = st.one_of(
    st.sampled_from([0, 1, -1, 0x01000000, 0x0100, 0x01010101, 0x7FFF_FFFF, -(2**31)]),
    st.integers(-(2**31), 2**31 - 1),
)


def entries(codes: list[int]) -> memoryview:
    rows = [ENTRY.pack(331 * number, 331, code) for number, code in enumerate(codes)]
    return memoryview(b"".join(rows))


def test_entries_are_found_by_their_code() -> None:
    assert store.find_tagged(entries([5, 7, 5, -7, 7]), frozenset({5})) == [0, 2]
    assert store.find_tagged(entries([5, 7, 5, -7, 7]), frozenset({-7, 7})) == [1, 3, 4]
    assert store.find_tagged(entries([5]), frozenset({6})) == []
    assert store.find_tagged(entries([]), frozenset({6})) == []
    assert store.find_tagged(entries([]), frozenset()) == []


def test_many_codes_are_found_like_few() -> None:
    codes = list(range(100, 100 + 2 * store.SEARCHED_MAX))
    assert store.find_tagged(entries([*codes, 5, -1]), frozenset(codes)) == list(range(len(codes)))


def test_bytes_across_two_entries_are_no_code() -> None:
    assert store.find_tagged(entries([0x0102, 0x03040000]), frozenset({0x01020304})) == []
    # A false match begins within the entry in front of the true one.
    assert store.find_tagged(entries([0x0101, 0x01010101, 5]), frozenset({0x01010101})) == [1]


def test_a_longer_number_with_the_same_low_half_is_given_too() -> None:
    """Delayed messages have a time there, and Apache's extended entries an address."""
    assert store.find_tagged(entries([5 | 1 << 40, 5, -(1 << 40) + 5]), frozenset({5})) == [0, 1, 2]


def test_fillers_have_no_tag() -> None:
    assert store.find_tagged(memoryview(FILLER * 2), frozenset({7})) == []
    assert store.find_tagged(memoryview(FILLER * 2), frozenset({0})) == [0, 1]


@given(st.lists(CODES, max_size=40), st.frozensets(CODES, max_size=2 * store.SEARCHED_MAX))
def test_a_search_finds_what_a_check_of_each_entry_finds(
    codes: list[int], wanted: frozenset[int]
) -> None:
    assert store.find_tagged(entries(codes), wanted) == [
        n for n, code in enumerate(codes) if code in wanted
    ]
