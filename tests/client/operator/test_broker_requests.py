"""A member's answers to brokers that ask on behalf of operators."""

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from tests.client.conftest import FakeCluster, consuming, next_of

from roquet.client.config import ConsumerConfig
from roquet.client.operator.broker_requests import (
    CONCURRENT_MAX,
    DirectConsumer,
    DirectPoppedMessage,
    decode_reset_offsets,
)
from roquet.client.push import PushConsumer
from roquet.client.reading.handler_pool import MessageHandler
from roquet.client.reading.handler_result import ALREADY_SETTLED
from roquet.client.reading.message import (
    InboundMessage,
    MessageContext,
    ReceivedMessage,
    retry_later,
)
from roquet.model.errors import CallRefused, FieldError
from roquet.model.queue import MessageQueue
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.admin.client_forwarding import (
    ConsumeDirectly,
    ConsumeDirectlyResult,
    ConsumeResult,
    GetRunningInfo,
    RunningInfo,
)
from roquet.wire.calls.admin.offset_reset import GetClientStatus, ResetClientOffset
from roquet.wire.calls.bodies import ClientStatus, OffsetOfQueue, ResetOffsetBody, ResetOffsetList
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records import record

pytestmark = pytest.mark.virtual_time(False)

QUEUE = MessageQueue("t", "a", 0)


def peer_of(cluster: FakeCluster, consumer: PushConsumer) -> Any:
    return cluster.a.members["g"][consumer.client_id]


def test_offsets_come_in_either_form() -> None:
    body = codec.dumps(ResetOffsetBody(offset_table={QUEUE: 5}))
    line = OffsetOfQueue(topic="t", broker_name="a", queue_id=0, offset=5)
    listed = codec.dumps(ResetOffsetList(offset_table=[line]))
    assert decode_reset_offsets(body) == decode_reset_offsets(listed) == {QUEUE: 5}
    assert decode_reset_offsets(b"{}") == {}
    with pytest.raises(FieldError):
        decode_reset_offsets(b"[1")


@in_virtual_time
async def test_the_status_names_the_queues_of_one_topic() -> None:
    async with consuming({"a": 2}) as (cluster, consumer):
        cluster.a.put("t", 0, b"1", b"2")
        for _ in range(2):
            message = await next_of(consumer)
            await message.ack()
        peer = peer_of(cluster, consumer)

        async def asked(topic: str, group: str) -> object:
            reply = await peer.call(GetClientStatus(topic=topic, group=group))
            return codec.loads(reply.body, ClientStatus).message_queue_table

        assert await asked("t", "g") == {QUEUE: 2, MessageQueue("t", "a", 1): 0}
        assert await asked("u", "g") == {}
        assert await asked("t", "h") == {}


@in_virtual_time
async def test_a_group_that_is_not_ours_is_refused() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        await asyncio.sleep(1)
        peer = peer_of(cluster, consumer)
        for call in (
            GetRunningInfo(consumer_group="h", client_id=consumer.client_id),
            ConsumeDirectly(consumer_group="h"),
        ):
            with pytest.raises(CallRefused) as refusal:
                await peer.call(call)
            assert refusal.value.code == ResponseCode.SYSTEM_ERROR
            assert refusal.value.remark == "The Consumer Group <h> not exist in this consumer"


@in_virtual_time
async def test_running_info_has_stacks_only_on_request() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        await asyncio.sleep(1)
        peer = peer_of(cluster, consumer)
        for asked in (True, False):
            call = GetRunningInfo(
                consumer_group="g", client_id=consumer.client_id, jstack_enable=asked
            )
            info = codec.loads((await peer.call(call)).body, RunningInfo)
            assert list(info.mq_table) == [QUEUE]
            assert bool(info.jstack) is asked


@in_virtual_time
async def test_resets_that_come_together_are_done_one_after_the_other() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        cluster.a.put("t", 0, b"0", b"1", b"2")
        for _ in range(3):
            message = await next_of(consumer)
            await message.ack()
        for offset in (0, 2, 1):
            body = codec.dumps(ResetOffsetBody(offset_table={QUEUE: offset}))
            peer_of(cluster, consumer).oneway(
                ResetClientOffset(topic="t", group="g", timestamp=0, body=body)
            )
        await asyncio.sleep(1)
        assert [m.body for m in await consumer.fetch(5, 1_000)] == [b"1", b"2"]
        assert cluster.a.committed[("g", "t", 0)] == 1


HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


