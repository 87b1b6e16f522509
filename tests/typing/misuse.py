"""Mistakes of users that type checkers have to find: each marked line is an error, no other is.

mypy and pyright report a mark that is not needed as well as an error that is not marked.
"""

import asyncio
from collections.abc import Sequence

from roquet.admin.client import AdminClient
from roquet.broker.settings.config import BrokerConfig
from roquet.client import (
    Chance,
    ClientConfig,
    ConsumerConfig,
    Message,
    MessageQueue,
    PopConsumer,
    PoppedMessage,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
    Tls,
    Transaction,
    TransactionProducer,
    TransactionState,
    blocking,
)
from roquet.controller.config import ControllerConfig
from roquet.dashboard.config import DashboardConfig
from roquet.namesrv.config import NameServerConfig
from roquet.testing.cluster import cluster

# Settings.

ConsumerConfig(concurency=3)  # type: ignore[call-arg]
ConsumerConfig(concurrency="3")  # type: ignore[arg-type]
ConsumerConfig(consume_from="first")  # type: ignore[arg-type]
ConsumerConfig(3)  # type: ignore[call-arg]
ConsumerConfig(send_timeout_ms=3)  # type: ignore[call-arg]
ProducerConfig(linger=5)  # type: ignore[call-arg]
ProducerConfig(selector=lambda queues: queues[0])  # type: ignore[misc, arg-type]
ClientConfig(timeout=5)  # type: ignore[call-arg]
Tls(certificate="x.pem")  # type: ignore[call-arg]
PushConsumer("127.0.0.1:9876", group="g", config=ProducerConfig())  # type: ignore[arg-type]
PushConsumer("127.0.0.1:9876", group="g", topics=["t"])  # type: ignore[call-arg]
PushConsumer("127.0.0.1:9876", topic="t")  # type: ignore[call-arg]
blocking.PopConsumer("127.0.0.1:9876", group="g", config={"pop_count": 3})  # type: ignore[arg-type]
BrokerConfig(nmae="b")  # type: ignore[call-arg]
NameServerConfig(prot=9876)  # type: ignore[call-arg]
ControllerConfig(port="9878")  # type: ignore[arg-type]
DashboardConfig(public=True)  # type: ignore[call-arg]
ConsumerConfig().concurrency = 5  # type: ignore[misc]

# Messages.

Message("t")  # type: ignore[call-arg]
Message("t", b"x", tags="a")  # type: ignore[call-arg]
Message("t", b"x", keys=17)  # type: ignore[arg-type]
Message("t", b"x", keys=[17])  # type: ignore[list-item]
Message("t", b"x", properties={"size": 3})  # type: ignore[dict-item]
Message("t", b"x", delay=5)  # type: ignore[arg-type]
Message("t", b"x", priority="high")  # type: ignore[arg-type]


async def sending(producer: Producer, message: ReceivedMessage) -> None:
    await producer.send("t")  # type: ignore[call-overload]
    await producer.send("t", "text")  # type: ignore[call-overload]
    await producer.send("t", b"x", key="4711")  # type: ignore[call-overload]
    await producer.send("t", b"x", headers={"a": "b"})  # type: ignore[call-overload]
    await producer.send("t", b"x", tags="a")  # type: ignore[call-overload]
    await producer.send(Message("t", b"x"), b"y")  # type: ignore[call-overload]
    await producer.send(Message("t", b"x"), tag="a")  # type: ignore[call-overload]
    await producer.send(message)  # type: ignore[call-overload]
    await producer.send("t", b"x", timeout_ms="3s")  # type: ignore[call-overload]
    await producer.send("t", b"x", selector=lambda queues: queues[0])  # type: ignore[misc, arg-type]
    await producer.send_batch([("t", b"x")])  # type: ignore[list-item]
    producer.send("t", b"x")  # type: ignore[unused-coroutine]
    receipt = await producer.send("t", b"x")
    assert receipt.offset  # type: ignore[attr-defined]


def sending_without_async(producer: blocking.Producer) -> None:
    producer.send("t")  # type: ignore[call-overload]
    producer.send("t", b"x", key="4711")  # type: ignore[call-overload]
    producer.request("t")  # type: ignore[call-overload]
    producer.flush("now")  # type: ignore[arg-type]
    assert producer.send("t", b"x").offset  # type: ignore[attr-defined]


# Values.


class Order:
    number = 0


def encode(order: Order) -> bytes:
    return b"%d" % order.number


def decode(body: bytes) -> Order:
    del body
    return Order()


async def decode_later(body: bytes) -> Order:
    return decode(body)


Producer("127.0.0.1:9876", encode=decode)  # type: ignore[arg-type]
Producer("127.0.0.1:9876", encode=lambda order: "text")  # type: ignore[arg-type, return-value]
PushConsumer("127.0.0.1:9876", group="g", decode=encode)  # type: ignore[arg-type]


