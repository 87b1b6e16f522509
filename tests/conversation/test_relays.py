"""What operators ask of one member: through the broker to the client, and its answer back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from tests.conversation.conftest import config_of, handling, producer_of, virtual_cluster

from roquet.client import (
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.net.pool import ChannelPool
from roquet.net.router import Router
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.client_forwarding import (
    ConsumeDirectly,
    ConsumeDirectlyResult,
    ConsumeResult,
    GetRunningInfo,
    RunningInfo,
)
from roquet.wire.calls.admin.offset_reset import GetClientStatus, ResetClientOffset
from roquet.wire.calls.bodies import ClientStatus, ResetOffsetBody
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

R = TypeVar("R", bound=Reply)


class OperatedCluster:
    """A cluster with one broker, a producer and an operator's connection."""

    def __init__(self, running: Cluster, producer: Producer, pool: ChannelPool) -> None:
        self.running = running
        self.producer = producer
        self._pool = pool

    async def ask(self, call: Call[R], timeout_ms: int = 20_000) -> R:
        return await self._pool.call(self.running.brokers[0].address, call, timeout_ms)

    def consumer(self, kind: Any = PushConsumer, **settings: Any) -> Any:
        config = config_of(ConsumerConfig, **settings)
        return kind(self.running.namesrv_addr, group="g", topic="t", config=config)

    async def info(self, client_id: str, **fields: Any) -> RunningInfo:
        call = GetRunningInfo(consumer_group="g", client_id=client_id, **fields)
        return codec.loads((await self.ask(call)).body, RunningInfo)

    async def handle(self, client_id: str, message_id: str) -> ConsumeDirectlyResult:
        call = ConsumeDirectly(consumer_group="g", client_id=client_id, msg_id=message_id)
        return codec.loads((await self.ask(call)).body, ConsumeDirectlyResult)


@asynccontextmanager
async def scene() -> AsyncIterator[OperatedCluster]:
    async with virtual_cluster() as running:
        pool = ChannelPool(Router(), clock=this_loop().clock)
        async with producer_of(running) as producer:
            yield OperatedCluster(running, producer, pool)
        await pool.close()


async def test_a_member_reports_its_status() -> None:
    async with scene() as here:
        await here.producer.send_many([Message("t", b"%d" % n) for n in range(40)])
        release = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            if message.body == b"7":
                await release.wait()

        async with here.consumer() as consumer, handling(consumer, handler):
            await asyncio.sleep(35)
            info = await here.info(consumer.client_id)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_NAMESERVER_ADDR"] == f"{here.running.namesrv_addr};"
            assert {one.topic for one in info.subscription_set} == {"t", "%RETRY%g"}
            held = {q: one for q, one in info.mq_table.items() if q.topic == "t"}
            assert sum(one.cached_msg_count for one in held.values()) == 1
            assert sum(one.commit_offset for one in held.values()) < 40
            assert info.status_table["t"].handled > 0.5
            assert info.jstack is None
            release.set()


async def test_a_member_reports_the_stacks_of_its_threads_and_tasks() -> None:
    async with scene() as here:
        await here.producer.send("t", b"stuck")

        async def handler_that_hangs(message: ReceivedMessage) -> None:
            await asyncio.sleep(1e6)

        async with here.consumer(close_timeout_ms=1) as consumer:
            running = asyncio.create_task(consumer.run(handler_that_hangs))
            await asyncio.sleep(2)
            info = await here.info(consumer.client_id, jstack_enable=True)
            assert info.jstack is not None
            assert "handler_that_hangs" in info.jstack
            assert "MainThread" in info.jstack
            running.cancel()
            await asyncio.wait([running])


async def test_an_unknown_member_cannot_be_asked() -> None:
    async with scene() as here:
        with pytest.raises(CallRefused) as refusal:
            await here.info("nobody")
        assert refusal.value.code == ResponseCode.SYSTEM_ERROR
        assert refusal.value.remark == "The Consumer <g> <nobody> not online"


@pytest.mark.parametrize("kind", [PushConsumer, PopConsumer])
async def test_a_message_is_handled_directly_and_nothing_else_changes(
    kind: type[PushConsumer | PopConsumer],
) -> None:
    async with scene() as here:
        receipt = await here.producer.send("t", b"first", properties={"a": "b"})
        bad = await here.producer.send("t", b"bad")
        later = await here.producer.send("t", b"later")
        seen: list[tuple[bytes, str | None]] = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append((message.body, message.properties.get("a")))
            if len(seen) > 3 and message.body == b"bad":
                raise ValueError("no good")
            if len(seen) > 3 and message.body == b"later":
                await message.nack()

        async with here.consumer(kind) as consumer, handling(consumer, handler):
            await asyncio.sleep(2)
            assert len(seen) == 3
            first = await here.handle(consumer.client_id, receipt.offset_message_id)
            assert (first.consume_result, first.order) == (ConsumeResult.CR_SUCCESS, False)
            assert seen[3:] == [(b"first", "b")]
            thrown = await here.handle(consumer.client_id, bad.offset_message_id)
            assert thrown.consume_result is ConsumeResult.CR_THROW_EXCEPTION
            assert thrown.remark == "ValueError: no good"
            again = await here.handle(consumer.client_id, later.offset_message_id)
            assert again.consume_result is ConsumeResult.CR_LATER
            await asyncio.sleep(100)
            assert len(seen) == 6, "what failed directly comes not again"


