"""The producer: requests, replies, and what is said before a connection."""

import asyncio
from collections.abc import Callable

import pytest
from faststream.exceptions import IncorrectState

from roquet.integrations.faststream import RocketBroker

MakeBroker = Callable[..., RocketBroker]


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
