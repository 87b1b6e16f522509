"""The worst messages and moments: a bad message harms no other one, an outage loses none."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from faststream import AckPolicy, Context
from faststream.exceptions import NackMessage

from roquet.client import ConnectFailed, ConsumeFrom, ConsumerConfig, PushConsumer, RoquetError
from roquet.integrations.faststream import RocketBroker, RocketMessage
from roquet.model.errors import MessageIllegal
from roquet.net.blocking import BlockingChannel
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.send import Send

Message = Annotated[RocketMessage, Context("message")]

AT_ONCE = ConsumerConfig(
    consume_from=ConsumeFrom.FIRST, route_period_ms=50, rebalance_period_ms=100, retries_max=0
)
"""Finds new topics at once, and gives a message up when it fails for the first time."""


async def until(is_so: Callable[[], object], within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - other tasks and threads change it
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def running() -> Any:
    with BlockingCluster() as cluster:
        yield cluster


def send(
    running: BlockingCluster,
    topic: str,
    body: bytes,
    properties: Mapping[str, str] | str = "",
    sys_flag: int = 0,
) -> None:
    """Store a message in queue 0 past all checks of a producer."""
    if not isinstance(properties, str):
        properties = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    with BlockingChannel(running.broker_addrs[0]) as channel:
        channel.call(
            Send(
                producer_group="p", topic=topic, queue_id=0, born_timestamp=0, sys_flag=sys_flag,
                properties=properties, body=body,
            )
        )  # fmt: skip


JSON, TEXT = {"content-type": "application/json"}, {"content-type": "text/plain"}

FAILING: dict[str, tuple[bytes, Mapping[str, str] | str, int]] = {
    "no text": (b"\xff\xfe\x00", TEXT, 0),
    "no JSON": (b"{", JSON, 0),
    "deep JSON": (b"[" * 100_000, JSON, 0),
    "deep JSON without a type": (b"[" * 100_000, "", 0),
    "a number of many digits": (b"9" * 100_000, JSON, 0),
    "damaged": (b"no zlib", "", 1),
    "a reply that is too long": (b"x", {"correlation_id": "x" * 32_630, "reply_to": "A"}, 0),
    "a reply to no topic": (b"x", {"reply_to": "no topic!"}, 0),
    "a reply to a topic of the system": (b"x", {"reply_to": "RMQ_SYS_TRANS_HALF_TOPIC"}, 0),
    "a reply to the marker": (b"x", {"reply_to": "the producer that waits"}, 0),
}
"""Messages that cannot be handled: their bodies, properties and system flags."""

HANDLED: dict[str, tuple[bytes, Mapping[str, str] | str, int]] = {
    "any bytes": (bytes(range(256)), "", 0),
    "an unknown type": (b"x", {"content-type": "\x7f/\ud800"}, 0),
    "control characters": (b"x", {"correlation_id": "a\nb\r\x1b[31m", "trace": "\n" * 99}, 0),
    "lone surrogates": (b"x", {"correlation_id": "\ud800", "\udfff": "\udfff"}, 0),
    "no properties at all": (b"x", "\x02\x02\x01", 0),
    "a request of nobody": (b"x", {"REPLY_TO_CLIENT": "nobody", "CLUSTER": "no cluster!"}, 0),
    "an empty body in words": (b"\0", {"empty_body": "true", "content-type": ""}, 0),
}
"""Messages that are unusual, and no more."""


async def letters(address: str, group: str, count: int) -> list[bytes]:
    dlq = PushConsumer(address, group=f"{group}-letters", topic=f"%DLQ%{group}", config=AT_ONCE)
    async with dlq:
        found = [await dlq.next(20_000) for _ in range(count)]
    return [letter.body if letter.stored_body[1] == 0 else b"?" for letter in found if letter]


@pytest.mark.parametrize("pop", [False, True])
@pytest.mark.parametrize("name", [*FAILING, *HANDLED])
async def test_a_bad_message_is_a_dead_letter_or_handled_and_harms_no_other(
    name: str, pop: bool, running: BlockingCluster
) -> None:
    topic = f"Bad{[*FAILING, *HANDLED].index(name)}{pop}"
    body, properties, sys_flag = {**FAILING, **HANDLED}[name]
    broker = RocketBroker(running.namesrv_addr, consumer=AT_ONCE, logger=None)
    handled: list[Any] = []

    @broker.subscriber(topic, group=topic, pop=pop)
    async def handle(body: Any) -> str:
        handled.append(body)
        return "done"

    send(running, topic, body, properties, sys_flag)
    send(running, topic, b"good")
    async with broker:
        await broker.start()
        await until(lambda: b"good" in handled)
        if name in FAILING:
            assert len(await letters(running.namesrv_addr, topic, 1)) == 1
        else:
            await until(lambda: len(handled) == 2)
        assert await broker.ping()


async def test_a_message_whose_settlement_fails_does_not_hold_back_its_queue(
    running: BlockingCluster,
) -> None:
    broker = RocketBroker(running.namesrv_addr, consumer=AT_ONCE, logger=None)

    @broker.subscriber("Unsettled", group="unsettled")
    async def refuse(body: str) -> None:
        raise NackMessage(delay_ms=-1)

    send(running, "Unsettled", b"x")
    async with broker:
        await broker.start()
        assert await letters(running.namesrv_addr, "unsettled", 1) == [b"x"]


async def test_a_bad_message_of_a_batch_takes_no_other_to_the_dead_letters(
    running: BlockingCluster,
) -> None:
    config = msgspec.structs.replace(AT_ONCE, retries_max=1)
    broker = RocketBroker(running.namesrv_addr, consumer=config, logger=None)
    handled: list[int] = []

    @broker.subscriber("Poisoned", group="poisoned", batch=True)
    async def handle(numbers: list[int]) -> None:
        handled.extend(numbers)

    for body in (b"1", b"poison", b"2"):
        send(running, "Poisoned", body)
    async with broker:
        await broker.start()
        assert await letters(running.namesrv_addr, "poisoned", 1) == [b"poison"]
        await until(lambda: sorted(handled) == [1, 2])


@pytest.mark.parametrize("policy", [*AckPolicy])
async def test_a_damaged_message_is_settled_by_every_policy(
    policy: AckPolicy, running: BlockingCluster
) -> None:
    topic = f"Damaged{policy.name}"
    broker = RocketBroker(running.namesrv_addr, consumer=AT_ONCE, logger=None)
    handled = asyncio.Event()

    @broker.subscriber(topic, group=topic, batch=True, ack_policy=policy)
    async def handle(bodies: list[Any], message: Message) -> None:
        assert bodies == [b"good"]
        await message.ack()
        handled.set()

    send(running, topic, b"no zlib", sys_flag=1)
    send(running, topic, b"good")
    async with broker:
        await broker.start()
        async with asyncio.timeout(20):
            await handled.wait()
        assert await letters(running.namesrv_addr, topic, 1) == [b"?"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"headers": {"trace": ""}}, "property 'trace' is empty"),
        ({"headers": {"a\x01": "b"}}, "U\\+0001"),
        ({"headers": {"big": "x" * 40_000}}, "over the limit"),
        ({"correlation_id": "a\x02"}, "U\\+0001 or U\\+0002"),
    ],
)
async def test_a_message_that_no_broker_takes_is_refused_with_the_reason(
    options: Any, reason: str, running: BlockingCluster
) -> None:
    async with RocketBroker(running.namesrv_addr, logger=None) as broker:
        with pytest.raises(MessageIllegal, match=reason):
            await broker.publish("x", "Refused", **options)


async def test_a_broker_that_is_away_at_the_start_is_found_later(tmp_path: Path) -> None:
    with BlockingCluster(store=tmp_path) as running:
        running.stop_broker(0)
        broker = RocketBroker(running.namesrv_addr, consumer=AT_ONCE, logger=None)
        handled: list[str] = []

        @broker.subscriber("Later", group="later")
        async def handle(body: str) -> None:
            handled.append(body)

        async with broker:
            await broker.start()
            with pytest.raises(RoquetError):
                await broker.publish("lost", "Later")
            running.start_broker(0)
            await publish_at_last(broker, "kept", "Later")
            await until(lambda: handled == ["kept"], 60)


async def publish_at_last(broker: RocketBroker, body: str, topic: str) -> None:
    """Publish until a broker takes it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await broker.publish(body, topic)
            except RoquetError:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.mark.parametrize("pop", [False, True])
