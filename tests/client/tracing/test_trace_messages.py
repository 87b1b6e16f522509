from hypothesis import given
from hypothesis import strategies as st

from roquet.client.tracing.trace_messages import (
    BATCH_MAX,
    KEYS_SIZE_MAX,
    SentMessages,
    TracedItem,
    split_batches,
    to_trace_records,
    trace_keys,
)
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.wire.trace_text import RecallTrace, SendTrace, TraceMessageType


def recalled(message_id: str) -> RecallTrace:
    return RecallTrace(at_ms=1, topic="t", message_id=message_id)


def receipt(message_id: str) -> SendReceipt:
    return SendReceipt(
        status=SendStatus.FLUSH_DISK_TIMEOUT,
        message_id=message_id,
        offset_message_id=f"OFF-{message_id}",
        queue=MessageQueue("t", "a", 0),
        queue_offset=0,
    )


@given(st.lists(st.integers(1, KEYS_SIZE_MAX * 2), max_size=30))
def test_no_record_is_left_out_and_no_message_has_too_many_keys(sizes: list[int]) -> None:
    traces = [recalled("x" * size) for size in sizes]
    groups = list(split_batches(iter(traces)))
    assert [one for batch in groups for one in batch] == traces
    for batch in groups:
        assert len(batch) == 1 or sum(len(one.message_id) + 1 for one in batch) <= KEYS_SIZE_MAX


def test_a_message_holds_so_many_records() -> None:
    groups = list(split_batches(iter([recalled("id")] * (2 * BATCH_MAX + 1))))
    assert [len(batch) for batch in groups] == [BATCH_MAX, BATCH_MAX, 1]


def test_records_are_found_by_ids_and_keys_each_once() -> None:
    sent = SendTrace(at_ms=1, topic="t", message_id="A", keys="k1 k2")
    assert trace_keys([sent, recalled("B"), recalled("A")]) == ("A", "B", "k1", "k2")


def test_messages_of_one_batch_share_its_duration() -> None:
    items = [TracedItem("t", "TAGS\x01T\x02KEYS\x01k\x02", 5), TracedItem("t", "DELAY\x013\x02", 6)]
    sends = SentMessages(items, [receipt("A"), receipt("B")], "h:1", "r", 1_000, 8)
    first, second = to_trace_records(sends, "g")
    assert first == SendTrace(
        at_ms=1_000, region="r", group="g", topic="t", message_id="A", tag="T", keys="k",
        store_host="h:1", body_length=5, took_ms=4, offset_message_id="OFF-A", success=False,
    )  # fmt: skip
    assert second.kind is TraceMessageType.DELAYED
    half = SentMessages(
        [TracedItem("t", "TRAN_MSG\x01true\x02", 5)], [receipt("A")], "h:1", "r", 1_000, 8
    )
    assert [one.kind for one in to_trace_records(half, "g")] == [TraceMessageType.HALF]


def test_a_key_with_another_blank_than_u_0020_is_one_key() -> None:
    sent = SendTrace(at_ms=1, topic="t", message_id="A", keys="lot\u3000A k2")
    assert trace_keys([sent]) == ("A", "lot\u3000A", "k2")