async def test_waiting_for_a_slow_handler_ends_with_a_timeout() -> None:
    async with scene() as here:
        receipt = await here.producer.send("t", b"slow")

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(11)

        async with here.consumer() as consumer, handling(consumer, handler):
            await asyncio.sleep(20)
            with pytest.raises(CallRefused) as refusal:
                await here.handle(consumer.client_id, receipt.offset_message_id)
            assert refusal.value.code == ResponseCode.CONSUME_MSG_TIMEOUT
            expected = f"consumer <g> <{consumer.client_id}> Timeout: "
            assert (refusal.value.remark or "").startswith(expected)


@pytest.mark.parametrize("message_id", ["", "xyz", "7F00000100002A9F00000000000F4240"])
async def test_a_message_that_is_not_there_cannot_be_handled(message_id: str) -> None:
    async with scene() as here, here.consumer() as consumer:
        await asyncio.sleep(1)
        with pytest.raises(CallRefused) as refusal:
            await here.handle(consumer.client_id, message_id)
        assert refusal.value.code == ResponseCode.SYSTEM_ERROR


async def test_a_member_without_a_handler_refuses() -> None:
    async with scene() as here, here.consumer() as consumer:
        receipt = await here.producer.send("t", b"x")
        await asyncio.sleep(1)
        with pytest.raises(CallRefused, match="has no handler"):
            await here.handle(consumer.client_id, receipt.offset_message_id)


async def tell(here: OperatedCluster, call: ResetClientOffset) -> None:
    """As the broker does it when an operator sets the group's offsets."""
    group = here.running.brokers[0].broker.tables.clients.consumers("g")
    assert group is not None
    for peer in group.members:
        peer.oneway(call)


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_member_continues_at_the_offset_of_a_reset(ordered: bool) -> None:
    async with scene() as here:
        await here.producer.send_many([Message("t", b"%d" % n, order_key="k") for n in range(9)])
        seen: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.1)
            seen.append(message.body)

        async with here.consumer(ordered=ordered) as consumer, handling(consumer, handler):
            await asyncio.sleep(5)
            assert sorted(seen) == [b"%d" % n for n in range(9)]
            broker = here.running.brokers[0].broker
            (queue,) = [
                q for q in consumer.assignment() if broker.log.store.bounds("t", q.queue_id)[1]
            ]
            body = codec.dumps(ResetOffsetBody(offset_table={queue: 6}))
            await tell(here, ResetClientOffset(topic="t", group="g", timestamp=5, body=body))
            await asyncio.sleep(1)
            assert sorted(seen[9:]) == [b"6", b"7", b"8"]
            assert len(consumer.assignment()) == 4


async def test_a_reset_waits_for_running_handlers_and_survives_a_close() -> None:
    async with scene() as here:
        await here.producer.send_many([Message("t", b"%d" % n, order_key="k") for n in range(3)])

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(4)

        async with here.consumer() as consumer:
            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(6)
            broker = here.running.brokers[0].broker
            (queue,) = [
                q for q in consumer.assignment() if broker.log.store.bounds("t", q.queue_id)[1]
            ]
            body = codec.dumps(ResetOffsetBody(offset_table={queue: 0, other("u"): 5}))
            await tell(here, ResetClientOffset(topic="t", group="g", body=body))
            await asyncio.sleep(2)
            table = await status(here)
            assert table[queue] == 0
            await tell(here, ResetClientOffset(topic="t", group="g", body=body))
            await asyncio.sleep(0.1)
            assert broker.tables.offsets.get("g", "t", queue.queue_id) == 0
        await running
        assert broker.tables.offsets.get("g", "t", queue.queue_id) == 0


async def test_a_reset_of_another_group_or_that_cannot_be_read_changes_nothing() -> None:
    async with scene() as here:
        await here.producer.send("t", b"x")
        async with here.consumer() as consumer:
            message = await consumer.next(5_000)
            await message.ack()
            before = await status(here)
            body = codec.dumps(ResetOffsetBody(offset_table={message.queue: 0}))
            await tell(here, ResetClientOffset(topic="t", group="h", body=body))
            await tell(here, ResetClientOffset(topic="t", group="g", body=b"{nonsense"))
            negative = codec.dumps(ResetOffsetBody(offset_table={message.queue: -1}))
            await tell(here, ResetClientOffset(topic="t", group="g", body=negative))
            await asyncio.sleep(15)
            assert await status(here) == before


async def status(here: OperatedCluster) -> dict[MessageQueue, int]:
    group = here.running.brokers[0].broker.tables.clients.consumers("g")
    assert group is not None
    (peer,) = group.members
    reply = await peer.call(GetClientStatus(topic="t", group="g"))
    return codec.loads(reply.body, ClientStatus).message_queue_table or {}


def other(topic: str) -> MessageQueue:
    return MessageQueue(topic, "elsewhere", 0)
