"""Property text, against Java's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_pairs

from roquet.model.errors import MessageIllegal, RecordError
from roquet.wire.records.property_text import (
    decode_properties,
    decode_text,
    encode_properties,
    is_well_formed,
    lossless_bytes,
    lossless_text,
)

words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "string_to_properties"))
def test_a_text_is_read_as_java_reads_it(given_: dict[str, Any], out: Any) -> None:
    assert decode_properties(given_["text"]) == out
    assert decode_properties(given_["text"].encode()) == out


@pytest.mark.parametrize(("given_", "out"), vector_pairs("records.jsonl", "properties_to_string"))
def test_properties_are_written_as_java_writes_them(given_: dict[str, Any], out: Any) -> None:
    present = {name: value for name, value in given_["properties"].items() if value is not None}
    assert encode_properties(present) == out.encode()


@given(st.dictionaries(words, words))
def test_any_properties_are_read_back_with_and_without_the_last_separator(
    properties: dict[str, str],
) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text[:-1]) == properties
    assert is_well_formed(text) == (not text.endswith(b"\x00"))


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": "b\x01c"}])
def test_a_separator_inside_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageIllegal, match="separate"):
        encode_properties(properties)


def test_lone_surrogates_survive() -> None:
    assert decode_properties(encode_properties({"half": "\ud83d"})) == {"half": "\ud83d"}


def test_bytes_that_are_not_utf_8_are_shown_as_java_shows_them() -> None:
    assert decode_properties(b"a\x01\xff\xfe\x02b\x01c\x02") == {"a": "\ufffd\ufffd", "b": "c"}
    assert decode_properties("标签\x01颜色\x02".encode("gbk")) == {
        "\ufffd\ufffd\u01e9": "\ufffd\ufffdɫ"
    }


def test_a_topic_is_utf_8() -> None:
    with pytest.raises(RecordError, match="UTF-8"):
        decode_text(b"\xff")


@given(st.binary())
def test_a_lossless_text_gives_any_bytes_back(raw: bytes) -> None:
    assert lossless_bytes(lossless_text(raw)) == raw


def test_a_text_with_half_a_surrogate_pair_can_be_encoded_beside_other_bytes() -> None:
    assert lossless_bytes(lossless_text(b"\xff") + "\ud83d") == b"\xed\xb3\xbf\xed\xa0\xbd"


@pytest.mark.parametrize(
    ("text", "well"),
    [
        (b"", True),
        (b"a\x01b", True),
        (b"a\x01b\x02c\x01d\x02", True),
        (b"a\x01b\x01c\x02", True),
        (b"\x00\x00\x00", False),
        (b"a\x01b\x02c\x01\x00\x00\x00", False),
        (b"a\x01b\x02\x00\x00\x00\x02", False),
        (b"a\x01b\x02\x02", False),
        (b"ab\x02cd\x01e\x02", False),
        (b"\x02", False),
    ],
)
def test_torn_text_pairs_badly(text: bytes, well: bool) -> None:
    assert is_well_formed(text) is well
