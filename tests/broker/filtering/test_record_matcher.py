import json
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.broker.filtering.record_matcher import RecordMatcher, record_matcher
from roquet.rules import sql92
from roquet.rules.sql92 import conditions_of, matcher, parse
from roquet.wire.records.partial_decode import property_finder
from roquet.wire.records.property_text import encode_properties

OutcomeOfBoth = Callable[[Callable[[], object]], object]

VECTORS = Path(__file__).parents[2] / "vectors" / "sql92.jsonl"


def matcher_of(expression: str) -> RecordMatcher:
    node = parse(expression, compatible=True)
    return record_matcher(conditions_of(node), matcher(node, property_finder))


def matching(expression: str, texts: Sequence[bytes], most: int = 99) -> list[int]:
    edges = list(accumulate(map(len, texts), initial=0))
    return matcher_of(expression)(b"".join(texts), edges[:-1], edges, most)


@pytest.mark.usefixtures("form")
def test_messages_match_as_on_a_genuine_broker() -> None:
    compared = 0
    for line in VECTORS.read_text().splitlines():
        vector = json.loads(line)
        try:
            matches = matcher_of(vector["in"]["expr"])
        except sql92.ExpressionError:
            continue
        if "" in vector["in"]["props"].values():
            continue  # such a property is not found in a stored message
        text = encode_properties(vector["in"]["props"])
        found = matches(text, [0], [0, len(text)], 1)
        assert found == ([0] if vector["out"].get("result") is True else []), vector
        compared += 1
    assert compared > 100


@pytest.mark.usefixtures("form")
def test_the_first_matching_records_are_found() -> None:
    texts = [b"a\x01%d\x02" % number for number in range(10)]
    assert matching("a > 4", texts) == [5, 6, 7, 8, 9]
    assert matching("a > 4", texts, 2) == [5, 6]
    assert matching("a > 4", texts, 0) == []
    assert matching("a > 4", []) == []


@pytest.mark.usefixtures("form")
def test_wrong_places_of_a_damaged_record_are_those_of_a_slice() -> None:
    matches = matcher_of("a = 'x'")
    block = b"a\x01x\x02b\x01y\x02"
    assert matches(block, [-8, 4, 2**40], [0, 4, 8, 2**41], 9) == [0]
    assert matches(block, [0, 0], [0, 2**40], 9) == [0], "as many records as have an end"
    assert matches(block, [5], [0, 3], 9) == []
    assert matcher_of("a IS NULL")(block, [5], [0, 3], 9) == [0]


NAMES = st.sampled_from(["a", "b", "ab"])
NUMBERS = st.one_of(
    st.sampled_from(
        ["0", "5", "42", "999999999", "2147483647", "2147483648", "999999999999999",
         "9007199254740993", "9223372036854775807", "0.1", "5.", ".5", "98.5", "1e2",
         "123456789012.345", "0.000000000000001"]
    ),
    st.integers(0, 2**63 - 1).map(str),
    st.floats(5e-324, 1e308).map(repr),
)  # fmt: skip
VALUES = st.one_of(
    NUMBERS.map(str.encode),
    NUMBERS.map(lambda number: b"-" + number.encode()),
    st.decimals(-(10**9), 10**9, places=4).map(str).map(str.encode),
    st.text("0123456789.", min_size=1, max_size=18).map(str.encode),
    st.sampled_from(
        [b"x", b"xy", b"yx", b"\xff", b"x\xff", b"\xe4\xb8", "\u4e2d".encode(), "x\u4e2d".encode(),
         "\ufffd".encode(), b"NaN", b"-", b".", b"-.", b"+5", b" 5", b"5 ", b"05", b"-0", b"-0.0",
         b"1-2", b"0x10", b"5f", "\u0665".encode(), b"1" * 40, b"0" * 16]
    ),
)  # fmt: skip
WORDS = st.sampled_from(["x", "y", "xy", "\u4e2d", "\ufffd", "5"])
COMPARED = st.one_of(
    st.builds(
        "{} {} {}{}".format, NAMES, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.sampled_from(["", "- "]), NUMBERS,
    ),
    st.builds("{} BETWEEN - {} AND {}".format, NAMES, NUMBERS, NUMBERS),
    st.builds("{} NOT BETWEEN - {} AND {}".format, NAMES, NUMBERS, NUMBERS),
    st.builds(
        "{} {} '{}'".format, NAMES,
        st.sampled_from(["=", "<>", "CONTAINS", "STARTSWITH", "ENDSWITH", "NOT CONTAINS"]), WORDS,
    ),
    st.builds("{} IN ('{}', '{}')".format, NAMES, WORDS, WORDS),
    st.builds("{} IS NULL".format, NAMES),
)  # fmt: skip
EXPRESSIONS = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)
TEXTS = st.lists(
    st.tuples(NAMES, VALUES).map(lambda pair: pair[0].encode() + b"\x01" + pair[1] + b"\x02"),
    max_size=3,
).map(b"".join)


@given(EXPRESSIONS, st.lists(TEXTS, min_size=1, max_size=6), st.integers(0, 6))
@example("a >= 2147483648", [b"a\x01999999999999999\x02", b"a\x019223372036854775808\x02"], 6)
@example("a = 0.3", [b"a\x010.3\x02", b"a\x010.30\x02", b"a\x01.300000000000000\x02"], 6)
@example("NOT (a = 5 OR b = 5) OR a IS NULL", [b"b\x01x\x02", b""], 6)
def test_both_forms_find_the_same_records(
    outcome_of_both: OutcomeOfBoth, expression: str, texts: list[bytes], most: int
) -> None:
    outcome_of_both(lambda: matching(expression, texts, most))
