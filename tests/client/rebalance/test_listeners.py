"""Listeners of assigned, revoked and lost queues."""

import asyncio
import contextvars
from collections.abc import Sequence

import pytest
from tests.client.conftest import Created

from roquet.client.push import PushConsumer
from roquet.client.rebalance.listeners import RebalanceListeners, await_in
from roquet.model.queue import MessageQueue

pytestmark = pytest.mark.virtual_time(False)

QUEUE = MessageQueue("t", "a", 0)


async def test_listeners_are_not_called_for_retry_topics(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []
    listeners = RebalanceListeners()
    listeners.lost = [lambda queues: 1 / 0, heard.append]
    await listeners.notify(listeners.lost, [MessageQueue("%RETRY%g", "a", 0)])
    assert heard == []
    await listeners.notify(listeners.lost, [QUEUE, MessageQueue("%RETRY%g", "a", 0)])
    assert heard == [(QUEUE,)]
    assert "a rebalance listener failed" in caplog.text


async def test_listeners_may_be_async_and_are_called_in_order() -> None:
    heard: list[str] = []

    async def slow(queues: Sequence[MessageQueue]) -> None:
        heard.append("slow")

    listeners = RebalanceListeners()
    await listeners.notify([slow, lambda queues: heard.append("quick")], [QUEUE])
    await listeners.notify([slow], [])
    assert heard == ["slow", "quick"]


def test_a_consumer_keeps_listeners_of_each_kind_apart(created: Created) -> None:
    made = created(RebalanceListeners)
    consumer = PushConsumer("127.0.0.1:1", group="g", topic="t")
    consumer.on_assigned(print)
    consumer.on_revoked(len)
    consumer.on_lost(repr)
    (listeners,) = made
    assert (listeners.assigned, listeners.revoked, listeners.lost) == ([print], [len], [repr])


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


async def test_no_listener_sees_the_context_variables_of_another() -> None:
    seen: list[str] = []

    def plain(queues: Sequence[MessageQueue]) -> None:
        seen.append(WHO.get())
        WHO.set("plain")

    async def slow(queues: Sequence[MessageQueue]) -> None:
        plain(queues)
        await asyncio.sleep(0)
        seen.append(WHO.get())

    async def fails(queues: Sequence[MessageQueue]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(5)
        plain(queues)
        raise ValueError("broken")

    listeners = RebalanceListeners()
    await listeners.notify([plain, slow, fails, plain], [QUEUE])
    assert seen == ["nobody", "nobody", "plain", "nobody", "nobody"]
    assert WHO.get() == "nobody"


async def test_variables_are_set_in_the_given_context_alone() -> None:
    async def work() -> str:
        WHO.set("me")
        await asyncio.sleep(0)
        return WHO.get()

    context = contextvars.copy_context()
    assert await await_in(context, work()) == "me"
    assert (WHO.get(), context[WHO]) == ("nobody", "me")


async def test_a_cancellation_and_an_error_go_through() -> None:
    ended: list[str] = []

    async def work() -> None:
        WHO.set("me")
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(WHO.get())

    task = asyncio.ensure_future(
        asyncio.wait_for(await_in(contextvars.copy_context(), work()), 0.01)
    )
    with pytest.raises(TimeoutError):
        await task
    assert ended == ["me"]

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await await_in(contextvars.copy_context(), fail())
