"""Values all the way: from a producer to a handler, and to the dead letters with the reason."""

import asyncio
import json
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from tests.conversation.conftest import config_of, puller_of, send, virtual_cluster

from roquet.client import (
    BodyError,
    ConsumerConfig,
    Message,
    PopConsumer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
    TransactionProducer,
    TransactionState,
    UsageError,
)
from roquet.testing.cluster import Cluster


@dataclass
class Order:
    number: int


def encode(order: Order) -> bytes:
    return json.dumps(asdict(order)).encode()


def decode(body: bytes) -> Order:
    return Order(**json.loads(body))


async def check(message: StoredMessage) -> TransactionState:
    del message
    return TransactionState.UNKNOWN


def typed_producer(running: Cluster, **settings: Any) -> TransactionProducer[Order]:
    config = config_of(ProducerConfig, **settings)
    return TransactionProducer(
        running.namesrv_addr, group="shop", check=check, config=config, encode=encode
    )


def typed_consumer(running: Cluster, **settings: Any) -> PushConsumer[Order]:
    config = config_of(ConsumerConfig, **settings)
    return PushConsumer(running.namesrv_addr, group="g", topic="t", config=config, decode=decode)


async def dead_letters(running: Cluster) -> list[StoredMessage]:
    async with puller_of(running, "look") as consumer:
        queues = await consumer.queues("%DLQ%g")
        results = [await consumer.pull(queue, 0) for queue in queues]
        return [message for result in results for message in result.messages]


@pytest.mark.parametrize("linger_ms", [None, 0, 5])
async def test_every_way_to_send_makes_bodies_of_values(linger_ms: int | None) -> None:
    async with virtual_cluster() as running:
        async with typed_producer(running, linger_ms=linger_ms) as producer:
            await producer.send("t", Order(1))
            await producer.send(Message("t", Order(2), tag="a"))
            await producer.send_oneway("t", Order(3))
            await producer.send_batch([Message("t", Order(4)), Message("t", Order(5))])
            await producer.send_many(Message("t", Order(n)) for n in (6, 7))
            async with producer.transaction("t", Order(8)):
                pass
            result = await producer.send_in_transaction(
                "t", Order(9), local=lambda _: TransactionState.COMMIT
            )
            assert result.receipt.ok
        async with typed_consumer(running) as consumer:
            messages = await consumer.fetch(9)
            assert sorted(message.value.number for message in messages) == list(range(1, 10))
            assert {message.body_type for message in messages} == {"Order"}


async def test_a_request_has_a_value_and_its_reply_a_body() -> None:
    async with (
        virtual_cluster() as running,
        typed_consumer(running) as consumer,
        typed_producer(running) as producer,
    ):

        async def answer(message: ReceivedMessage[Order]) -> None:
            await message.reply(b"%d" % (message.value.number + 1))

        answering = asyncio.create_task(consumer.run(answer))
        reply = await producer.request("t", Order(41), timeout_ms=60_000)
        assert reply.body == b"42"
        consumer.stop()
        await answering


async def test_a_body_that_cannot_be_decoded_is_a_dead_letter_with_the_reason() -> None:
    async with virtual_cluster() as running:
        await send(running, b'{"number": 1}', b"{", b'{"number": 3}', keys="k")
        async with typed_consumer(running) as consumer:
            messages = await consumer.fetch(3, 10_000)
            assert sorted(message.value.number for message in messages) == [1, 3]
            for message in messages:
                await message.ack()
        (letter,) = await dead_letters(running)
        assert letter.properties["DLQ_REASON"].startswith("JSONDecodeError: Expecting property")
        assert letter.properties["DLQ_ORIGIN_TOPIC"] == "t"
        assert (letter.body, letter.keys, letter.reconsume_times) == (b"{", ("k",), 1)
        async with typed_consumer(running) as consumer:
            assert await consumer.next(10_000) is None


