import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import FieldError
from roquet.wire.fastjson.parser import NESTING_MAX, Pairs, parse, quote_keys

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)  # fmt: skip


def plainly(value: object) -> Any:
    """Pairs as a dict."""
    if isinstance(value, Pairs):
        return {key: plainly(item) for key, item in value}
    return [plainly(item) for item in value] if isinstance(value, list) else value


@given(plain, st.sampled_from([None, 1, "\t"]))
def test_standard_json_is_read_as_it_is(value: Any, indent: str | int | None) -> None:
    assert plainly(parse(json.dumps(value, indent=indent))) == value
    assert plainly(parse(json.dumps(value, ensure_ascii=False) + "\r\n")) == value


@given(plain)
def test_standard_json_has_no_keys_to_quote(value: Any) -> None:
    text = json.dumps(value, indent=1)
    assert quote_keys(text) == text


def test_numbers_words_and_objects_may_be_keys() -> None:
    pairs = parse('{ 0 : "a", -1:"b" , "2":"c", name:"d", {"x":1}:"e", {{1:2}:3}:"f" }')
    assert pairs == [
        (0, "a"), (-1, "b"), ("2", "c"), ("name", "d"), (Pairs([("x", 1)]), "e"),
        (Pairs([(Pairs([(1, 2)]), 3)]), "f"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ('{0:"a", 1 :"b",\n-2:"c"}', '{"0":"a","1" :"b","-2":"c"}'),
        ('{"a":{5:{6:7}}}', '{"a":{"5":{"6":7}}}'),
        ('{"a":"{0:","b,1:":"\\"{2:"}', '{"a":"{0:","b,1:":"\\"{2:"}'),
        ("[1,2]", "[1,2]"),
        ('{"a":1}', '{"a":1}'),
    ],
)
def test_bare_numbers_get_quotes_and_texts_are_left_alone(text: str, quoted: str) -> None:
    assert quote_keys(text) == quoted


def test_equal_keys_are_all_there_in_their_order() -> None:
    assert parse('{"a":1,"a":2}') == [("a", 1), ("a", 2)]


def test_raw_control_characters_and_half_a_surrogate_pair_are_read() -> None:
    assert parse('"\t\\ud83d\x01"') == "\t\ud83d\x01"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", 0),
        ("nul", 0),
        ("{", 1),
        ("{1}", 2),
        ('{"a" 1}', 5),
        ('{"a":}', 5),
        ('{"a":1', 6),
        ('{"a":1,', 7),
        ("[1 2]", 3),
        ("[1,", 3),
        ("[", 1),
        ('"abc', 0),
        ('"\\x"', 0),
        ("1 2", 2),
        ("-", 0),
        ("'a'", 0),
    ],
)
def test_an_error_names_its_position(text: str, at: int) -> None:
    with pytest.raises(FieldError, match=f"at character {at}:"):
        parse(text)


def test_nesting_has_a_limit() -> None:
    assert parse("[" * NESTING_MAX + "]" * NESTING_MAX) is not None
    for text in ("[" * (NESTING_MAX + 1), "{" * 100_000, '{"a":' * 100_000):
        with pytest.raises(FieldError, match=f"limit {NESTING_MAX}"):
            parse(text)


@pytest.mark.parametrize(
    "text",
    [
        '"' + '\\"' * 300_000,
        '"' + "\\\\" * 300_000,
        "{" * 300_000,
        "," + "1" * 300_000,
        ",1" + " " * 300_000,
        "," * 300_000,
        '""' * 300_000,
        '"\\',
    ],
    ids=range(8),
)
def test_no_text_takes_more_time_than_its_length(text: str) -> None:
    assert quote_keys(text) == text
    with pytest.raises(FieldError):
        parse(text)


def test_many_values_are_read() -> None:
    text = "[" + ",".join(['{0:"\\\\"}'] * 20_000) + "]"
    parsed = parse(text)
    assert isinstance(parsed, list)
    assert parsed == [[(0, "\\")]] * 20_000


def test_a_number_of_any_length_ends() -> None:
    with pytest.raises(FieldError, match="something follows"):
        parse("9" * 100_000)
