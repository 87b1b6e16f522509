"""Types of the public API as users see them: checked by mypy."""

from collections.abc import Mapping, Sequence
from typing import assert_type

from roquet import client
from roquet.client import (
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullResult,
    PushConsumer,
    ReceivedMessage,
    ReplyMessage,
    SendReceipt,
    StoredMessage,
    blocking,
)


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


def test_what_is_offered_is_there() -> None:
    missing = [name for name in client.__all__ if not hasattr(client, name)]
    assert missing == []
