"""Types of the public API as users see them: checked by mypy."""

from collections.abc import Mapping, Sequence
from typing import assert_type

from roquet import client
from roquet.client import (
    Message,
    MessageQueue,
    PopConsumer,
    PoppedMessage,
    Producer,
    PullConsumer,
    PullResult,
    PushConsumer,
    ReceivedMessage,
    ReplyMessage,
    SendReceipt,
    StoredMessage,
    TransactionProducer,
    blocking,
)


class Order:
    number = 0


def encode(order: Order) -> bytes:
    return b"%d" % order.number


def decode(body: bytes) -> Order:
    del body
    return Order()


async def sending(producer: Producer) -> None:
    assert_type(await producer.send("t", b"x", tag="a", keys=["k"]), SendReceipt)
    assert_type(await producer.send(Message("t", b"x")), SendReceipt)
    assert_type(await producer.send_batch([Message("t", b"x")]), SendReceipt)
    assert_type(await producer.send_many([]), Sequence[SendReceipt])
    assert_type(await producer.request("t", b"x", timeout_ms=5_000), ReplyMessage)
    async for receipt in producer.send_many([]):
        assert_type(receipt, SendReceipt)


async def pushing(consumer: PushConsumer) -> None:
    assert_type(await consumer.next(), ReceivedMessage | None)
    assert_type(await consumer.fetch(3), Sequence[ReceivedMessage])
    assert_type(consumer.assignment(), Sequence[MessageQueue])
    assert_type(await consumer.lag(), Mapping[MessageQueue, int])
    async for message in consumer.messages():
        assert_type(message, ReceivedMessage)
        assert_type(message.body, bytes)
        assert_type(await message.reply(b"x", properties={"a": "b"}), bool)
        assert_type(message.properties, Mapping[str, str])
        async with message as same:
            assert_type(same, ReceivedMessage)


async def pulling(consumer: PullConsumer, queue: MessageQueue) -> None:
    result = await consumer.pull(queue, 0)
    assert_type(result, PullResult)
    assert_type(result.messages, Sequence[StoredMessage])
    assert_type(await consumer.committed(queue), int | None)
    assert_type(await consumer.poll(), Sequence[ReceivedMessage])


def without_async(producer: blocking.Producer, consumer: blocking.PushConsumer) -> None:
    assert_type(producer.send("t", b"x"), SendReceipt)
    assert_type(producer.request(Message("t", b"x")), ReplyMessage)
    for message in consumer.messages():
        assert_type(message, blocking.ReceivedMessage)
        with message as same:
            assert_type(same, blocking.ReceivedMessage)


def popping_without_async(consumer: blocking.PopConsumer) -> None:
    assert_type(consumer.next(), blocking.PoppedMessage | None)
    assert_type(consumer.fetch(3), Sequence[blocking.PoppedMessage])
    for message in consumer.messages():
        assert_type(message, blocking.PoppedMessage)


async def typed(order: Order, message: Message[Order]) -> None:
    producer = Producer("127.0.0.1:9876", encode=encode)
    assert_type(producer, Producer[Order])
    assert_type(Producer("127.0.0.1:9876"), Producer)
    assert_type(Producer("127.0.0.1:9876"), Producer[bytes])
    assert_type(Message("t", order), Message[Order])
    assert_type(await producer.send("t", order, tag="a"), SendReceipt)
    assert_type(await producer.send(message), SendReceipt)
    assert_type(await producer.request("t", order), ReplyMessage)
    await producer.send_oneway("t", order)
    await producer.send_batch([Message("t", order), message])
    await producer.send_many(Message("t", one) for one in (order, order))
    consumer = PushConsumer("127.0.0.1:9876", group="g", decode=decode)
    assert_type(consumer, PushConsumer[Order])
    assert_type(await consumer.fetch(3), Sequence[ReceivedMessage[Order]])
    async for received in consumer:
        assert_type(received.value, Order)
        assert_type(received.body_type, str | None)
        await received.dead_letter("no such article")
    plain = PushConsumer("127.0.0.1:9876", group="g")
    async for received_plain in plain:
        assert_type(received_plain, ReceivedMessage)
        assert_type(received_plain.value, bytes)
    assert_type(await PopConsumer(group="g", decode=decode).next(), PoppedMessage[Order] | None)
    assert_type(
        await PullConsumer(group="g", decode=decode).poll(), Sequence[ReceivedMessage[Order]]
    )


async def typed_transaction(producer: TransactionProducer[Order], order: Order) -> None:
    async with producer.transaction("t", order):
        pass
    await producer.send("t", order)


def typed_without_async(order: Order) -> None:
    producer = blocking.Producer(encode=encode)
    assert_type(producer, blocking.Producer[Order])
    assert_type(producer.send("t", order), SendReceipt)
    assert_type(producer.send_batch([Message("t", order)]), SendReceipt)
    producer.request("t", order)
    consumer = blocking.PushConsumer(group="g", decode=decode)
    for message in consumer:
        assert_type(message, blocking.ReceivedMessage[Order])
        assert_type(message.value, Order)
    pop = blocking.PopConsumer(group="g", decode=decode)
    assert_type(pop.fetch(3), Sequence[blocking.PoppedMessage[Order]])
    pull = blocking.PullConsumer(group="g", decode=decode)
    assert_type(pull.poll(), Sequence[blocking.ReceivedMessage[Order]])


def test_what_is_offered_is_there() -> None:
    missing = [name for name in client.__all__ if not hasattr(client, name)]
    assert missing == []