async def test_a_broker_that_goes_in_the_middle_loses_no_message(pop: bool, tmp_path: Path) -> None:
    with BlockingCluster(store=tmp_path) as running:
        broker = RocketBroker(running.namesrv_addr, consumer=AT_ONCE, logger=None)
        began, go_on, handled = asyncio.Event(), asyncio.Event(), list[int]()

        @broker.subscriber("Middle", group="middle", pop=pop)
        async def handle(number: int) -> None:
            began.set()
            await go_on.wait()
            handled.append(number)

        async with broker:
            await broker.publish_batch(*range(20), topic="Middle")
            await broker.start()
            async with asyncio.timeout(20):
                await began.wait()
            await asyncio.to_thread(running.stop_broker, 0)
            go_on.set()
            await until(lambda: handled)
            await asyncio.to_thread(running.start_broker, 0)
            await until(lambda: {*handled} == {*range(20)}, 90)


async def test_a_name_server_that_is_away_is_named() -> None:
    async with RocketBroker("127.0.0.1:1", logger=None) as broker:
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
            await broker.publish("x", "Orders")


@asynccontextmanager
async def stopping(broker: RocketBroker, within_s: float) -> AsyncIterator[None]:
    async with broker:
        await broker.start()
        yield
        async with asyncio.timeout(within_s):
            await broker.stop()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("pop", [False, True])
