"""Messages whose properties are not UTF-8, as old clients of Java and C++ write them (GBK)."""

import asyncio

import pytest
from tests.conversation.conftest import config_of, held, virtual_cluster

from roquet.client import ConsumerConfig, PopConsumer, PushConsumer, ReceivedMessage
from roquet.model import names
from roquet.net.channel import Channel
from roquet.testing.cluster import Cluster
from roquet.wire.calls.send import SendBatch
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.property_text import decode_properties, lossless_text

TAG = "标签".encode("gbk")
AS_READ = "\ufffd\ufffd\u01e9"
"""The tag as Java reads it."""

OURS = b"\x01%b\x02KEYS\x01%b\x02" % (TAG, TAG)
PROPERTIES = b"UNIQ_KEY\x01k\x02TAGS" + OURS


async def send(running: Cluster, *bodies: bytes, topic: str = "t") -> None:
    """Send a batch, whose property texts the broker gets as bytes."""
    items = [BatchItem(0, body, PROPERTIES) for body in bodies]
    call = SendBatch(
        producer_group="g", topic=topic, queue_id=0, born_timestamp=1, properties="",
        batch=True, body=encode_batch(items),
    )  # fmt: skip
    channel = await Channel.connect("127.0.0.1", running.brokers[0].port)
    await channel.call(call)
    await channel.close()


async def test_a_message_that_always_fails_is_retried_and_dead_with_its_bytes() -> None:
    async with virtual_cluster(default_queue_count=1) as running:
        await send(running, b"bad", b"good")
        seen: list[tuple[bytes, str | None, tuple[str, ...]]] = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append((message.body, message.tag, message.keys))
            if message.body == b"bad":
                raise ValueError("always")

        async with PushConsumer(
            running.namesrv_addr,
            group="g",
            topic="t",
            config=config_of(ConsumerConfig, retries_max=1),
        ) as consumer:
            await asyncio.wait([asyncio.ensure_future(consumer.run(handler))], timeout=60)
        assert sorted(seen) == [(body, AS_READ, (AS_READ,)) for body in (b"bad", b"bad", b"good")]
        (server,) = running.brokers
        assert server.broker.tables.offsets.get("g", "t", 0) == 2
        for topic in ("SCHEDULE_TOPIC_XXXX", "%RETRY%g", "%DLQ%g"):
            (record,) = [one for q in range(18) for one in held(server, topic, q)]
            assert OURS in record.properties


async def test_a_popped_message_that_is_not_acknowledged_comes_again_with_its_bytes() -> None:
    async with virtual_cluster(default_queue_count=1) as running:
        await send(running, b"one")
        tries: list[int] = []

        async def handler(message: ReceivedMessage) -> None:
            assert (message.tag, message.keys) == (AS_READ, (AS_READ,))
            tries.append(message.reconsume_times)
            if not message.reconsume_times:
                raise ValueError("once")

        async with PopConsumer(
            running.namesrv_addr, group="g", topic="t", config=config_of(ConsumerConfig)
        ) as consumer:
            await asyncio.wait([asyncio.ensure_future(consumer.run(handler))], timeout=120)
        assert tries == [0, 1]
        (again,) = held(running.brokers[0], names.pop_retry_topic("g", "t"))
        assert OURS in again.properties


@pytest.mark.parametrize("more", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "2000"}])
async def test_a_message_that_waits_is_delivered_with_its_bytes(more: dict[str, str]) -> None:
    """Copied from another log: a client's own comes in a header, whose texts are UTF-8."""
    async with virtual_cluster(default_queue_count=1) as running:
        await send(running, b"one")
        (server,) = running.brokers
        (record,) = held(server, "t")
        properties = {**decode_properties(lossless_text(record.properties)), **more}
        server.broker.log.ingest.reappend(
            record, topic="t", queue_id=0, properties=properties, reconsume_times=0
        )
        assert len(held(server, "t")) == 1
        await asyncio.sleep(10)
        assert OURS in held(server, "t")[1].properties
        assert server.broker.delivery.set_aside.total == 0
