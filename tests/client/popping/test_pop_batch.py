from typing import Any

import pytest

from roquet.client.popping.pop_batch import PopBatch, PoppedMessage, PopReplyParser, PopTarget
from roquet.client.reading.message import settle
from roquet.model.errors import UsageError
from roquet.testing.clock import VirtualClock
from roquet.wire.calls.pop import PopReply, decode_bits
from roquet.wire.receipt_handle import ReceiptHandle
from roquet.wire.records import record

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


class RecordingAcknowledger:
    """Records acknowledgements and retries."""

    def __init__(self) -> None:
        self.listed: list[PopBatch] = []
        self.failed: list[tuple[Any, int | None]] = []
        self.suspended: list[tuple[Any, int]] = []

    def ack(self, batch: PopBatch) -> None:
        self.listed.append(batch)

    def retry(self, batch: PopBatch, message: Any, delay_ms: int | None) -> None:
        self.failed.append((message, delay_ms))

    async def extend(
        self,
        batch: PopBatch,
        message: PoppedMessage,
        invisible_ms: int,
        suspend: bool | None = None,
    ) -> PopBatch:
        if suspend:
            self.suspended.append((message, invisible_ms))
        return batch


def stored(offset: int, queue_id: int = 0, topic: str = "t", properties: bytes = b"") -> Any:
    raw = record.pack(
        queue_id, 0, offset, offset * 100, 0, 1, HOST, 2, HOST, 0, 0, b"%d" % offset,
        topic.encode(), properties,
    )  # fmt: skip
    return record.decode(raw)


def reply(starts: str | None = "0 0 5;0 1 7", **fields: Any) -> PopReply:
    return PopReply(
        pop_time=1_000, invisible_time=60_000, revive_qid=3, start_offset_info=starts, **fields
    )


def popped() -> tuple[PopTarget, RecordingAcknowledger]:
    acks = RecordingAcknowledger()
    return PopTarget("b", "t", "g", acks, VirtualClock().monotonic_ms), acks


def test_messages_of_one_queue_are_acknowledged_together() -> None:
    target, acks = popped()
    first, second, other = PopReplyParser(target, reply()).messages(
        [stored(5), stored(8), stored(7, queue_id=1)]
    )
    settle(first)
    settle(second)
    settle(other)
    settle(first)
    one, two = acks.listed
    ack = one.take_acks()
    assert (ack.group, ack.topic, ack.retry, ack.start, ack.queue_id) == ("g", "t", "0", 5, 0)
    assert (ack.pop_ms, ack.invisible_ms, ack.revive_queue) == (1_000, 60_000, 3)
    assert decode_bits(ack.bits) == 0b1001
    assert decode_bits(two.take_acks().bits) == 1
    assert (one.acked, one.is_listed) == (0, False)


def test_a_message_of_the_retry_topic_brings_its_handle() -> None:
    target, acks = popped()
    handle = ReceiptHandle(0, 1_000, 60_000, 3, "1", "b", 0, 4)
    properties = f"POP_CK\x01{handle.text()}\x021ST_POP_TIME\x0177\x02".encode()
    (message,) = PopReplyParser(target, reply()).messages([stored(4, properties=properties)])
    assert (message.topic, message.first_popped_ms) == ("t", 77)
    settle(message)
    (batch,) = acks.listed
    assert batch.real_topic == "%RETRY%g_t"
    assert (batch.take_acks().retry, batch.handle.start) == ("1", 0)


def test_a_broker_that_does_not_say_where_a_pop_began() -> None:
    target, acks = popped()
    for message in PopReplyParser(target, reply(None)).messages([stored(5), stored(8)]):
        assert message.first_popped_ms == 1_000
        settle(message)
    assert [batch.handle.start for batch in acks.listed] == [5, 8]


def test_a_message_is_held_until_its_time_is_over() -> None:
    clock = VirtualClock()
    target = PopTarget("b", "t", "g", RecordingAcknowledger(), clock.monotonic_ms)
    (message,) = PopReplyParser(target, reply()).messages([stored(5)])
    clock.jump(59_999)
    assert message.is_held
    clock.jump(2)
    assert not message.is_held


@pytest.mark.virtual_time(False)
async def test_failing_and_extending_reach_the_broker() -> None:
    target, acks = popped()
    one, two = PopReplyParser(target, reply()).messages([stored(5), stored(6)])
    await two.extend(5_000)
    await one.nack(7)
    await two.nack()
    assert acks.failed == [(one, 7), (two, None)]


@pytest.mark.virtual_time(False)
async def test_a_suspended_message_is_settled() -> None:
    target, acks = popped()
    (one,) = PopReplyParser(target, reply()).messages([stored(5)])
    await one.suspend(5_000)
    await one.suspend(6_000)
    await one.ack()
    assert (acks.suspended, acks.listed, acks.failed) == ([(one, 5_000)], [], [])
    with pytest.raises(UsageError):
        await one.suspend(0)


@pytest.mark.parametrize("retry_is_first", [True, False])
@pytest.mark.parametrize("begin", [2, 5, 7, 10_000_000])
def test_retry_and_ordinary_messages_of_one_queue_id_are_acknowledged_apart(
    retry_is_first: bool, begin: int
) -> None:
    """Brokers send retry messages under the popped topic's name, with a handle of their own."""
    target, acks = popped()
    handle = ReceiptHandle(
        start=5, pop_ms=1_000, invisible_ms=60_000, revive_queue=3, retry="1", broker="b",
        queue_id=0, offset=5,
    )  # fmt: skip
    retried = stored(5, properties=f"POP_CK\x01{handle.text()}\x02".encode())
    ordinary = [stored(begin), stored(begin + 1)]
    records = [retried, *ordinary] if retry_is_first else [*ordinary, retried]
    for message in PopReplyParser(target, reply(f"1 0 5;0 0 {begin}")).messages(records):
        settle(message)
    acks_sent = [batch.take_acks() for batch in acks.listed]
    acked = {(ack.retry, ack.start): decode_bits(ack.bits) for ack in acks_sent}
    assert acked == {("1", 5): 0b1, ("0", begin): 0b11}
