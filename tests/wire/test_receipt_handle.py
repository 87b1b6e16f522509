from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines, vector_pairs

from roquet.model.errors import FieldError
from roquet.model.names import pop_retry_topic, pop_retry_topic_v1
from roquet.wire import receipt_handle
from roquet.wire.receipt_handle import (
    RecallHandle,
    ReceiptHandle,
    decode_recall_handle,
    decode_receipt_handle,
)


@pytest.mark.parametrize(("given", "out"), vector_pairs("pop.jsonl", "pop_extra_info"))
def test_a_handle_is_written_as_java_writes_it(given: dict[str, Any], out: str) -> None:
    handle = ReceiptHandle(
        start=given["ck_offset"],
        pop_ms=given["pop_time"],
        invisible_ms=given["invisible_time"],
        revive_queue=given["revive_qid"],
        retry=receipt_handle.retry_kind(given["topic"]),
        broker=given["broker"],
        queue_id=given["queue_id"],
        offset=given["offset"],
    )
    assert handle.text() == out
    assert decode_receipt_handle(out) == handle


@pytest.mark.parametrize(("given", "out"), vector_pairs("pop.jsonl", "pop_extra_info_parse"))
def test_a_handle_says_where_its_message_lies(given: dict[str, Any], out: dict[str, Any]) -> None:
    handle = decode_receipt_handle(given["text"])
    topic = receipt_handle.stored_topic(given["topic"], given["group"], handle.retry)
    is_ordered = handle.revive_queue == receipt_handle.ORDER_QUEUE
    assert (topic, is_ordered, handle.retry, handle.offset) == (
        out["real_topic"], out["order"], out["retry"], out["queue_offset"],
    )  # fmt: skip


@pytest.mark.parametrize(("given", "out"), vector_pairs("pop.jsonl", "pop_retry_topic"))
def test_the_retry_topic_has_its_genuine_name(given: dict[str, Any], out: dict[str, str]) -> None:
    group, topic = given["group"], given["topic"]
    assert pop_retry_topic_v1(group, topic) == out["v1"] == out["default"]
    assert pop_retry_topic(group, topic) == out["v2"]
    assert receipt_handle.stored_topic(topic, group, receipt_handle.RETRY_V1) == out["v1"]
    assert receipt_handle.stored_topic(topic, group, receipt_handle.RETRY_V2) == out["v2"]


def test_the_position_that_apaches_proxy_adds_is_not_read() -> None:
    handle = ReceiptHandle(10, 1_796_016_445_000, 60_000, 999, "0", "broker-a", 3, 12)
    assert decode_receipt_handle(f"{handle.text()} 8582690") == handle


@pytest.mark.parametrize("broker", ["b", "broker a", "b 5 c"])
def test_a_name_of_a_broker_may_hold_spaces(broker: str) -> None:
    handle = ReceiptHandle(10, 1_796_016_445_000, 60_000, 7, "0", broker, 3, 12)
    assert decode_receipt_handle(handle.text()) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3 4 0 b 5",
        "1 2 3 4 3 b 5 6",
        "x 2 3 4 0 b 5 6",
        "1 2 3 4 0 b 5 -6",
        "1 2 3 4 0 b 5 1_0",
        "1 2 3 4 0 b 5 \u0661",
        "9223372036854775808 2 3 4 0 b 5 6",
        "1  2 3 4 0 b 5 6",
    ],
)
def test_malformed_handles_are_refused(text: str) -> None:
    with pytest.raises(FieldError, match="receipt handle"):
        decode_receipt_handle(text)


@given(
    st.builds(
        ReceiptHandle,
        *[st.integers(0, 2**63 - 1)] * 4,
        st.sampled_from(["0", "1", "2"]),
        st.text(min_size=1).filter(lambda name: name.strip() == name),
        *[st.integers(0, 2**31 - 1)] * 2,
    )
)
def test_any_handle_comes_back(handle: ReceiptHandle) -> None:
    assert decode_receipt_handle(handle.text()) == handle


@pytest.mark.parametrize(
    ("topic", "retry", "real"),
    [
        ("t", "0", "t"),
        ("t", "1", "%RETRY%g_t"),
        ("t", "2", "%RETRY%g+t"),
        ("%RETRY%g_t", "1", "%RETRY%g_t"),
    ],
)
def test_a_message_lies_in_the_topic_that_its_kind_says(topic: str, retry: str, real: str) -> None:
    assert receipt_handle.stored_topic(topic, "g", retry) == real


@pytest.mark.parametrize(("given", "out"), vector_pairs("pop.jsonl", "pop_info"))
def test_offsets_and_counts_of_a_pop_reply(given: dict[str, Any], out: dict[str, Any]) -> None:
    starts, offsets, counts = [], [], []
    for part in given["parts"]:
        topic, queue_id, start = part["topic"], part["queue_id"], part["start_offset"]
        starts.append(receipt_handle.start_info(topic, queue_id, start))
        offsets.append(receipt_handle.offset_info(topic, queue_id, part["offsets"]))
        counts.append(receipt_handle.queue_count_info(topic, queue_id, part["queue_count"]))
        counts.append(
            receipt_handle.offset_count_info(topic, queue_id, start, part["offset_count"])
        )
    assert ";".join(starts) == out["start_offset_info"]
    assert ";".join(offsets) == out["msg_offset_info"]
    assert ";".join(counts) == out["order_count_info"]
    assert receipt_handle.parse_starts(out["start_offset_info"]) == out["parsed_start"]
    assert receipt_handle.parse_offsets(out["msg_offset_info"]) == out["parsed_offsets"]
    assert receipt_handle.parse_starts(out["order_count_info"]) == out["parsed_counts"]


@pytest.mark.parametrize("text", ["", "0 1", "0 1 x", "0 1 1;", "0 1 2 3"])
def test_broken_information_is_refused(text: str) -> None:
    with pytest.raises(FieldError):
        receipt_handle.parse_starts(text)


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
def test_malformed_recall_handles_are_refused(text: str) -> None:
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
