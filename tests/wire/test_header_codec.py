"""Codecs derived from classes."""

import msgspec
import pytest

from roquet.wire.call import Int, Reply
from roquet.wire.header_codec import HEADER_CODECS


class Sample(Reply, frozen=True, kw_only=True):
    queue_id: int = 3
    limited: Int | None = None
    region: str = msgspec.field(default='a"\n', name="MSG_REGION")
    on: bool = False
    off: bool | None = None


class Unfit(Reply, frozen=True, kw_only=True):
    names: list[str]


class WithoutFields(Reply, frozen=True, kw_only=True):
    pass


def test_code_remark_and_body_are_no_fields() -> None:
    assert [field.name for field in HEADER_CODECS[Sample].fields] == [
        "queue_id", "limited", "region", "on", "off",
    ]  # fmt: skip
    assert HEADER_CODECS[WithoutFields].fields == ()


def test_each_field_knows_its_wire_name_and_its_kind() -> None:
    fields = {f.wire_name: (f.kind, f.optional, f.required) for f in HEADER_CODECS[Sample].fields}
    assert fields == {
        "queueId": (int, False, False),
        "limited": (int, True, False),
        "MSG_REGION": (str, False, False),
        "on": (bool, False, False),
        "off": (bool, True, False),
    }


def test_a_value_is_printed_as_strings_without_what_is_none() -> None:
    to_json = HEADER_CODECS[Sample].to_json
    assert to_json(Sample()) == b'"queueId":"3","MSG_REGION":"a\\"\\n","on":"false"'
    whole = Sample(limited=-1, on=True, off=False)
    assert to_json(whole).endswith(b'"on":"true","limited":"-1","off":"false"')
    assert HEADER_CODECS[WithoutFields].to_json(WithoutFields()) == b""


def test_the_compact_form_has_lengths_before_names_and_values() -> None:
    to_compact = HEADER_CODECS[Sample].to_compact
    assert to_compact(Sample(queue_id=-12, region="é", limited=7)) == (
        b"\0\7queueId\0\0\0\3-12"
        b"\0\x0aMSG_REGION\0\0\0\2\xc3\xa9"
        b"\0\2on\0\0\0\5false"
        b"\0\7limited\0\0\0\0017"
    )
    assert HEADER_CODECS[WithoutFields].to_compact(WithoutFields()) == b""
    long = "x" * 65_535
    assert b"\0\0\xff\xff" + long.encode() in to_compact(Sample(region=long))
    with pytest.raises(OverflowError):
        to_compact(Sample(region="x" * 65_536))


def test_texts_of_numbers_are_read() -> None:
    read = Sample(queue_id=5, limited=6, off=True)
    sent = {"queueId": "5", "limited": "6", "off": "TRUE"}
    assert HEADER_CODECS[Sample].from_json(msgspec.json.encode(sent)) == read
    assert HEADER_CODECS[Sample].from_packed(msgspec.msgpack.encode(sent)) == read


def test_a_shape_is_found_out_once() -> None:
    assert HEADER_CODECS[Sample] is HEADER_CODECS[Sample]


def test_other_types_than_text_number_and_truth_cannot_be_header_fields() -> None:
    with pytest.raises(TypeError, match="cannot be a header field"):
        HEADER_CODECS[Unfit]
