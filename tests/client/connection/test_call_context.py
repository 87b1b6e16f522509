"""Something awaited with context variables of its own."""

import asyncio
from contextvars import ContextVar, copy_context

import pytest

from roquet.client.connection.call_context import await_in

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


async def test_variables_are_set_in_the_given_context_alone() -> None:
    async def work() -> str:
        WHO.set("me")
        await asyncio.sleep(0)
        return WHO.get()

    context = copy_context()
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

    task = asyncio.ensure_future(asyncio.wait_for(await_in(copy_context(), work()), 0.01))
    with pytest.raises(TimeoutError):
        await task
    assert ended == ["me"]

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await await_in(copy_context(), fail())
