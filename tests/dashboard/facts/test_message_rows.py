from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.dashboard.facts.message_rows import (
    HEX_MAX,
    TEXT_MAX,
    BodyForm,
    body_view,
    message_row,
    message_rows,
    place,
    preview,
)
from roquet.dashboard.masking import MaskedBody, MaskRule
from roquet.model.message import StoredMessage

MESSAGE = StoredMessage(
    topic="%DLQ%a&b=c",
    body=b"secret",
    properties={"TAGS": "a\u202eb", "KEYS": "k1 k2"},
    broker_name="broker a",
    queue_id=3,
    queue_offset=7,
    position=0,
    size=100,
)


def test_a_row_leads_to_its_message_whatever_its_topic_is_called() -> None:
    row = message_row(MESSAGE, ())
    query = {name: values[0] for name, values in parse_qs(urlsplit(row.address).query).items()}
    assert query == place(MESSAGE)
    assert (row.keys, row.size, row.preview) == ("k1 k2", 6, "secret")


def test_what_would_turn_text_around_is_escaped() -> None:
    assert message_row(MESSAGE, ()).tag == "a\\u202eb"


def test_hidden_bodies_are_not_in_rows() -> None:
    (row,) = message_rows([MESSAGE], [MaskRule("*")])
    assert row.is_masked
    assert "secret" not in repr(row)


def test_json_objects_are_indented() -> None:
    view = body_view(MaskedBody(b'{"a":[1]}'))
    assert view.form is BodyForm.JSON
    assert view.text == '{\n  "a": [\n    1\n  ]\n}'


def test_a_number_is_text_unless_json_is_asked_for() -> None:
    assert body_view(MaskedBody(b"17")).form is BodyForm.TEXT
    assert body_view(MaskedBody(b"17"), BodyForm.JSON).form is BodyForm.JSON


def test_binary_bodies_are_a_hex_dump_with_offsets_and_letters() -> None:
    view = body_view(MaskedBody(b"\x00\x01hello world, 20 b"))
    first, second = view.text.splitlines()
    assert first == "00000000  00 01 68 65 6c 6c 6f 20  77 6f 72 6c 64 2c 20 32  ..hello world, 2"
    assert second.startswith("00000010  30 20 62")
    assert second.endswith("  0 b")
    assert view.is_binary
    assert not view.is_cut


def test_a_notation_that_does_not_fit_gives_way_and_says_why() -> None:
    assert body_view(MaskedBody(b"hello"), BodyForm.JSON).note == "the body is no JSON"
    view = body_view(MaskedBody(b"\xff\x00"), BodyForm.JSON)
    assert (view.form, view.note, view.text) == (BodyForm.TEXT, "the body is binary", "�\\x00")


def test_long_bodies_are_cut_and_say_so() -> None:
    view = body_view(MaskedBody(b"x" * (TEXT_MAX + 5)))
    assert (len(view.text), view.is_cut, view.size) == (TEXT_MAX, True, TEXT_MAX + 5)
    dump = body_view(MaskedBody(b"\x00" * (HEX_MAX + 1)))
    assert (dump.shown, dump.is_cut) == (HEX_MAX, True)
    assert not body_view(MaskedBody(b"x" * TEXT_MAX)).is_cut


def test_what_would_turn_text_around_is_escaped_in_a_row() -> None:
    assert body_view(MaskedBody("a\u202eb\n".encode())).text == "a\\u202eb\n"


def test_a_preview_is_one_line_of_bounded_length() -> None:
    assert preview(MaskedBody(b"a\nb\tc")) == "a b c"
    assert preview(MaskedBody(b"x" * 500), 10) == "xxxxxxxxxx…"
    assert preview(MaskedBody("ä".encode() * 500), 10) == "ä" * 10 + "…"
    assert preview(MaskedBody(b"\x00\xff")) == "binary, 2 bytes: 00 ff"
    assert preview(MaskedBody(b"", is_masked=True)) == "(hidden by a rule)"


@pytest.mark.parametrize("body", [b"[" * 50_000, b'{"a":' * 50_000, b"{" + b"]" * 9])
def test_json_that_never_ends_is_text(body: bytes) -> None:
    assert body_view(MaskedBody(body)).form is BodyForm.TEXT


@given(st.binary(max_size=200), st.sampled_from(BodyForm))
def test_every_body_can_be_shown_in_every_notation(data: bytes, form: BodyForm) -> None:
    view = body_view(MaskedBody(data), form)
    assert view.form is not BodyForm.AUTO
    assert view.size == len(data)
    assert "\x00" not in view.text
    line = preview(MaskedBody(data), 40)
    assert line.isprintable()
    assert len(line) <= 4 * 40 + 20
