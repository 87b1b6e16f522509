import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.printable_text import (
    json_printable,
    printable,
    quantity,
    size_text,
    without_surrogates,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, grün, 日本\u3000語, 🙂", "plain, grün, 日本\u3000語, 🙂"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]52;c;cm0=\x07", r"\x1b]52;c;cm0=\x07"),
        ("\x9b2J\x7f\x00", r"\x9b2J\x7f\x00"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("a\x85b\u2028c\u2029d", r"a\x85b\u2028c\u2029d"),
        ("\u202etxt.exe\u2066", r"\u202etxt.exe\u2066"),
        ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_breaks_and_tabs_stay_where_they_are_asked_for() -> None:
    assert printable("a\n\tb\r\x1b", keep="\n\t") == "a\n\tb\\r\\x1b"


@given(ANY_TEXT)
def test_all_of_it_prints_and_is_utf8(text: str) -> None:
    shown = printable(text)
    assert all(one.isprintable() or one.isspace() for one in shown)
    assert not set(shown) & {"\n", "\r", "\x1b", "\u2028", "\u2029", "\x85"}
    assert shown.encode().decode() == shown


@given(ANY_TEXT)
def test_escaping_twice_changes_nothing(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@given(ANY_TEXT)
def test_json_keeps_its_value_and_prints(text: str) -> None:
    written = json_printable(json.dumps({"a": [text]}, ensure_ascii=False))
    assert json.loads(written) == {"a": [json.loads(json.dumps(text))]}
    assert all(one.isprintable() or one.isspace() for one in written)
    assert written.encode().decode() == written


def test_json_over_several_lines_keeps_them() -> None:
    assert json_printable('{\n\t"a": "\u202e\x9b\U000e0041"\n}') == (
        '{\n\t"a": "\\u202e\\u009b\\udb40\\udc41"\n}'
    )
    assert json_printable('{"a": "b"}') == '{"a": "b"}'


def test_lone_surrogates_become_the_replacement_character() -> None:
    value = {"k\ud800": ["\udfff", ("a", 1, None)]}
    assert without_surrogates(value) == {"k���": ["���", ["a", 1, None]]}


def test_a_quantity_has_its_noun_in_the_right_number() -> None:
    assert quantity(1, "queue") == "1 queue"
    assert quantity(1_000, "queue") == "1,000 queues"


def test_a_size_has_the_unit_that_fits() -> None:
    sizes = [0, 1023, 1024, 1536, 5 * 1024**3, 2**60]
    assert [*map(size_text, sizes)] == [
        "0 bytes", "1,023 bytes", "1.0 KiB", "1.5 KiB", "5.0 GiB", "1048576.0 TiB",
    ]  # fmt: skip
