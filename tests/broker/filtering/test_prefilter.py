from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.broker.filtering.prefilter import (
    PATTERN_TERMS_MAX,
    SAMPLE_COUNT,
    _match_records,
    _record_indexes,
    build_prefilter,
)
from roquet.rules import sql92
from roquet.wire.records.partial_decode import property_finder
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import pack

NAMES = st.sampled_from(["a", "b", "ab", "$a_1"])
TEXTS = st.sampled_from(["", "x", "xy", "5", "99", "true", "\ufffd", "x\ufffd", "\u4e2d", "(.*"])
NUMBERS = st.sampled_from(["0", "5", "9", "98", "100", "5.0", "98.5", "1e2"])
COMPARED = st.one_of(
    st.builds("{} {} '{}'".format, NAMES, st.sampled_from(["=", "<>"]), TEXTS),
    st.builds("{} {} {}".format, NAMES, st.sampled_from(["=", "<>", "<", "<=", ">"]), NUMBERS),
    st.builds("{} BETWEEN {} AND {}".format, NAMES, NUMBERS, NUMBERS),
    st.builds("{} IN ('{}', '{}')".format, NAMES, TEXTS, TEXTS),
    st.builds("{} {} '{}'".format, NAMES, st.sampled_from(["STARTSWITH", "CONTAINS"]), TEXTS),
    st.builds("{} IS {}NULL".format, NAMES, st.sampled_from(["", "NOT "])),
    st.builds("{} = {}".format, NAMES, NAMES),
    st.sampled_from(["TRUE", "FALSE"]),
)
EXPRESSIONS = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)

# As they should be, and as nobody should send them: without values, twice, with bytes of no text.
PIECES = st.one_of(
    st.builds(
        lambda name, value: name + b"\x01" + value,
        st.sampled_from([b"a", b"b", b"ab", b"$a_1", b"xa", b""]),
        st.sampled_from(
            [b"", b"x", b"xy", b"5", b"98", b"99", b"100", b"-5", b"05", b"98.7", b"1e3", b"\xff",
             b"x\xff", "\u4e2d".encode(), b"(.*", b"a\x01x", b"true", b"\x00", b"x\x00"]
        ),
    ),
    st.sampled_from([b"", b"a", b"\x01", b"a\x01\x01x", b"\xed\xa0\x80"]),
)  # fmt: skip
PROPERTIES = st.builds(
    lambda pieces, end: b"\x02".join(pieces) + end,
    st.lists(PIECES, max_size=6),
    st.sampled_from([b"", b"\x02", b"\x02\x02"]),
)


def block_of(properties: list[bytes], body: bytes = b"", sys_flag: int = 0) -> bytes:
    return b"".join(record_of(text, body, sys_flag) for text in properties)


def record_of(properties: bytes, body: bytes = b"", sys_flag: int = 0) -> bytes:
    born, stored = bytes(20 if sys_flag & 16 else 8), bytes(20 if sys_flag & 32 else 8)
    return pack(0, 0, 7, 9, sys_flag, 1, born, 1, stored, 0, 0, body, b"T", properties)


def edges_of(properties: list[bytes], body: bytes = b"", sys_flag: int = 0) -> list[int]:
    sizes = [len(record_of(text, body, sys_flag)) for text in properties]
    return list(accumulate(sizes, initial=0))


@given(
    EXPRESSIONS,
    st.lists(PROPERTIES, min_size=1, max_size=8),
    st.sampled_from([b"", b"\x02a\x01x\x02", b"ab\x015"]),
    st.sampled_from([0, 16, 48]),
)
@example("a = '\ufffd'", [b"a\x01\xff"], b"", 0)
@example("a IS NULL", [b"a\x01x\x02a\x01\x02"], b"", 0)
@example("a IS NULL", [b"b\x01x\x02xa\x01x"], b"\x02a\x01x\x02", 0)
def test_each_message_that_matches_is_among_the_candidates(
    expression: str, properties: list[bytes], body: bytes, sys_flag: int
) -> None:
    try:
        node = sql92.parse(expression)
    except sql92.ExpressionError:
        return  # BETWEEN 5 AND 0
    plain, quick = sql92.matcher(node, sql92.of_mapping), sql92.matcher(node, property_finder)
    matching = {
        number
        for number, text in enumerate(properties)
        if plain(decode_properties(text.decode("utf-8", "replace")))
    }
    assert {number for number, text in enumerate(properties) if quick(text)} == matching
    block, edges = block_of(properties, body, sys_flag), edges_of(properties, body, sys_flag)
    prefilter = build_prefilter(node)
    assert matching <= set(prefilter.candidates(block, edges))
    for alternatives in prefilter.patterns:
        assert matching <= set(_record_indexes(alternatives, block, edges))
    if prefilter.match_pattern is not None:
        assert matching <= set(_match_records(prefilter.match_pattern, block, edges))


