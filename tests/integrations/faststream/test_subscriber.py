"""Subscribers: when messages are settled, and what a stop leaves to others."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import pytest
from faststream import AckPolicy, Context
from faststream.exceptions import NackMessage, SetupError, StopConsume

from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer
from roquet.integrations.faststream import RocketBroker, RocketMessage

MakeBroker = Callable[..., RocketBroker]
Message = Annotated[RocketMessage, Context("message")]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - other tasks and threads change it
            await asyncio.sleep(0.01)


async def test_a_message_whose_handler_did_not_end_comes_again(make_broker: MakeBroker) -> None:
    first, second = make_broker(graceful_timeout=0.1), make_broker()
    began: list[str] = []
    handled: list[str] = []

    @first.subscriber("Interrupted", group="interrupted")
    async def hang(body: str) -> None:
        began.append(body)
        await asyncio.sleep(60)

    @second.subscriber("Interrupted", group="interrupted")
    async def handle(body: str) -> None:
        handled.append(body)

    async with first:
        await first.start()
        await first.publish("once", "Interrupted")
        await until(lambda: began)
    async with second:
        await second.start()
        await until(lambda: handled)
    assert handled == ["once"]


async def test_a_failed_message_comes_again_and_an_acknowledged_one_does_not(
    make_broker: MakeBroker,
) -> None:
    broker, tries = make_broker(), []

    @broker.subscriber("Failing", group="failing")
    async def fail_once(body: str, message: Message) -> None:
        tries.append((body, message.raw_message.tries))
        if body == "bad" and message.raw_message.tries == 0:
            raise NackMessage(delay_ms=1000)

    async with broker:
        await broker.start()
        for body in ("good", "bad"):
            await broker.publish(body, "Failing")
        await until(lambda: ("bad", 1) in tries)
    assert sorted(tries) == [("bad", 0), ("bad", 1), ("good", 0)]


async def test_a_rejected_message_is_a_dead_letter(make_broker: MakeBroker, address: str) -> None:
    broker = make_broker(ack_policy=AckPolicy.REJECT_ON_ERROR)

    @broker.subscriber("Rejected", group="rejecting")
    async def refuse(body: str) -> None:
        raise ValueError(body)

    first = ConsumerConfig(
        consume_from=ConsumeFrom.FIRST, route_period_ms=50, rebalance_period_ms=100
    )
    letters = PushConsumer(address, group="letters", topic="%DLQ%rejecting", config=first)
    async with broker, letters:
        await broker.start()
        await broker.publish("poison", "Rejected", keys="7")
        letter = await letters.next(20_000)
    assert letter is not None
    assert (letter.body, letter.key) == (b"poison", "7")


async def test_a_manual_handler_settles_later(make_broker: MakeBroker) -> None:
    first, second, kept = make_broker(), make_broker(), []

    @first.subscriber("Manual", group="manual", ack_policy=AckPolicy.MANUAL)
    async def keep(body: str, message: Message) -> None:
        kept.append(message)

    again: list[str] = []

    @second.subscriber("Manual", group="manual")
    async def handle(body: str) -> None:
        again.append(body)

    async with first:
        await first.start()
        for body in ("a", "b"):
            await first.publish(body, "Manual", order_key="one queue")
        await until(lambda: len(kept) == 2)
        await kept[0].ack()
    async with second:
        await second.start()
        await until(lambda: again)
    assert again == ["b"]


async def test_a_batch_is_handled_when_it_is_full_or_its_time_is_over(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    batches: list[list[int]] = []

    @broker.subscriber("Batches", group="batches", batch=True, batch_size=2)
    async def handle(numbers: list[int]) -> None:
        batches.append(numbers)

    async with broker:
        await broker.publish_batch(1, 2, 3, topic="Batches", order_key="one queue")
        await broker.start()
        await until(lambda: len(batches) == 2)
    assert batches == [[1, 2], [3]]


async def test_workers_handle_messages_at_the_same_time(make_broker: MakeBroker) -> None:
    broker, running = make_broker(), 0
    together = asyncio.Event()

    @broker.subscriber("Parallel", group="parallel", max_workers=3)
    async def handle(number: int) -> None:
        nonlocal running
        running += 1
        if running == 3:
            together.set()
        await together.wait()

    async with broker:
        await broker.start()
        await broker.publish_batch(1, 2, 3, topic="Parallel")
        async with asyncio.timeout(20):
            await together.wait()


async def test_urgent_messages_are_popped(make_broker: MakeBroker) -> None:
    broker, popped = make_broker(), []

    @broker.subscriber("Popped", group="popping", pop=True)
    async def handle(body: str, message: Message) -> None:
        popped.append((body, type(message.raw_message).__name__))

    async with broker:
        await broker.publish("x", "Popped", priority=3)
        await broker.start()
        await until(lambda: popped)
    assert popped == [("x", "PoppedMessage")]


async def test_a_handler_may_stop_its_subscriber_and_no_other(make_broker: MakeBroker) -> None:
    broker, handled = make_broker(), []

    @broker.subscriber("Stopping", group="stopping")
    async def stop(body: str) -> None:
        handled.append(body)
        raise StopConsume

    @broker.subscriber("Going", group="going")
    async def go_on(body: str) -> None:
        handled.append(body)

    async with broker:
        await broker.start()
        await broker.publish("stop", "Stopping")
        await until(lambda: handled)
        await broker.publish("stop", "Stopping")
        await broker.publish("go", "Going")
        await until(lambda: "go" in handled)
        await asyncio.sleep(0.3)
    assert handled == ["stop", "go"]


async def test_a_subscriber_without_handlers_hands_messages_out(make_broker: MakeBroker) -> None:
    broker = make_broker()
    subscriber = broker.subscriber("Fetched", group="fetching")
    async with broker:
        await broker.start()
        assert await subscriber.get_one(timeout=0.01) is None
        await broker.publish("one", "Fetched", order_key="one queue")
        await broker.publish("two", "Fetched", order_key="one queue")
        first = await subscriber.get_one(timeout=20)
        assert first is not None
        await first.ack()
        async for message in subscriber:
            assert [await first.decode(), await message.decode()] == ["one", "two"]
            break


async def test_a_subscriber_without_a_group_says_what_to_give(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.subscriber("Orders")
    async with broker:
        with pytest.raises(SetupError, match="group='billing'"):
            await broker.start()


async def test_a_group_has_one_subscription(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.subscriber("Orders", group="billing")
    broker.subscriber("Orders", group="billing", tags="new")
    with pytest.raises(SetupError, match="one subscription"):
        await broker.start()