async def handle_order(message: ReceivedMessage[Order]) -> None:
    del message


async def handle_bytes(message: ReceivedMessage) -> None:
    del message


async def values(
    orders: Producer[Order], plain: Producer, typed: PushConsumer[Order], untyped: PushConsumer
) -> None:
    await orders.send("t", Order())
    await orders.send("t", b"x")  # type: ignore[call-overload]
    await orders.send(Message("t", b"x"))  # type: ignore[arg-type]
    await orders.send_batch([Message("t", b"x")])  # type: ignore[arg-type]
    await plain.send("t", Order())  # type: ignore[call-overload]
    await plain.send(Message("t", "text"))  # type: ignore[arg-type]
    await plain.send_batch([Message("t", "text")])  # type: ignore[arg-type]
    await typed.run(handle_order)
    await typed.run(handle_bytes)  # type: ignore[arg-type]
    await untyped.run(handle_order)  # type: ignore[arg-type]
    async for message in typed:
        assert message.value.amount  # type: ignore[attr-defined]
        await message.dead_letter(17)  # type: ignore[arg-type]


def values_without_async(orders: blocking.Producer[Order]) -> None:
    orders.send("t", b"x")  # type: ignore[call-overload]


# Transactions.


def wrong_check(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


def state_of(message: StoredMessage) -> bool:
    return True


TransactionProducer("127.0.0.1:9876", group="g", check=wrong_check)  # type: ignore[arg-type]
TransactionProducer("127.0.0.1:9876", group="g", check=state_of)  # type: ignore[arg-type]
TransactionProducer("127.0.0.1:9876", group="g")  # type: ignore[call-arg]


async def in_transaction(producer: TransactionProducer, tx: Transaction) -> None:
    with producer.transaction("t", b"x"):  # type: ignore[attr-defined]
        pass
    async with producer.transaction("t"):  # type: ignore[call-overload]
        pass
    await producer.send_in_transaction("t", b"x")  # type: ignore[call-overload]
    tx.commit()  # type: ignore[attr-defined]


# Consumers.


async def handle(message: ReceivedMessage) -> None:
    await message.ack()


async def handle_popped(message: PoppedMessage) -> None:
    await message.extend(1_000)


def handle_blocking(message: blocking.ReceivedMessage) -> None:
    message.ack()


def handle_popped_blocking(message: blocking.PoppedMessage) -> None:
    message.extend(1_000)


def listen(queue: MessageQueue) -> None:
    del queue


async def consuming(push: PushConsumer, pop: PopConsumer, pull: PullConsumer) -> None:
    await pop.run(handle)
    await push.run(handle)
    await push.run(handle_popped)  # type: ignore[arg-type]
    await push.run(handle_blocking)  # type: ignore[arg-type]
    await pop.run(handle_popped)
    await pop.run(handle_popped_blocking)  # type: ignore[arg-type]
    await push.run(handle())  # type: ignore[call-arg, arg-type]
    await push.run(lambda: None)  # type: ignore[misc, arg-type]
    push.run(handle)  # type: ignore[unused-coroutine]
    push.on_assigned(listen)  # type: ignore[arg-type]
    async for message in push.messages():
        await message.extend(1_000)  # type: ignore[attr-defined]
        message.ack()  # type: ignore[unused-coroutine]
        message.settle()  # type: ignore[attr-defined]
        await message.nack(delay="5s")  # type: ignore[call-arg]
    list(push.messages())  # type: ignore[call-overload]
    async for popped in pop.messages():
        await popped.extend("5s")  # type: ignore[arg-type]
    first = await push.next(1_000)
    assert first.body  # type: ignore[union-attr]
    await push.seek(MessageQueue("t", "b", 0), 5)  # type: ignore[misc, func-returns-value]
    await pull.pull("t", 0)  # type: ignore[arg-type]
    await pull.assign("t")  # type: ignore[arg-type]


def consuming_without_async(
    push: blocking.PushConsumer, pop: blocking.PopConsumer, queues: Sequence[MessageQueue]
) -> None:
    push.run(handle_blocking)
    push.run(handle)
    push.run(handle_popped)  # type: ignore[arg-type]
    push.run(handle_popped_blocking)  # type: ignore[arg-type]
    pop.run(handle_popped_blocking)
    pop.run(handle_popped)
    for message in push.messages():
        message.extend(1_000)  # type: ignore[attr-defined]
        message.nack(delay="5s")  # type: ignore[call-arg]
        message.settle()  # type: ignore[attr-defined]
    push.pause(queues)  # type: ignore[arg-type]
    push.lag(1)  # type: ignore[call-arg]


# Tests and operators.


async def with_others(admin: AdminClient) -> None:
    async with cluster(3, store=5):  # type: ignore[arg-type]
        pass
    await admin.topics("t")  # type: ignore[call-arg]
    Chance(seed=3)  # type: ignore[call-arg]


asyncio.run(with_others)  # type: ignore[arg-type]