async def test_a_handler_that_never_ends_holds_up_no_stop_and_loses_nothing(
    pop: bool, batch: bool, running: BlockingCluster
) -> None:
    name = f"Endless{pop}{batch}"
    config = ConsumerConfig(
        consume_from=ConsumeFrom.FIRST, route_period_ms=50, rebalance_period_ms=100,
        close_timeout_ms=100, invisible_ms=3000,
    )  # fmt: skip
    broker = RocketBroker(running.namesrv_addr, consumer=config, logger=None, graceful_timeout=0.1)
    began, end = asyncio.Event(), asyncio.Event()

    @broker.subscriber(name, group=name, pop=pop, batch=batch, batch_wait_ms=10)
    async def hang(_body: Any) -> None:
        began.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue  # the worst handler swallows it

    async with stopping(broker, 10):
        await broker.publish_batch("a", "b", topic=name, order_key="one queue")
        async with asyncio.timeout(20):
            await began.wait()
    second = RocketBroker(running.namesrv_addr, consumer=config, logger=None)
    again: list[str] = []

    @second.subscriber(name, group=name, pop=pop)
    async def handle(body: str) -> None:
        again.append(body)

    async with second:
        await second.start()
        await until(lambda: {*again} == {"a", "b"}, 30)
    end.set()


async def test_a_batch_subscriber_whose_consumer_was_stopped_leaves_the_loop_to_others(
    running: BlockingCluster,
) -> None:
    broker = RocketBroker(running.namesrv_addr, consumer=AT_ONCE, logger=None)
    subscriber = broker.subscriber("Stopped", group="stopped", batch=True)

    @subscriber
    async def handle(bodies: list[str]) -> None: ...

    async with broker:
        await broker.start()
        assert subscriber.consumer is not None
        subscriber.consumer.stop()  # as SIGTERM does, where the program does not handle it
        await asyncio.sleep(0.3)