def candidates(expression: str, *messages: dict[str, str], body: bytes = b"") -> list[int]:
    properties = [encode_properties(message) for message in messages]
    prefilter = build_prefilter(sql92.parse(expression))
    return list(prefilter.candidates(block_of(properties, body), edges_of(properties, body)))


def test_a_few_messages_of_many_are_found_by_a_rare_sign() -> None:
    messages = [{"a": str(number), "b": "x"} for number in range(1, 100)]
    assert candidates("a >= 98", *messages) == [97, 98]
    assert candidates("a = 42 OR a = 7", *messages) == [6, 41]
    assert candidates("FALSE", *messages) == []


def test_of_two_signs_the_messages_say_which_is_rare() -> None:
    messages = [{"a": str(number), "b": str(number % 10), "c": "x"} for number in range(100)]
    for expression in ("a = 42 AND b = 2", "b = 2 AND a = 42", "b = '2' AND a = 42 AND c = 'x'"):
        numbers = candidates(expression, *messages)
        assert 42 in numbers
        assert len(numbers) <= 10
    # At first only one of them is seen, so that it is the other one that is rare.
    messages = [{"a": "5", "b": "1"}] * SAMPLE_COUNT + [{"a": "1", "b": "5"}] * 10
    assert candidates("a = 5 AND b = 5", *messages) == list(range(SAMPLE_COUNT, SAMPLE_COUNT + 10))
    assert candidates("b = 5 AND a = 5", *messages) == list(range(SAMPLE_COUNT, SAMPLE_COUNT + 10))


def test_what_lacks_a_property_passes_the_screen() -> None:
    messages = [{"a": f"1{n:02d}", **({} if n == 5 else {"b": "x"})} for n in range(100)]
    assert candidates("b IS NULL", *messages) == [5]
    assert candidates("NOT (b IS NOT NULL AND a <> 142)", *messages) == [5, 42]
    assert candidates("b IS NULL OR a = 'y'", *messages, body=b"\x02b\x01y\x02") == [5]


def test_a_sign_that_most_show_is_not_searched() -> None:
    messages = [{"a": "9", "b": f"1{number:02d}"} for number in range(100)]
    expression = "a = 9 AND (b = 107 OR b IS NULL OR c = 'x')"
    assert candidates(expression, *messages) == [7]


def test_where_most_may_match_each_is_looked_at() -> None:
    messages = [{"a": "9"}] * 50
    for expression in ("a = 9", "a <> 5", "b IS NULL", "a = a"):
        assert candidates(expression, *messages) == list(range(50))


def test_very_many_things_are_no_screen() -> None:
    few = " OR ".join(["a IS NULL"] * PATTERN_TERMS_MAX)
    assert build_prefilter(sql92.parse(few)).match_pattern is not None
    assert build_prefilter(sql92.parse(f"{few} OR b IS NULL")).match_pattern is None
    messages = [{"a": "9", "b": "x"}] * 5
    assert candidates(f"{few} OR b IS NULL", *messages) == list(range(5))


def test_names_and_texts_stand_for_themselves() -> None:
    messages = [{"$a_1": "\u4e2d.*"}, {"$a_1": "\u4e2dxx"}, {"xa_1": "\u4e2d.*"}]
    for expression in ("$a_1 = '\u4e2d.*'", "$a_1 = '\u4e2d.*' OR b IS NOT NULL"):
        prefilter = build_prefilter(sql92.parse(expression))
        texts = [encode_properties(message) for message in messages]
        block, edges = block_of(texts), edges_of(texts)
        assert prefilter.match_pattern is not None
        assert _match_records(prefilter.match_pattern, block, edges) == [0]
        assert _record_indexes(prefilter.patterns[0], block, edges) == [0]


@pytest.mark.parametrize("expression", ["a = '\ud800'", "a STARTSWITH '\ud800' OR b IS NULL"])
def test_half_a_character_is_in_no_message(expression: str) -> None:
    assert candidates(expression, {"a": "x", "b": "y"}, *[{"b": "x"}] * 9) == []


def test_a_long_text_without_end_takes_no_long_time() -> None:
    """Of a text of nothing but ends, each is tried once for each thing that is asked for."""
    texts = [b"\x02" * 30_000, b"b\x02" * 15_000, b"a\x015\x02" * 7_000]
    prefilter = build_prefilter(
        sql92.parse("(a = 7 OR b IS NOT NULL) AND (a = 8 OR c IS NOT NULL)")
    )
    assert prefilter.match_pattern is not None
    assert _match_records(prefilter.match_pattern, block_of(texts), edges_of(texts)) == []
