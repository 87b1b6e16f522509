from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from roquet.store.dispatch import KeyHasher
from roquet.wire.java import hash_code

if TYPE_CHECKING:
    from tests.store.conftest import Fill, MakeDraft, Shelf

NOW = 1_700_000_000_000
NAMES = st.text("ab#é😀\x00z", max_size=30)


@given(NAMES, st.lists(NAMES, max_size=5))
def test_hashes_are_javas_made_not_negative(topic: str, keys: list[str]) -> None:
    hasher = KeyHasher()
    for key in keys:
        signed = hash_code(f"{topic}#{key}")
        assert hasher(topic.encode(), key.encode()) == (abs(signed) if signed != -(2**31) else 0)


def test_the_least_number_counts_as_zero() -> None:
    assert hash_code("polygenelubricants") == -(2**31)
    key = next(
        f"{a}{b}" for a in ("", *map(chr, range(33, 127))) for b in map(chr, range(33, 127))
        if hash_code(f"T#{a}{b}") < 0
    ) if any(hash_code(f"T#{chr(c)}") < 0 for c in range(33, 127)) else "x" * 9  # fmt: skip
    assert KeyHasher()(b"T", key.encode()) == abs(hash_code(f"T#{key}"))


def test_many_beginnings_do_not_fill_the_memory() -> None:
    hasher = KeyHasher()
    for n in range(9000):
        hasher(b"T", b"%d-and-what-follows" % n)
    assert len(hasher._beginnings) <= 4096


def test_the_index_follows_the_log_in_pieces(shelf: "Shelf", fill: "Fill") -> None:
    store = shelf.open()
    fill(store, 100)
    assert store.dispatch(30) == 30
    assert 0 < store.indexed_position < store.end_position
    assert len(store.query("T", "U1", count_max=999).positions) == 30
    assert [store.dispatch(30) for _ in range(4)] == [30, 30, 10, 0]
    assert store.indexed_position == store.end_position


def test_rolled_back_messages_are_not_found(shelf: "Shelf", draft: "MakeDraft") -> None:
    store = shelf.open()
    store.append(draft(sys_flag=12), NOW)
    store.append(draft(sys_flag=8), NOW)
    while store.dispatch():
        pass
    assert len(store.query("T", "U1").positions) == 1


def test_a_hole_in_the_log_is_stepped_over(shelf: "Shelf", fill: "Fill") -> None:
    store = shelf.open()
    appended = fill(store, 20)
    shelf.bytes_at(appended[5].position, 60)[:] = bytes(60)
    while store.dispatch(4):
        pass
    assert len(store.query("T", "U1", count_max=99).positions) == 19


def test_a_full_disk_leaves_the_index_behind_until_there_is_room(
    shelf: "Shelf", fill: "Fill"
) -> None:
    store = shelf.open()
    fill(store, 60)
    shelf.files.room = sum(shelf.files.blocks.values()) + 500
    while store.dispatch(10):
        pass
    assert store.indexed_position < store.end_position
    shelf.files.room *= 2
    while store.dispatch(10):
        pass
    assert len(store.query("T", "U1", count_max=99).positions) == 60
