"""Message traces: what became of each message can be looked up, and costs no message anything."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.conversation.conftest import config_of, producer_of, puller_of, virtual_cluster

from roquet.client import (
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from roquet.model.names import TRACE_TOPIC
from roquet.testing.cluster import Cluster
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

BODIES = (b"1", b"2", b"bad", b"3")


async def traces(running: Cluster) -> list[tuple[Sequence[str], list[Trace]]]:
    """The keys and the records of each trace message."""
    found: list[tuple[Sequence[str], list[Trace]]] = []
    async with puller_of(running, "looker") as consumer:
        for queue in await consumer.queues(TRACE_TOPIC):
            result = await consumer.pull(queue, 0, 100)
            found += [(one.keys, decode(one.body.decode())) for one in result.messages]
    return found


async def test_a_message_leaves_three_records() -> None:
    async with virtual_cluster(trace_topic=True) as running:
        sending = config_of(ProducerConfig, trace=True)
        reading = config_of(ConsumerConfig, trace=True)
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


async def test_messages_of_a_batch_are_traced_each_with_its_own_outcome() -> None:
    async with virtual_cluster(trace_topic=True) as running:
        reading = config_of(ConsumerConfig, trace=True, retries_max=0)
        async with (
            producer_of(running) as producer,
            PushConsumer(
                running.namesrv_addr, group="g", topic="t", config=reading, decode=int
            ) as consumer,
        ):
            await producer.send_many([Message("t", body, keys=body.decode()) for body in BODIES])

            async def handler(messages: Sequence[ReceivedMessage[int]]) -> None:
                await asyncio.sleep(0.4)
                for message in messages:
                    if message.value == 2:
                        await message.dead_letter()
                consumer.stop()

            await consumer.run_batch(handler, size=len(BODIES), wait_ms=60_000)
        records = [record for _, some in await traces(running) for record in some]
        begun = [one for one in records if isinstance(one, ConsumeStartTrace)]
        ended = [one for one in records if isinstance(one, ConsumeEndTrace)]
        (request_id,) = {one.request_id for one in begun}
        assert [one.request_id for one in ended] == [request_id] * len(begun) == 4 * [request_id]
        assert {one.keys: one.outcome for one in ended} == {
            "1": ConsumeReturnType.SUCCESS,
            "2": ConsumeReturnType.FAILED,
            "bad": ConsumeReturnType.FAILED,
            "3": ConsumeReturnType.SUCCESS,
        }
        assert {one.took_ms for one in ended} == {100}


async def test_batches_and_delays_are_traced_by_message(caplog: pytest.LogCaptureFixture) -> None:
    async with virtual_cluster(trace_topic=True) as running:
        async with producer_of(running, trace=True) as producer:
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


async def test_the_end_of_a_transaction_is_traced_also_after_a_check() -> None:
    async def check(message: StoredMessage) -> TransactionState:
        return TransactionState.ROLLBACK

    async with virtual_cluster(trace_topic=True) as running:
        async with TransactionProducer(
            running.namesrv_addr,
            group="pg",
            check=check,
            config=config_of(ProducerConfig, trace=True),
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


async def test_no_send_fails_or_waits_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    async with virtual_cluster() as running:
        config = config_of(ProducerConfig, trace=True, trace_topic="SELF_TEST_TOPIC")
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


async def test_nothing_is_traced_by_default() -> None:
    async with virtual_cluster(trace_topic=True) as running:
        async with producer_of(running) as producer:
            await producer.send("t", b"x")
        assert await traces(running) == []
