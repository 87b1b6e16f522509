"""Trace records are collected, and never fail or delay a message."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from tests.client.reading.test_message import RecordingOwner

from roquet.client.config import ConsumerConfig, ProducerConfig
from roquet.client.connection.identity import ClientIdentity
from roquet.client.connection.session import Session
from roquet.client.reading.message import ReceivedMessage
from roquet.client.sending.outgoing import OutgoingBatch
from roquet.client.sending.prepare import MessagePreparer, PreparedMessage
from roquet.client.tracing import trace_messages
from roquet.client.tracing.trace_messages import BATCH_MAX
from roquet.client.tracing.tracer import WAITING_MAX, Tracer
from roquet.model.errors import CallTimeout
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.testing.clock import this_loop
from roquet.wire.records import record
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    RecallTrace,
    SendTrace,
    Trace,
    decode,
)

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
QUEUE = MessageQueue("t", "a", 0)


class FakeDelivery:
    """Records what is delivered, or fails."""

    def __init__(self) -> None:
        self.sent: list[PreparedMessage] = []
        self.error: Exception | None = None
        self.takes_s = 0.0

    async def send(self, outgoing: OutgoingBatch) -> None:
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        self.sent.extend(outgoing.items)

    @property
    def records(self) -> list[Any]:
        return [one for prepared in self.sent for one in decode(prepared.body.decode())]


def tracer_of(**settings: Any) -> tuple[Tracer, FakeDelivery]:
    config = ConsumerConfig(client_ip="127.0.0.1", clock=this_loop().clock, **settings)
    delivery = FakeDelivery()
    return Tracer(Session("127.0.0.1:1", config), config, "g", cast("Any", delivery)), delivery


def sends(tracer: Tracer, count: int = 1, keys: tuple[str, ...] = ("k",), topic: str = "t") -> None:
    """Trace a stored batch of this many messages."""
    config = ProducerConfig(client_ip="127.0.0.1", clock=this_loop().clock)
    preparer = MessagePreparer(ClientIdentity(config).keys, config)
    prepared = [preparer.prepare(Message(topic, b"body", keys=keys), 1) for _ in range(count)]
    receipts = [
        SendReceipt(
            status=SendStatus.SEND_OK, message_id=one.message_id, offset_message_id="OFF",
            queue=QUEUE, queue_offset=0,
        )
        for one in prepared
    ]  # fmt: skip
    tracer.sent(
        OutgoingBatch.of(prepared), receipts, "h:1", "region", this_loop().clock.monotonic_ms()
    )


def message(topic: str = "t", properties: bytes = b"UNIQ_KEY\x01ID\x02KEYS\x01k\x02") -> Any:
    packed = record.pack(0, 0, 0, 0, 0, 1, HOST, 2, HOST, 1, 0, b"x", topic.encode(), properties)
    queue = MessageQueue(topic, "a", 0)
    return ReceivedMessage(queue, record.decode(packed), RecordingOwner())


def handle(tracer: Tracer, *messages: ReceivedMessage) -> None:
    with tracer.handling(messages):
        pass


def records_of_handlers(
    delivery: FakeDelivery,
) -> tuple[list[ConsumeStartTrace], list[ConsumeEndTrace]]:
    begun = [one for one in delivery.records if isinstance(one, ConsumeStartTrace)]
    return begun, [one for one in delivery.records if isinstance(one, ConsumeEndTrace)]


async def test_records_are_written_together_with_all_ids_as_keys() -> None:
    tracer, delivery = tracer_of()
    sends(tracer, 3)
    tracer.recalled("t", "RECALLED")
    await tracer.flush()
    (prepared,) = delivery.sent
    assert prepared.topic == "RMQ_SYS_TRACE_TOPIC"
    assert [type(one) for one in delivery.records] == [SendTrace, SendTrace, SendTrace, RecallTrace]
    for one in delivery.records:
        assert one.message_id in prepared.properties
    assert delivery.records[0].region == "region"


async def test_a_message_of_records_has_limits() -> None:
    tracer, delivery = tracer_of()
    sends(tracer, BATCH_MAX * 2 + 1, keys=())
    await tracer.flush()
    assert [len(decode(prepared.body.decode())) for prepared in delivery.sent] == [
        BATCH_MAX,
        BATCH_MAX,
        1,
    ]


async def test_records_of_handlers_leave_as_soon_as_there_are_enough() -> None:
    """A second's worth would not fit before the next timer."""
    tracer, delivery = tracer_of()
    tracer.start()
    for _ in range(10):
        for _ in range(WAITING_MAX // 4):
            handle(tracer, message())
        await asyncio.sleep(0.01)
    assert tracer.lost == 0
    assert len(delivery.records) == 10 * WAITING_MAX // 4 * 2
    await tracer.close()


async def test_records_over_the_limit_are_dropped_and_counted() -> None:
    tracer, delivery = tracer_of()
    for _ in range(10):
        sends(tracer, 1_000, keys=())
    assert tracer.lost == 2_000
    assert tracer.waiting_count == 8_000 <= WAITING_MAX
    for _ in range(WAITING_MAX):
        tracer.recalled("t", "ID")
    assert tracer.waiting_count == WAITING_MAX
    await tracer.flush()
    assert len(delivery.records) == WAITING_MAX
    assert tracer.waiting_count == 0


async def test_records_that_no_broker_takes_are_lost_and_later_ones_are_sent() -> None:
    tracer, delivery = tracer_of()
    delivery.error = CallTimeout("no")
    sends(tracer, 5)
    await tracer.flush()
    assert tracer.lost == 5
    delivery.error = None
    sends(tracer)
    await tracer.close()
    assert len(delivery.records) == 1


async def test_a_close_waits_for_the_trace_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    tracer, delivery = tracer_of()
    delivery.takes_s = 100
    sends(tracer, 250)
    began = this_loop().time()
    await tracer.close()
    assert this_loop().time() - began < 4
    assert tracer.lost == 250
    assert "trace records of g were lost" in caplog.text


async def test_handlers_are_traced_with_their_outcome() -> None:
    tracer, delivery = tracer_of()
    with tracer.handling([message()]):
        await asyncio.sleep(0.02)
    with pytest.raises(ValueError, match="no"), tracer.handling([message()]):
        raise ValueError("no")
    refused = message()
    with tracer.handling([refused]):
        await refused.nack()
    await tracer.flush()
    begun, ended = records_of_handlers(delivery)
    assert [one.outcome for one in ended] == [
        ConsumeReturnType.SUCCESS, ConsumeReturnType.RAISED, ConsumeReturnType.FAILED,
    ]  # fmt: skip
    assert [one.success for one in ended] == [one.outcome == 0 for one in ended]
    assert [one.request_id for one in begun] == [one.request_id for one in ended]
    assert len({one.request_id for one in begun}) == 3
    assert (begun[0].message_id, begun[0].keys, begun[0].tries) == ("ID", "k", 1)
    assert ended[0].took_ms >= 20


async def test_messages_of_a_batch_share_the_request_and_the_time_and_have_their_own_outcome() -> (
    None
):
    tracer, delivery = tracer_of()
    good, acked, refused, in_thread = batch = [message() for _ in range(4)]

    async def handle_batch() -> None:
        with tracer.handling(batch):
            await acked.ack()
            await refused.dead_letter()
            in_thread.has_failed = False  # the loop settles it later
            await asyncio.sleep(0.04)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await handle_batch()
    await tracer.flush()
    begun, ended = records_of_handlers(delivery)
    assert [len(begun), len(ended)] == [4, 4]
    (request_id,) = {one.request_id for one in begun}
    assert {one.request_id for one in ended} == {request_id}
    assert [one.took_ms for one in ended] == [10] * 4
    assert [one.outcome for one in ended] == [
        ConsumeReturnType.RAISED, ConsumeReturnType.SUCCESS,
        ConsumeReturnType.FAILED, ConsumeReturnType.SUCCESS,
    ]  # fmt: skip
    assert not good.is_settled


async def test_some_messages_are_not_traced() -> None:
    tracer, delivery = tracer_of()
    untraced = message(properties=b"TRACE_ON\x01false\x02")
    handle(tracer, message("RMQ_SYS_TRACE_TOPIC"), untraced)
    handle(tracer, untraced, message())
    await tracer.flush()
    assert [len(records) for records in records_of_handlers(delivery)] == [1, 1]


async def test_a_message_whose_properties_are_not_utf_8_is_traced() -> None:
    tracer, delivery = tracer_of()
    handle(tracer, message(properties=b"KEYS\x01\xff a\x02"))
    await tracer.flush()
    (begun,), _ = records_of_handlers(delivery)
    assert begun.keys == "\ufffd a"


async def test_an_unconvertible_message_does_not_stop_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracer, delivery = tracer_of()
    tracer.start()

    def to_trace_records(sent: trace_messages.SentMessages, group: str) -> Iterable[Trace]:
        if sent.items[0].topic == "poison":
            raise ValueError("poison")
        return trace_messages.to_trace_records(sent, group)

    monkeypatch.setattr("roquet.client.tracing.tracer.to_trace_records", to_trace_records)
    sends(tracer, 2, topic="poison")
    sends(tracer, 1)
    await asyncio.sleep(2)
    assert (len(delivery.records), tracer.lost) == (1, 2)
    sends(tracer, 1)
    await asyncio.sleep(2)
    assert len(delivery.records) == 2, "the loop goes on"
    await tracer.close()
