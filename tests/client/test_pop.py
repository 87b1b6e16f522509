import asyncio
import time
from random import Random
from typing import Any

import pytest
from tests.client.conftest import Created, next_of
from tests.conversation.conftest import virtual_cluster

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    ProducerConfig,
    ReceivedMessage,
)
from roquet.client.blocking import PopConsumer as BlockingPopConsumer
from roquet.client.blocking import Producer as BlockingProducer
from roquet.client.connection.heartbeats import Membership
from roquet.client.connection.routes import Routes
from roquet.client.popping.acks import PopAcks
from roquet.client.popping.pop_batch import PopBatch
from roquet.client.popping.prefetch_buffer import PrefetchBuffer
from roquet.client.reading.message import RELEASED, InboundMessage
from roquet.model.errors import ConfigError, FieldError, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumeType, MessageModel
from roquet.net.pool import ChannelPool
from roquet.testing.clock import this_loop
from roquet.testing.cluster import BlockingCluster, Cluster
from roquet.wire.call import Call, R
from roquet.wire.calls.pop import Pop


def config(**settings: Any) -> ConsumerConfig:
    values: dict[str, Any] = {"consume_from": ConsumeFrom.FIRST, **settings}
    return ConsumerConfig(clock=this_loop().clock, rng=Random(3), client_ip="127.0.0.1", **values)


def taker_of(running: Cluster, **settings: Any) -> PopConsumer:
    return PopConsumer(running.namesrv_addr, group="g", topic="t", config=config(**settings))


async def send(namesrv: str, topic: str, *tags: str) -> None:
    settings = ProducerConfig(clock=this_loop().clock, rng=Random(3), client_ip="127.0.0.1")
    async with Producer(namesrv, config=settings) as producer:
        for tag in tags:
            await producer.send(Message(topic, tag.encode(), tag=tag))


async def test_a_batch_waits_no_longer_than_its_messages_are_invisible() -> None:
    async with virtual_cluster() as running, taker_of(running, invisible_ms=500) as consumer:
        with pytest.raises(UsageError, match="wait_ms: 500 is not less than invisible_ms, 500"):
            await consumer.run_batch(lambda _messages: None, wait_ms=500)


@pytest.mark.parametrize(
    "settings",
    [
        {"ordered": True},
        {"message_model": MessageModel.BROADCASTING},
        {"consume_from": ConsumeFrom.TIMESTAMP},
        {"invisible_ms": 0},
        {"pop_count": 33},
        {"pop_count": 0},
    ],
)
def test_unsupported_settings_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        PopConsumer("127.0.0.1:1", group="g", config=ConsumerConfig(**settings))


async def test_topics_come_and_go_while_it_runs() -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", "a", "b")
        await send(running.namesrv_addr, "u", "c")
        async with taker_of(running) as taker:
            messages = await taker.fetch(3, 3_000)
            assert len(messages) == 2
            taker.subscribe("u", "c || d")
            (message,) = await taker.fetch(2, 3_000)
            assert (message.topic, message.tag) == ("u", "c")
            assert taker.assignment() == [
                MessageQueue("t", "broker-a", -1), MessageQueue("u", "broker-a", -1),
            ]  # fmt: skip
            revival = running.brokers[0].broker.delivery.revive
            for one in (*messages, message):
                await one.ack()
            await asyncio.sleep(0.1)
            assert not len(revival.in_flight)
            await asyncio.sleep(3)  # pops of both topics wait
            taker.unsubscribe("t")
            await send(running.namesrv_addr, "t", "e")
            assert await taker.next(5_000) is None
            assert not len(revival.in_flight)
            async with taker_of(running) as other:
                passed_on = await next_of(other, 3_000)
                assert passed_on.tag == "e"


@pytest.mark.parametrize("tags", ["b || c", "*"])
async def test_changed_tags_hold_no_message_back(tags: str) -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", "a")
        async with PopConsumer(
            running.namesrv_addr, group="g", topic="t", tags="a || b", config=config()
        ) as taker:
            (first,) = await taker.fetch(1, 3_000)
            await first.ack()
            await asyncio.sleep(2)  # its next pop waits at the broker
            taker.subscribe("t", tags)
            await send(running.namesrv_addr, "t", "b", "b", "b")
            messages = await taker.fetch(3, 5_000)
            assert [message.tag for message in messages] == ["b"] * 3


async def test_what_is_popped_during_a_close_goes_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", "a")
        taker = taker_of(running)
        await taker.start()
        (first,) = await taker.fetch(1, 3_000)
        await first.ack()
        await asyncio.sleep(2)
        leave = Membership.leave

        async def slowly(
            membership: Membership, *, producer: str | None = None, consumer: str | None = None
        ) -> None:
            if consumer == "g":
                await send(running.namesrv_addr, "t", "b")
                await asyncio.sleep(0.1)
            await leave(membership, producer=producer, consumer=consumer)

        with monkeypatch.context() as patched:
            patched.setattr(Membership, "leave", slowly)
            await taker.close()
        async with taker_of(running) as other:
            passed_on = await next_of(other, 3_000)
            assert passed_on.tag == "b"


async def test_a_topic_that_is_created_later_is_found(caplog: pytest.LogCaptureFixture) -> None:
    async with virtual_cluster() as running, taker_of(running) as taker:
        await asyncio.sleep(5)
        assert caplog.text.count("topic t does not exist yet: waiting for it") == 1
        await send(running.namesrv_addr, "t", "a")
        assert await taker.next(5_000) is not None


