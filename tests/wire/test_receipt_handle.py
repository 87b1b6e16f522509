from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.model.names import pop_retry_topic, pop_retry_topic_v1
from roquet.wire import receipt_handle
from roquet.wire.receipt_handle import ReceiptHandle, decode_receipt_handle

LINES = vector_lines("pop.jsonl")


def lines(op: str) -> list[Any]:
    return [pytest.param(line["in"], line["out"]) for line in LINES if line["in"]["op"] == op]


@pytest.mark.parametrize(("given", "out"), lines("pop_extra_info"))
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


@pytest.mark.parametrize(("given", "out"), lines("pop_extra_info_parse"))
def test_a_handle_says_where_its_message_lies(given: dict[str, Any], out: dict[str, Any]) -> None:
    handle = decode_receipt_handle(given["text"])
    topic = receipt_handle.stored_topic(given["topic"], given["group"], handle.retry)
    is_ordered = handle.revive_queue == receipt_handle.ORDER_QUEUE
    assert (topic, is_ordered, handle.retry, handle.offset) == (
        out["real_topic"], out["order"], out["retry"], out["queue_offset"],
    )  # fmt: skip


@pytest.mark.parametrize(("given", "out"), lines("pop_retry_topic"))
def test_the_retry_topic_has_its_genuine_name(given: dict[str, Any], out: dict[str, str]) -> None:
    group, topic = given["group"], given["topic"]
    assert pop_retry_topic_v1(group, topic) == out["v1"] == out["default"]
    assert pop_retry_topic(group, topic) == out["v2"]
    assert receipt_handle.stored_topic(topic, group, receipt_handle.RETRY_V1) == out["v1"]
    assert receipt_handle.stored_topic(topic, group, receipt_handle.RETRY_V2) == out["v2"]


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


@pytest.mark.parametrize(("given", "out"), lines("pop_info"))
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
