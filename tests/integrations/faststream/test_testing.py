"""TestRocketBroker: filters, groups, batches and requests without a server."""

import pytest
from faststream.exceptions import SubscriberNotFound

from roquet.client import MessageIllegal
from roquet.integrations.faststream import RocketBroker, TestRocketBroker


async def test_filters_choose_as_those_of_a_broker() -> None:
    broker, taken = RocketBroker("127.0.0.1:1"), []

    @broker.subscriber("orders", group="tags", tags="new || paid")
    async def by_tag(body: str) -> None:
        taken.append(("tags", body))

    @broker.subscriber("orders", group="sql", sql="amount > 5")
    async def by_sql(body: str) -> None:
        taken.append(("sql", body))

    async with TestRocketBroker(broker) as tested:
        await tested.publish("a", "orders", tag="paid", headers={"amount": 5})
        await tested.publish("b", "orders", tag="old", headers={"amount": 6})
        await tested.publish("c", "others", tag="new", headers={"amount": 6})
    assert taken == [("tags", "a"), ("sql", "b")]


async def test_members_of_one_group_share_messages_and_groups_do_not() -> None:
    broker, taken = RocketBroker("127.0.0.1:1"), []

    def take(group: str) -> None:
        @broker.subscriber("orders", group=group)
        async def handle(body: str) -> None:
            taken.append(group)

    for group in ("billing", "billing", "mail"):
        take(group)
    async with TestRocketBroker(broker) as tested:
        await tested.publish("x", "orders")
    assert sorted(taken) == ["billing", "mail"]


async def test_a_batch_comes_as_one_call() -> None:
    broker, taken = RocketBroker("127.0.0.1:1"), []

    @broker.subscriber("orders", group="batches", batch=True)
    async def handle(numbers: list[int]) -> None:
        taken.append(numbers)

    async with TestRocketBroker(broker) as tested:
        receipts = await tested.publish_batch(1, 2, topic="orders")
        await tested.publish(3, "orders")
    assert taken == [[1, 2], [3]]
    assert [receipt.queue_offset for receipt in receipts] == [0, 1]


async def test_a_handlers_error_is_raised_by_the_publish() -> None:
    broker = RocketBroker("127.0.0.1:1")

    @broker.subscriber("orders", group="billing")
    async def fail(body: str) -> None:
        raise ValueError(body)

    async with TestRocketBroker(broker) as tested:
        with pytest.raises(ValueError, match="bad"):
            await tested.publish("bad", "orders")


async def test_a_message_that_a_broker_would_refuse_is_refused() -> None:
    async with TestRocketBroker(RocketBroker("127.0.0.1:1")) as tested:
        with pytest.raises(MessageIllegal):
            await tested.publish(b"x" * 5_000_000, "orders")


async def test_a_request_needs_a_subscriber() -> None:
    broker = RocketBroker("127.0.0.1:1")

    @broker.subscriber("quotes", group="quotes")
    async def quote(amount: int) -> int:
        return amount * 2

    async with TestRocketBroker(broker) as tested:
        assert await (await tested.request(21, "quotes")).decode() == 42
        with pytest.raises(SubscriberNotFound):
            await tested.request(21, "nowhere")