async def test_a_topic_that_is_missing_keeps_no_other_from_being_popped() -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", "a", "b")
        taker = taker_of(running)
        taker.subscribe("missing")
        async with taker:
            assert len(await taker.fetch(2, 3_000)) == 2
            taker.subscribe("t", "a || c")
            await send(running.namesrv_addr, "t", "c")
            (message,) = await taker.fetch(1, 10_000)
            assert message.tag == "c"


async def test_an_unreadable_route_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", "a")
        taker = taker_of(running)
        async with taker:
            find, faults = Routes.find_readable, [FieldError("no route")]

            async def garbled(routes: Routes, topic: str) -> list[MessageQueue]:
                if faults:
                    raise faults.pop()
                return await find(routes, topic)

            monkeypatch.setattr(Routes, "find_readable", garbled)
            assert await taker.next(5_000) is not None
            assert not faults


async def test_a_paused_consumer_pops_nothing() -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", "a")
        taker = taker_of(running)
        taker.pause()
        async with taker:
            assert await taker.next(30_000) is None
            taker.resume()
            assert await taker.next(3_000) is not None
            with pytest.raises(UsageError, match="owns no queues"):
                taker.pause(MessageQueue("t", "broker-a", 0))


async def test_the_lag_counts_messages_that_were_not_popped() -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", *"abcdef")
        taker = taker_of(running)
        taker.pause()
        async with taker:
            await asyncio.sleep(2)
            assert sum((await taker.lag()).values()) == 6
            taker.resume()
            assert len(await taker.fetch(6, 3_000)) == 6
            assert sum((await taker.lag()).values()) == 0


async def test_the_broker_lists_it_as_a_pop_member() -> None:
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", "a")
        async with taker_of(running) as taker:
            await taker.next(3_000)
            members = running.brokers[0].broker.tables.clients.consumers("g")
            assert members is not None
            assert members.consume_type is ConsumeType.CONSUME_POP
            assert members.client_ids == [taker.client_id]


async def test_a_stopped_consumer_releases_its_buffer_and_pops_no_more(
    monkeypatch: pytest.MonkeyPatch, created: Created
) -> None:
    buffers = created(PrefetchBuffer)
    async with virtual_cluster() as running:
        await send(running.namesrv_addr, "t", *"abcdefghijklmnopqrstuvwxyz")
        pops: list[object] = []
        call_broker = ChannelPool.call

        async def recorded(pool: ChannelPool, address: str, call: Call[R], timeout_ms: int) -> R:
            if isinstance(call, Pop):
                pops.append(call)
            return await call_broker(pool, address, call, timeout_ms)

        async with taker_of(running, concurrency=1) as taker:

            async def handle(message: ReceivedMessage) -> None:
                await asyncio.sleep(0.001)
                if len(buffers[0]) >= 2:
                    waiting.append(len(buffers[0]))
                    taker.stop()
                    monkeypatch.setattr(ChannelPool, "call", recorded)

            waiting: list[int] = []
            await taker.run(handle)
            assert waiting
            await asyncio.sleep(20)  # one pop may have been under way
            assert pops == []
            revival = running.brokers[0].broker.delivery.revive
            assert len(revival.in_flight) == 0
            await send(running.namesrv_addr, "t", "z")
            await asyncio.sleep(20)
            assert len(revival.in_flight) == 0


def test_a_plain_handler_may_stop_it_from_its_thread(
    monkeypatch: pytest.MonkeyPatch, created: Created
) -> None:
    buffers = created(PrefetchBuffer)
    given_back: list[int | None] = []
    retry = PopAcks.retry

    def noted(acks: PopAcks, popped: PopBatch, message: InboundMessage, ms: int | None) -> None:
        given_back.append(ms)
        retry(acks, popped, message, ms)

    monkeypatch.setattr(PopAcks, "retry", noted)

    async def work(namesrv: str) -> int:
        settings = ConsumerConfig(consume_from=ConsumeFrom.FIRST, concurrency=1)
        async with PopConsumer(namesrv, group="g", topic="t", config=settings) as taker:

            def handle(message: ReceivedMessage) -> None:
                if len(buffers[0]):
                    held.append(len(buffers[0]))
                    taker.stop()
                time.sleep(0.001)

            async with asyncio.timeout(10):
                await taker.run(handle)
            return len(buffers[0])

    held: list[int] = []
    with BlockingCluster() as running:
        with BlockingProducer(running.namesrv_addr) as producer:
            producer.send_many(Message("t", b"%d" % n) for n in range(200))
        assert asyncio.run(work(running.namesrv_addr)) == 0
    assert held
    assert set(given_back) == {RELEASED}


def test_the_blocking_twin_pops_extends_and_acknowledges() -> None:
    with BlockingCluster() as running, BlockingProducer(running.namesrv_addr) as producer:
        for n in range(3):
            producer.send("t", b"%d" % n)
        settings = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
        with BlockingPopConsumer(
            running.namesrv_addr, group="g", topic="t", config=settings
        ) as taker:
            first = taker.next(5_000)
            assert first is not None
            first.extend(60_000)
            first.ack()
            for message in taker.fetch(2):
                with message:
                    assert message.body
            taker.subscribe("u")
            taker.unsubscribe("u")
        revival = running.brokers[0].broker.delivery.revive
        assert len(revival.in_flight) == 0
