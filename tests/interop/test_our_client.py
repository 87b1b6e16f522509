"""Our client against Apache RocketMQ 5.5.0."""

import asyncio

import pytest

from harness import genuine
from roquet.client import Producer, PullConsumer, PushConsumer
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.reading.message import ReceivedMessage
from roquet.model.message import Message

pytestmark = pytest.mark.interop
FROM_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


async def test_our_messages_come_back_from_the_apache_broker(theirs: genuine.Genuine) -> None:
    bodies = [bytes([0, number, 255]) * 5 for number in range(50)]
    async with Producer(theirs.namesrv, group="ours") as producer:
        for number, body in enumerate(bodies):
            receipt = await producer.send(
                Message(
                    "FromOurs", body, tag="T", keys=(f"k{number}",), properties={"n": str(number)}
                )
            )
            assert receipt.ok
        big = await producer.send(Message("FromOurs", b"z" * 20_000, tag="T"))
        assert big.ok
        await producer.send_batch(
            [Message("FromOurs", b"batch %d" % n, tag="T") for n in range(10)]
        )

    seen: list[ReceivedMessage] = []
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message)
        if len(seen) >= 61:
            done.set()

    async with PushConsumer(
        theirs.namesrv, group="ours-group", topic="FromOurs", config=FROM_FIRST
    ) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        async with asyncio.timeout(60):
            await done.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    by_number = {m.properties["n"]: m.body for m in seen if "n" in m.properties}
    assert [by_number[str(n)] for n in range(50)] == bodies
    assert b"z" * 20_000 in [m.body for m in seen]
    assert {b"batch %d" % n for n in range(10)} <= {m.body for m in seen}


async def test_progress_committed_there_is_found_again(theirs: genuine.Genuine) -> None:
    async with Producer(theirs.namesrv, group="ours") as producer:
        receipt = await producer.send(Message("Progress", b"one"))
    async with PullConsumer(theirs.namesrv, group="ours-progress") as consumer:
        assert (await consumer.pull(receipt.queue, receipt.queue_offset, 1)).messages[
            0
        ].body == b"one"
        await consumer.commit(receipt.queue, receipt.queue_offset + 1)
    async with PullConsumer(theirs.namesrv, group="ours-progress") as consumer:
        assert await consumer.committed(receipt.queue) == receipt.queue_offset + 1