async def test_a_popped_body_that_cannot_be_decoded_is_a_dead_letter_once() -> None:
    async with virtual_cluster() as running:
        await send(running, b"{", b'{"number": 2}')
        config = config_of(ConsumerConfig, invisible_ms=20_000)
        consumer = PopConsumer(
            running.namesrv_addr, group="g", topic="t", config=config, decode=decode
        )
        async with consumer:
            message = await consumer.next(60_000)
            assert message is not None
            assert message.value == Order(2)
            await message.dead_letter("no such\narticle")
            assert await consumer.next(120_000) is None
        letters = {one.body: one.properties for one in await dead_letters(running)}
        assert letters[b"{"]["DLQ_REASON"].startswith("JSONDecodeError")
        assert letters[b'{"number": 2}']["DLQ_REASON"] == "no such; article"
        assert ["POP_CK" in properties for properties in letters.values()] == [False, False]


async def test_an_ordered_group_gives_up_what_cannot_be_decoded_and_goes_on() -> None:
    async with virtual_cluster(brokers=2) as running:
        await send(running, b'{"number": 1}', b"{", b'{"number": 3}', order_key="o")
        seen = []

        async def handler(message: ReceivedMessage[Order]) -> None:
            seen.append(message.value.number)

        async with typed_consumer(running, ordered=True) as consumer:
            running_handler = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(20)
            consumer.stop()
            await running_handler
        assert seen == [1, 3]
        assert [letter.body for letter in await dead_letters(running)] == [b"{"]


async def test_a_pull_consumer_hands_out_what_cannot_be_decoded() -> None:
    async with virtual_cluster() as running:
        await send(running, b"{", order_key="o")
        config = config_of(ConsumerConfig)
        async with PullConsumer(
            running.namesrv_addr, group="g", config=config, decode=decode
        ) as consumer:
            await consumer.subscribe("t")
            (message,) = await consumer.poll(timeout_ms=20_000)
            assert message.body == b"{"
            with pytest.raises(BodyError, match="cannot be decoded: JSONDecodeError"):
                _ = message.value
            await message.dead_letter("seen by the audit")
            await asyncio.sleep(5)
        (letter,) = await dead_letters(running)
        assert letter.properties["DLQ_REASON"] == "seen by the audit"


async def test_a_pull_consumers_handler_gets_only_values(caplog: pytest.LogCaptureFixture) -> None:
    async with virtual_cluster() as running:
        await send(running, b"{", b'{"number": 2}', order_key="o")
        config = config_of(ConsumerConfig)
        async with PullConsumer(
            running.namesrv_addr, group="g", config=config, decode=decode
        ) as consumer:
            await consumer.subscribe("t")
            seen = []

            async def handler(message: ReceivedMessage[Order]) -> None:
                seen.append(message.value)

            running_handler = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(60)
            consumer.stop()
            await running_handler
            assert seen == [Order(2)]
            (queue,) = [q for q in consumer.assignment() if await consumer.max_offset(q)]
            await consumer.commit()
            assert await consumer.committed(queue) == 2
        assert sum("is skipped, as it cannot be decoded" in one for one in caplog.messages) == 1
        assert await dead_letters(running) == []


async def test_a_reason_is_a_text() -> None:
    async with virtual_cluster() as running:
        await send(running, b'{"number": 1}')
        async with typed_consumer(running) as consumer:
            message = await consumer.next(60_000)
            assert message is not None
            with pytest.raises(UsageError, match="a reason is a str"):
                await message.dead_letter(3)  # type: ignore[arg-type]
            await message.ack()


async def test_what_is_around_a_transaction_sees_the_value_of_its_half_message() -> None:
    seen: list[Order] = []

    class Noted:
        def __init__(self, message: Message[Order]) -> None:
            self.message = message

        async def __aenter__(self) -> None:
            seen.append(self.message.body)

        async def __aexit__(self, *_: object) -> None: ...

    async with virtual_cluster() as running, typed_producer(running, around=[Noted]) as producer:
        async with producer.transaction("t", Order(1)):
            assert seen == [Order(1)]
        with pytest.raises(TypeError, match="JSON serializable"):
            await producer.send("t", Order({1}))  # type: ignore[arg-type]
    assert len(seen) == 1, "what cannot be encoded is not sent"
