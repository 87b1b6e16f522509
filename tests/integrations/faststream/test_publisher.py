"""Publishers: their fields and headers, batches, requests and replies."""

import asyncio
from collections.abc import Callable

import pytest
from faststream.exceptions import IncorrectState

from roquet.client import SendReceipt
from roquet.integrations.faststream import RocketBroker, RocketResponse, RocketRouter

MakeBroker = Callable[..., RocketBroker]


async def test_a_publisher_adds_its_fields_to_those_of_each_message(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    publisher = broker.publisher("Fields", tag="new", order_key="7", headers={"from": "shop"})
    taken = broker.subscriber("Fields", group="fields")
    async with broker:
        await broker.start()
        await publisher.publish("x", tag="paid", headers={"tries": 1})
        message = await taken.get_one(timeout=20)
    assert message is not None
    raw = message.raw_message
    assert (raw.tag, raw.order_key) == ("paid", "7")
    assert (message.headers["from"], message.headers["tries"]) == ("shop", "1")


async def test_a_result_wins_over_the_fields_of_its_publisher(make_broker: MakeBroker) -> None:
    broker = make_broker()

    @broker.subscriber("Inner", group="inner")
    @broker.publisher("Outer", tag="new", keys=["publisher"])
    async def handle(body: str) -> RocketResponse:
        return RocketResponse(body, tag="paid")

    taken = broker.subscriber("Outer", group="outer")
    async with broker:
        await broker.start()
        await broker.publish("x", "Inner")
        message = await taken.get_one(timeout=20)
    assert message is not None
    assert (message.raw_message.tag, message.raw_message.keys) == ("paid", ("publisher",))


async def test_a_batch_publisher_sends_each_item_of_a_result(make_broker: MakeBroker) -> None:
    broker = make_broker()
    publisher = broker.publisher("Items", batch=True, order_key="one queue")

    @publisher
    @broker.subscriber("Lists", group="lists")
    async def split(text: str) -> list[str]:
        return list(text)

    taken = broker.subscriber("Items", group="items")
    async with broker:
        await broker.start()
        receipts = await publisher.publish("a", "b")
        assert isinstance(receipts, list | tuple)
        assert all(isinstance(receipt, SendReceipt) for receipt in receipts)
        await broker.publish("cd", "Lists")
        messages = [await taken.get_one(timeout=20) for _ in range(4)]
    assert [await m.decode() for m in messages if m is not None] == ["a", "b", "c", "d"]


async def test_a_router_puts_its_prefix_before_topics_not_before_groups(
    make_broker: MakeBroker,
) -> None:
    router = RocketRouter(prefix="Shop_")
    publisher = router.publisher("Orders")
    taken = router.subscriber("Orders", group="shop")
    broker = make_broker(routers=[router])
    async with broker:
        await broker.start()
        await publisher.publish("x")
        message = await taken.get_one(timeout=20)
    assert message is not None
    assert (message.raw_message.topic, taken.settings.group) == ("Shop_Orders", "shop")


async def test_a_request_of_a_publisher_needs_no_topic(make_broker: MakeBroker) -> None:
    broker = make_broker()
    publisher = broker.publisher("Echoes")

    @broker.subscriber("Echoes", group="echoes")
    async def echo(body: str) -> str:
        return body

    async with broker:
        await broker.start()
        assert await (await publisher.request("hello", timeout=20)).decode() == "hello"


def test_an_unknown_option_is_refused_where_it_is_given() -> None:
    with pytest.raises(TypeError):
        RocketBroker("127.0.0.1:1").subscriber("Orders", groop="billing")  # type: ignore[call-arg]


async def test_a_request_gets_the_result_of_its_handler(make_broker: MakeBroker) -> None:
    broker = make_broker()

    @broker.subscriber("Quotes", group="quotes")
    async def quote(amount: int) -> dict[str, int]:
        return {"total": amount * 2}

    async with broker:
        await broker.start()
        answer = await broker.request(21, "Quotes", timeout=20, correlation_id="mine")
    assert (await answer.decode(), answer.correlation_id) == ({"total": 42}, "mine")


async def test_a_request_that_nobody_answers_is_a_timeout(make_broker: MakeBroker) -> None:
    async with make_broker() as broker:
        with pytest.raises(TimeoutError, match="no reply came"):
            await broker.request(1, "Unanswered", timeout=2)


async def test_a_result_goes_to_the_topic_that_a_message_names(make_broker: MakeBroker) -> None:
    broker, results = make_broker(), asyncio.Queue[int]()

    @broker.subscriber("Sums", group="sums")
    async def add(left: int, right: int) -> int:
        return left + right

    @broker.subscriber("Results", group="results")
    async def take(result: int) -> None:
        results.put_nowait(result)

    async with broker:
        await broker.start()
        await broker.publish({"left": 1, "right": 2}, "Sums", reply_to="Results")
        assert await asyncio.wait_for(results.get(), 20) == 3


async def test_a_publish_before_the_connection_says_what_to_do() -> None:
    with pytest.raises(IncorrectState, match=r"await broker\.connect"):
        await RocketBroker("127.0.0.1:1").publish("x", "Orders")
