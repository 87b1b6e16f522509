import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.cli.messaging.message_format import FIELDS, LINE_SIZE_MAX, MessageFormat
from roquet.cli.terminal.output import message_fields
from roquet.model.errors import UsageError
from roquet.model.message import StoredMessage

PROPERTIES = {"TAGS": "paid", "KEYS": "o-1 o-2", "UNIQ_KEY": "7F01", "trace id": "t9"}


def stored(**fields: Any) -> StoredMessage:
    known = {
        "topic": "orders",
        "body": b"12 pears",
        "properties": PROPERTIES,
        "broker_name": "broker-a",
        "queue_id": 3,
        "queue_offset": 42,
        "position": 0,
        "size": 99,
        "born_ms": 1_700_000_000_000,
        "stored_ms": 1_700_000_000_007,
        "reconsume_times": 1,
    }
    return StoredMessage(**{**known, **fields})


def line(text: str, **fields: Any) -> str:
    return MessageFormat(text).line(stored(**fields))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{topic} {offset} {body}", "orders 42 12 pears"),
        ("{broker}:{queue} {message_id} {tag}", "broker-a:3 7F01 paid"),
        ("{keys}|{size}|{born_ms}|{stored_ms}", "o-1 o-2|8|1700000000000|1700000000007"),
        ("{reconsume_times} {properties[trace id]}{properties[none]}.", "1 t9."),
        (r"{queue}\t{offset:>5}\n\\{{x}}", "3\t   42\n\\{x}"),
        ("{offset:,} {topic:<8}|", "42 orders  |"),
    ],
)
def test_fields_stand_where_the_format_has_them(text: str, shown: str) -> None:
    assert line(text) == shown


def test_all_properties_are_an_object() -> None:
    assert json.loads(line("{properties}")) == PROPERTIES


def test_what_a_message_does_not_have_is_empty() -> None:
    assert line("[{tag}{keys}{message_id}{properties[x]}]", properties={}) == "[]"


def test_every_field_of_json_may_be_named() -> None:
    assert {*message_fields(stored())} == {*FIELDS} - {"size"}


def test_values_cannot_steer_the_terminal_nor_look_like_columns() -> None:
    assert line(r"{tag}\t{body}", body=b"\x1b[2J\ta\nb\xff", properties={"TAGS": "\u202e"}) == (
        "\\u202e\t\\x1b[2J\\ta\\nb\ufffd"
    )


def test_a_body_is_cut_as_in_a_line_of_text() -> None:
    assert line("{body}{size}", body=b"x" * (LINE_SIZE_MAX + 5)) == (
        "x" * LINE_SIZE_MAX + str(LINE_SIZE_MAX + 5)
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{ofset}", r"there is no field 'ofset'; did you mean 'offset'\?"),
        ("{zzz}", r"no field 'zzz'; there are topic, broker, .* and properties\[NAME\]"),
        ("{}", "no field ''"),
        ("{body.__class__}", "no field 'body.__class__'"),
        ("{body", "expected '}'"),
        ("body}", "Single '}'"),
        ("{body!r}", "!r means nothing here"),
        ("{offset:zz}", "--format '{offset:zz}': "),
        ("{offset:c}", "--format '{offset:c}': "),
        ("{tag:d}", "--format '{tag:d}': "),
        ("{tag:>99999999999999}", "--format '{tag:>99999999999999}': "),
        ("%t %o %s", r"'%t %o %s' has no field, as '\{topic\} \{offset\} \{body\}'"),
        ("", "has no field"),
    ],
)
def test_another_format_is_wrong_use(text: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        MessageFormat(text)


@given(st.text())
def test_any_text_is_a_format_or_wrong_use(text: str) -> None:
    try:
        made = MessageFormat(text)
    except UsageError:
        return
    assert isinstance(made.line(stored()), str)


@given(st.binary(), st.text())
def test_any_message_is_one_line(body: bytes, tag: str) -> None:
    shown = line("{tag} {body} {properties}", body=body, properties={"TAGS": tag})
    assert len(shown.splitlines()) == 1
