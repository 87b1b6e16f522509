"""Hashes are Java's, one at a time or many, by rows or by columns."""

from hypothesis import example, given
from hypothesis import strategies as st

from roquet.store.key_index.hasher import KeyHasher
from roquet.wire.java_hash import hash_code

NAMES = st.text("ab#é😀\x00z", max_size=30)


def java(topic: str, key: str) -> int:
    """The least number has no absolute value."""
    signed = hash_code(f"{topic}#{key}")
    return abs(signed) if signed != -(2**31) else 0


@given(NAMES, st.lists(NAMES, max_size=5))
def test_hashes_are_javas_made_not_negative(topic: str, keys: list[str]) -> None:
    hasher = KeyHasher()
    for key in keys:
        assert hasher(topic.encode(), key.encode()) == java(topic, key)


def test_hashes_stay_right_where_beginnings_are_known() -> None:
    hasher = KeyHasher()
    for topic in ("T", "T#7F", "Flüge"):
        for n in range(3_000):
            for key in (f"7F0000015AB4{n:016X}", f"{n}", f"é{n}", f"{n}é", f"7F#{n:X}"):
                signed = hash_code(f"{topic}#{key}")
                assert hasher(topic.encode(), key.encode()) == abs(signed)


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
    assert len(hasher._stems) <= 4096


@given(st.lists(st.tuples(NAMES, NAMES), max_size=9))
def test_many_hashes_are_those_of_each(found: list[tuple[str, str]]) -> None:
    hasher = KeyHasher()
    for _ in "12":
        hashes = hasher.of_all([t.encode() for t, _ in found], [k.encode() for _, k in found])
        assert hashes == [java(topic, key) for topic, key in found]


ASCII = st.characters(max_codepoint=127)


@given(NAMES, st.integers(1, 40).flatmap(
    lambda size: st.lists(st.text(ASCII, min_size=size, max_size=size), min_size=1, max_size=30)
))  # fmt: skip
@example("T", [f"7F0000015AB4{n:020X}" for n in range(1000, 1300)])
@example("T", ["hash"] * 9)
def test_hashes_of_columns_are_those_of_the_keys(topic: str, keys: list[str]) -> None:
    columns = [bytes(column) for column in zip(*(key.encode() for key in keys), strict=True)]
    assert KeyHasher().of_columns(topic.encode(), columns) == [java(topic, key) for key in keys]


def test_the_least_number_counts_as_zero_in_columns() -> None:
    found = "#polygenelubricants"  # whose beginning "" is a topic of no characters
    keys = [found[1:], "polygenelubricantt"]
    columns = [bytes(column) for column in zip(*(key.encode() for key in keys), strict=True)]
    assert KeyHasher().of_columns(b"", columns) == [java("", key) for key in keys]


def test_a_key_that_is_not_utf_8_is_read_as_java_does_it() -> None:
    assert KeyHasher()(b"T", b"a\xffb") == java("T", "a\ufffdb")