class RecordingReplySender:
    """Records replies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def reply(
        self, message: InboundMessage, body: bytes, properties: Mapping[str, str]
    ) -> bool:
        self.bodies.append(body)
        return True


def stored(body: bytes = b"body", properties: bytes = b"") -> ConsumeDirectly:
    packed = record.pack(3, 0, 7, 700, 0, 1, HOST, 2, HOST, 0, 0, body, b"t", properties)
    return ConsumeDirectly(consumer_group="g", broker_name="a", body=packed)


def direct_of(
    handler: MessageHandler[ReceivedMessage] | None,
    kind: type[ReceivedMessage] = ReceivedMessage,
    *,
    replies: RecordingReplySender | None = None,
    **settings: Any,
) -> DirectConsumer:
    context = MessageContext(replies=replies or RecordingReplySender())
    direct = DirectConsumer(ConsumerConfig(**settings), kind, context)
    if handler is not None:
        direct.use_handler(handler, asyncio.get_running_loop().create_future())
    return direct


async def result_of(
    handler: MessageHandler[ReceivedMessage], **settings: Any
) -> ConsumeDirectlyResult:
    return await direct_of(handler, **settings).handle(stored())


async def nothing(message: ReceivedMessage) -> None:
    """Handle anything."""


async def raises(message: ReceivedMessage) -> None:
    raise ValueError("no")


async def nacks(message: ReceivedMessage) -> None:
    await message.nack()


async def buries(message: ReceivedMessage) -> None:
    await message.dead_letter()


async def refuses(message: ReceivedMessage) -> bool:
    return False


@pytest.mark.parametrize(
    ("handler", "verdict", "remark"),
    [
        (nothing, ConsumeResult.CR_SUCCESS, None),
        (raises, ConsumeResult.CR_THROW_EXCEPTION, "ValueError: no"),
        (nacks, ConsumeResult.CR_LATER, None),
        (buries, ConsumeResult.CR_LATER, "it goes to the dead letters"),
        (refuses, ConsumeResult.CR_LATER, None),
        (print, ConsumeResult.CR_SUCCESS, None),
        (int, ConsumeResult.CR_THROW_EXCEPTION, "TypeError: "),
    ],
)
async def test_the_result_says_how_the_handler_ended(
    handler: MessageHandler[ReceivedMessage], verdict: ConsumeResult, remark: str | None
) -> None:
    result = await result_of(handler)
    assert result.consume_result is verdict
    assert (result.remark or "").startswith(remark or "")
    assert (result.order, result.auto_commit) == (False, True)


async def test_the_handler_gets_a_normal_message() -> None:
    seen: list[tuple[str, int, int, str | None]] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.queue_id, message.queue_offset, message.tag))
        assert message.is_held

    call = stored(properties=b"TAGS\x01A\x02")
    await direct_of(handler, ordered=True).handle(call)
    assert seen == [("t", 3, 7, "A")]


async def test_a_request_can_be_answered() -> None:
    async def handler(message: ReceivedMessage) -> None:
        assert await message.reply(b"yes")

    replies = RecordingReplySender()
    direct = direct_of(handler, replies=replies)
    assert (await direct.handle(stored())).consume_result is ConsumeResult.CR_SUCCESS
    assert replies.bodies == [b"yes"]


async def test_a_handler_of_popped_messages_may_ask_for_time() -> None:
    async def handler(message: ReceivedMessage) -> None:
        assert isinstance(message, DirectPoppedMessage)
        await message.extend(1_000)
        await message.suspend(1_000)
        assert message.first_popped_ms == 2

    result = await direct_of(handler, DirectPoppedMessage).handle(stored())
    assert result.consume_result is ConsumeResult.CR_SUCCESS


async def test_a_plain_handler_has_a_thread_of_its_own() -> None:
    threads: list[str] = []
    result = await result_of(lambda message: threads.append(threading.current_thread().name))
    assert threads == ["roquet-direct"]
    assert result.consume_result is ConsumeResult.CR_SUCCESS


async def test_a_message_that_its_thread_has_settled_is_no_odd_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()

    def refuses_in_a_thread(message: ReceivedMessage) -> object:
        loop.call_soon_threadsafe(retry_later, message)
        return ALREADY_SETTLED

    result = await result_of(refuses_in_a_thread)
    assert result.consume_result is ConsumeResult.CR_LATER
    assert "has no meaning" not in caplog.text


async def waits(message: ReceivedMessage) -> None:
    await asyncio.sleep(1)


def sleeps(message: ReceivedMessage) -> None:
    time.sleep(0.15)


@pytest.mark.parametrize("handler", [waits, sleeps])
async def test_a_handler_has_its_time_limit(handler: MessageHandler[ReceivedMessage]) -> None:
    result = await result_of(handler, handler_limit_ms=50)
    assert result.consume_result is ConsumeResult.CR_THROW_EXCEPTION
    assert (result.remark or "").startswith("TimeoutError")


async def test_a_consumer_without_a_handler_refuses() -> None:
    with pytest.raises(CallRefused, match="no handler"):
        await direct_of(None).handle(stored())


@pytest.mark.parametrize("body", [b"", b"nonsense", b"\x00" * 200])
async def test_an_unreadable_message_is_refused(body: bytes) -> None:
    with pytest.raises(CallRefused, match="cannot be read") as refusal:
        await direct_of(nothing).handle(ConsumeDirectly(consumer_group="g", body=body))
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


async def test_concurrent_direct_messages_are_limited() -> None:
    release = asyncio.Event()

    async def waits_for_us(message: ReceivedMessage) -> None:
        await release.wait()

    direct = direct_of(waits_for_us)
    busy = [asyncio.create_task(direct.handle(stored())) for _ in range(CONCURRENT_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(CallRefused) as refusal:
        await direct.handle(stored())
    assert refusal.value.code == ResponseCode.SYSTEM_BUSY
    release.set()
    results = await asyncio.gather(*busy)
    assert {one.consume_result for one in results} == {ConsumeResult.CR_SUCCESS}
    assert (await direct.handle(stored())).consume_result is ConsumeResult.CR_SUCCESS


async def test_a_handler_is_used_until_its_run_ends() -> None:
    direct = direct_of(None)
    run = asyncio.create_task(asyncio.sleep(0))
    direct.use_handler(nothing, run)
    assert (await direct.handle(stored())).consume_result is ConsumeResult.CR_SUCCESS
    await run
    await asyncio.sleep(0)
    with pytest.raises(CallRefused, match="no handler"):
        await direct.handle(stored())
