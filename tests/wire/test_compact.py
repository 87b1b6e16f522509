"""Pairs of the compact header: the loop over them is the oracle of the fast path."""

import struct

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.model.errors import MessageIllegal
from roquet.wire.compact import (
    PAIRS_MAX,
    encode_compact,
    pack_pairs,
    read_pairs,
    walk_pairs,
    write_pairs,
)
from roquet.wire.frame import HEADER_SIZE_MAX, header_end
from roquet.wire.records.speedups import extension

pytestmark = pytest.mark.usefixtures("form")

ASCII = st.characters(max_codepoint=127)
ANY = st.characters(codec="utf-8") | st.sampled_from("\0\1\5\u0651\u068f")
"""The last two are Arabic: their bytes are text markers in MessagePack."""

texts = (
    st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=12)
    | st.text(ASCII, max_size=5)
    | st.text(ANY, max_size=5)
    | st.text(ASCII, min_size=120, max_size=300)
)
maps = st.dictionaries(texts, texts, max_size=8)
plain = st.text(st.characters(codec="utf-8", min_codepoint=1), min_size=1, max_size=9)


def read(pairs: bytes) -> dict[str, str]:
    fields = read_pairs(pairs)
    assert msgspec.msgpack.decode(fields.packed) == fields.as_dict()
    return fields.as_dict()


def outcome(function: object, pairs: bytes) -> dict[str, str] | None:
    try:
        return function(pairs)  # type: ignore[operator, no-any-return]
    except (struct.error, UnicodeDecodeError):
        return None


@given(maps)
@example({"a": "", "b": "x" * 256, "c": "y" * 256})
@example({"": "x" * 70_000})
@example({"a": "\0", "b": "\0\0"})
@example({"a": "x\0\0", "b" * 144: "c"})
@example({"a" * 300: "b" * 255, "c": "d" * 65_535})
def test_any_pairs_are_read_as_they_were_written(given_: dict[str, str]) -> None:
    pairs = write_pairs(given_)
    assert read(pairs) == walk_pairs(pairs)
    assert walk_pairs(pairs) == {name: value for name, value in given_.items() if name and value}


@given(st.dictionaries(plain, plain, max_size=20))
def test_ordinary_pairs_are_packed(given_: dict[str, str]) -> None:
    assert read(write_pairs(given_)) == given_


@given(st.dictionaries(plain, plain | st.just("v" * 200), min_size=1, max_size=5), st.data())
def test_a_damaged_byte_is_seen_as_the_loop_sees_it(
    given_: dict[str, str], data: st.DataObject
) -> None:
    pairs = bytearray(write_pairs(given_))
    at = data.draw(st.integers(0, len(pairs) - 1))
    pairs[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 3, 0xD9, 0xDA, 0xA1]))
    assert outcome(read, bytes(pairs)) == outcome(walk_pairs, bytes(pairs))


@given(maps, st.data())
def test_pairs_cut_short_are_seen_as_the_loop_sees_them(
    given_: dict[str, str], data: st.DataObject
) -> None:
    pairs = write_pairs(given_)
    pairs = pairs[: data.draw(st.integers(0, len(pairs)))]
    assert outcome(read, pairs) == outcome(walk_pairs, pairs)


pieces = st.sampled_from(
    [
        b"\0",
        b"\0\0",
        b"\0\0\0",
        b"\0\1a",
        b"\0\0\0\1",
        b"\1",
        b"\2",
        b"b",
        b"\xd9",
        b"\xa1a",
        b"\x80",
    ]
)


@given(st.lists(pieces, max_size=12).map(b"".join))
def test_packed_pairs_agree_with_the_loop(pairs: bytes) -> None:
    expected = outcome(walk_pairs, pairs)
    if expected is not None:
        assert read(pairs) == expected


def test_more_pairs_than_a_client_sends_are_read_as_well() -> None:
    many = {f"name-{n}": "x" for n in range(1_000)}
    assert read(write_pairs(many)) == many


def test_the_last_of_two_equal_names_counts() -> None:
    assert read(write_pairs({"a": "x"}) + write_pairs({"a": "y"})) == {"a": "y"}


def test_a_name_whose_length_takes_in_what_follows_is_no_name() -> None:
    for pairs in (b"\0\3k\0\0\0\1v", b"\0\1k\0\0\0\3v\0\1l\0\0\0\1w"):
        with pytest.raises(struct.error):
            read_pairs(pairs)


def test_a_length_of_a_name_above_32767_is_negative_to_both_forms() -> None:
    for size in (32_767, 32_768, 65_535):
        pairs = size.to_bytes(2, "big") + b"n" * size + b"\0\0\0\1v"
        if size == 32_767:
            assert read(pairs) == {"n" * size: "v"}
        else:
            for form in (pack_pairs, walk_pairs):
                with pytest.raises(struct.error):
                    form(pairs)


def test_a_frame_is_laid_out_as_drawn() -> None:
    whole = encode_compact(-2, 1, 5, (12, 513), "no", write_pairs({"a": "xyz"}), b"body")
    assert whole == (
        b"\0\0\0\x29\1\0\0\x21"
        b"\xff\xfe\x0c\x02\x01\0\0\0\5\0\0\0\1"
        b"\0\0\0\2no"
        b"\0\0\0\x0a\0\1a\0\0\0\3xyz"
        b"body"
    )
    assert whole[4:][header_end(whole[4:]) :] == b"body"


def test_a_header_that_its_length_cannot_say_is_never_sent() -> None:
    with pytest.raises(MessageIllegal, match=str(HEADER_SIZE_MAX)):
        encode_compact(0, 0, 0, (12, 513), None, bytes(HEADER_SIZE_MAX), b"")


def test_a_header_of_zeros_is_refused_before_it_is_walked_to_its_end() -> None:
    with pytest.raises(struct.error, match="more than 1024 fields"):
        read_pairs(bytes(6 * (PAIRS_MAX + 1)))
    assert read(bytes(6 * PAIRS_MAX)) == {}


@pytest.mark.skipif(extension is None, reason="the compiled forms are not built: make install")
@pytest.mark.parametrize("size", [1, 127, 128, 200, 255, 256, 500, 65_535])
def test_ascii_values_of_any_length_are_packed_compiled(size: int) -> None:
    packed = extension.pack_pairs(write_pairs({"i": "x" * size}))
    assert msgspec.msgpack.decode(packed) == {"i": "x" * size}
