from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.wire.recall_handle import RecallHandle, decode_recall_handle

ROWS = vector_lines("recall.jsonl")
words = st.text("abcXYZ019_-%|", min_size=1)


@pytest.mark.parametrize("row", [row for row in ROWS if row["in"]["op"] == "recall_handle"])
def test_handles_are_javas(row: dict[str, Any]) -> None:
    fields = row["in"]
    handle = RecallHandle(fields["topic"], fields["broker"], int(fields["timestamp"]), fields["id"])
    assert handle.text() == row["out"]
    assert decode_recall_handle(row["out"]) == handle


@pytest.mark.parametrize("row", [row for row in ROWS if row["in"]["op"] == "recall_decode"])
def test_fields_that_java_ignores_are_ignored(row: dict[str, Any]) -> None:
    with pytest.raises(FieldError, match="recall handle is invalid"):
        decode_recall_handle(row["in"]["text"])


def packed(plain: bytes) -> str:
    return urlsafe_b64encode(plain).decode()


@pytest.mark.parametrize(
    "text",
    ["v1 a b 1 d", "ünïcode", packed(b"v2 a b 1 d"), packed(b"v1 a b 1"), packed(b"\xff\xfe"), "="],
)
def test_malformed_handles_are_refused(text: str) -> None:
    with pytest.raises(FieldError, match="recall handle is invalid"):
        decode_recall_handle(text)


@pytest.mark.parametrize("moment", [b"x", b"-5", b"", b"9" * 20, "٣".encode()])
def test_a_time_that_is_none_is_told_apart_from_a_handle_that_is_none(moment: bytes) -> None:
    assert decode_recall_handle(packed(b"v1 a b %b d" % moment)).deliver_ms == -1


def test_a_handle_without_padding_is_read_as_java_reads_it() -> None:
    handle = RecallHandle("T", "broker-a", 1_700_000_001_001, "k1")
    assert decode_recall_handle(handle.text().rstrip("=")) == handle


@given(words, words, st.integers(0, 2**62), words)
def test_encoded_values_are_read_back(topic: str, broker: str, at_ms: int, key: str) -> None:
    handle = RecallHandle(topic, broker, at_ms, key)
    assert decode_recall_handle(handle.text()) == handle
