"""Message traces: what became of each message can be looked up, and costs no message anything."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

import pytest

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from roquet.model.names import TRACE_TOPIC
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    SendTrace,
    Trace,
    TraceMessageType,
    TransactionTrace,
    decode,
)

Config = TypeVar("Config", ConsumerConfig, ProducerConfig)


def of(kind: type[Config], **settings: Any) -> Config:
    return kind(clock=this_loop().clock, rng=Random(3), client_ip="127.0.0.1", **settings)


async def traces(running: Cluster) -> list[tuple[Sequence[str], list[Trace]]]:
    """The keys and the records of each trace message."""
    found: list[tuple[Sequence[str], list[Trace]]] = []
    config = of(ConsumerConfig)
    async with PullConsumer(running.namesrv_addr, group="looker", config=config) as consumer:
        for queue in await consumer.queues(TRACE_TOPIC):
            result = await consumer.pull(queue, 0, 100)
            found += [(one.keys, decode(one.body.decode())) for one in result.messages]
    return found


@in_virtual_time
async def test_a_message_leaves_three_records() -> None:
    async with cluster(clock=this_loop().clock, trace_topic=True) as running:
        sending = of(ProducerConfig, trace=True)
        reading = of(ConsumerConfig, trace=True, consume_from=ConsumeFrom.FIRST)
        tried: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            tried.append(message.body)
            await asyncio.sleep(0.25)
            if len(tried) == 1:
                raise ValueError("not now")

        async with (
            Producer(running.namesrv_addr, group="shop", config=sending) as producer,
            PushConsumer(running.namesrv_addr, group="g", topic="t", config=reading) as consumer,
        ):
            receipt = await producer.send("t", b"body", tag="T", keys=("k1", "k2"))
            work = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(30)
            consumer.stop()
            await work
        found = await traces(running)
        keys = {key for some, _ in found for key in some}
        assert {receipt.message_id, "k1", "k2"} <= keys
        records = [record for _, some in found for record in some]
        (sent,) = [one for one in records if isinstance(one, SendTrace)]
        assert (sent.topic, sent.group, sent.tag, sent.keys) == ("t", "shop", "T", "k1 k2")
        assert (sent.message_id, sent.offset_message_id) == (
            receipt.message_id, receipt.offset_message_id,
        )  # fmt: skip
        assert (sent.body_length, sent.success, sent.kind) == (4, True, TraceMessageType.NORMAL)
        assert sent.store_host == running.broker_addrs[0]
        begun = [one for one in records if isinstance(one, ConsumeStartTrace)]
        ended = {one.request_id: one for one in records if isinstance(one, ConsumeEndTrace)}
        assert [one.tries for one in begun] == [0, 1]
        assert {one.message_id for one in begun} == {receipt.message_id}
        first, second = (ended[one.request_id] for one in begun)
        assert (first.success, first.outcome) == (False, ConsumeReturnType.RAISED)
        assert (second.success, second.outcome) == (True, ConsumeReturnType.SUCCESS)
        assert second.took_ms >= 250


@in_virtual_time
async def test_batches_and_delays_are_traced_message_by_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(clock=this_loop().clock, trace_topic=True) as running:
        config = of(ProducerConfig, trace=True)
        async with Producer(running.namesrv_addr, config=config) as producer:
            await producer.send_many([Message("t", b"%d" % n, keys=(f"n{n}",)) for n in range(250)])
            await producer.send("t", b"later", delay_level=1)
        records = [record for _, some in await traces(running) for record in some]
        assert sorted(one.keys for one in records if isinstance(one, SendTrace)) == sorted(
            ["", *(f"n{n}" for n in range(250))]
        )
        assert [one.kind for one in records if isinstance(one, SendTrace) and not one.keys] == [
            TraceMessageType.DELAYED
        ]
    assert "were lost" not in caplog.text


@in_virtual_time
async def test_the_end_of_a_transaction_is_traced_also_after_a_check() -> None:
    async def check(message: StoredMessage) -> TransactionState:
        return TransactionState.ROLLBACK

    async with cluster(clock=this_loop().clock, trace_topic=True) as running:
        async with TransactionProducer(
            running.namesrv_addr, group="pg", check=check, config=of(ProducerConfig, trace=True)
        ) as producer:
            async with producer.transaction("t", b"1", tag="T", keys=("k",)) as first:
                pass
            async with producer.transaction("t", b"2") as second:
                second.unknown()
            await asyncio.sleep(60)
        records = [record for _, some in await traces(running) for record in some]
        ends = {one.message_id: one for one in records if isinstance(one, TransactionTrace)}
        told, checked = ends[first.message_id], ends[second.message_id]
        assert (told.topic, told.group, told.tag, told.keys) == ("t", "pg", "T", "k")
        assert (told.state, told.from_check) == ("COMMIT_MESSAGE", False)
        assert (checked.state, checked.from_check) == ("ROLLBACK_MESSAGE", True)
        assert [one.kind for one in records if isinstance(one, SendTrace)] == [
            TraceMessageType.HALF
        ] * 2


@in_virtual_time
async def test_no_send_fails_or_waits_when_no_trace_can_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(clock=this_loop().clock) as running:
        config = of(ProducerConfig, trace=True, trace_topic="SELF_TEST_TOPIC")
        loop = asyncio.get_running_loop()
        async with Producer(running.namesrv_addr, config=config) as producer:
            began = loop.time()
            receipts = await producer.send_many(Message("t", b"x") for _ in range(900))
            assert loop.time() - began < 3
            assert len(receipts) == 900
            await asyncio.sleep(2)
            began = loop.time()
        assert loop.time() - began < 5
    assert "900 trace records of" in caplog.text


@in_virtual_time
async def test_nothing_is_traced_by_default() -> None:
    async with cluster(clock=this_loop().clock, trace_topic=True) as running:
        async with Producer(running.namesrv_addr, config=of(ProducerConfig)) as producer:
            await producer.send("t", b"x")
        assert await traces(running) == []
