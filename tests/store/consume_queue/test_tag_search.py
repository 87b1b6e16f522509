from hypothesis import given
from hypothesis import strategies as st

from roquet.store.consume_queue.tag_search import SEARCHED_MAX, find_tagged
from roquet.store.layout import FILLER
from roquet.wire.records.record import ENTRY

CODES = st.one_of(
    st.sampled_from([0, 1, -1, 0x01000000, 0x0100, 0x01010101, 0x7FFF_FFFF, -(2**31)]),
    st.integers(-(2**31), 2**31 - 1),
)


def entries(codes: list[int]) -> memoryview:
    rows = [ENTRY.pack(331 * number, 331, code) for number, code in enumerate(codes)]
    return memoryview(b"".join(rows))


def test_entries_are_found_by_their_code() -> None:
    assert find_tagged(entries([5, 7, 5, -7, 7]), frozenset({5})) == [0, 2]
    assert find_tagged(entries([5, 7, 5, -7, 7]), frozenset({-7, 7})) == [1, 3, 4]
    assert find_tagged(entries([5]), frozenset({6})) == []
    assert find_tagged(entries([]), frozenset({6})) == []
    assert find_tagged(entries([]), frozenset()) == []


def test_many_codes_are_found_like_few() -> None:
    codes = list(range(100, 100 + 2 * SEARCHED_MAX))
    assert find_tagged(entries([*codes, 5, -1]), frozenset(codes)) == list(range(len(codes)))


def test_bytes_across_two_entries_are_no_code() -> None:
    assert find_tagged(entries([0x0102, 0x03040000]), frozenset({0x01020304})) == []
    # A false match begins within the entry in front of the true one.
    assert find_tagged(entries([0x0101, 0x01010101, 5]), frozenset({0x01010101})) == [1]


def test_a_longer_number_with_the_same_low_half_is_given_too() -> None:
    """Delayed messages have a time there, and Apache's extended entries an address."""
    assert find_tagged(entries([5 | 1 << 40, 5, -(1 << 40) + 5]), frozenset({5})) == [0, 1, 2]


def test_fillers_have_no_tag() -> None:
    assert find_tagged(memoryview(FILLER * 2), frozenset({7})) == []
    assert find_tagged(memoryview(FILLER * 2), frozenset({0})) == [0, 1]


@given(st.lists(CODES, max_size=40), st.frozensets(CODES, max_size=2 * SEARCHED_MAX))
def test_a_search_finds_what_a_check_of_each_entry_finds(
    codes: list[int], wanted: frozenset[int]
) -> None:
    assert find_tagged(entries(codes), wanted) == [
        n for n, code in enumerate(codes) if code in wanted
    ]
