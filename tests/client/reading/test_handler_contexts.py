"""Context managers are entered around each call of a handler."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from roquet.client.config import Around
from roquet.client.reading.handler_contexts import in_contexts
from roquet.client.reading.handler_pool import is_coroutine_function
from roquet.model.errors import UsageError


class Recorder:
    """Records what is entered and left, in its order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def plain(self, name: str) -> Around:
        @contextmanager
        def manager(message: Any) -> Iterator[None]:
            self.seen.append(f"{name} enters {message}")
            try:
                yield
            except ValueError as error:
                self.seen.append(f"{name} sees {error}")
                raise
            self.seen.append(f"{name} leaves")

        return manager

    def waiting(self, name: str) -> Around:
        @asynccontextmanager
        async def manager(message: Any) -> AsyncIterator[None]:
            with self.plain(name)(message):  # type: ignore[union-attr]
                await asyncio.sleep(1)
                yield

        return manager

    def handler(self, message: Any) -> str:
        self.seen.append(f"handles {message}")
        if message == "bad":
            raise ValueError(message)
        return "done"

    async def coroutine(self, message: Any) -> str:
        return self.handler(message)


def test_without_any_a_handler_stays_what_it_is() -> None:
    handler = Recorder().handler
    assert in_contexts(handler, []) == handler


def test_the_first_one_is_outermost() -> None:
    it = Recorder()
    assert in_contexts(it.handler, [it.plain("a"), it.plain("b")])("m") == "done"
    assert it.seen == ["a enters m", "b enters m", "handles m", "b leaves", "a leaves"]


async def test_a_coroutine_has_both_kinds_around_it() -> None:
    it = Recorder()
    handler = in_contexts(it.coroutine, [it.waiting("a"), it.plain("b")])
    assert is_coroutine_function(handler)
    assert await handler("m") == "done"
    assert it.seen == ["a enters m", "b enters m", "handles m", "b leaves", "a leaves"]


async def test_they_see_the_exception_of_a_handler() -> None:
    it = Recorder()
    with pytest.raises(ValueError, match="bad"):
        await in_contexts(it.coroutine, [it.waiting("a")])("bad")
    with pytest.raises(ValueError, match="bad"):
        in_contexts(it.handler, [it.plain("b")])("bad")
    assert it.seen[-3:] == ["b enters bad", "handles bad", "b sees bad"]
    assert "a sees bad" in it.seen


def test_one_that_handles_the_exception_ends_the_call_well() -> None:
    @contextmanager
    def forgiving(_message: Any) -> Iterator[None]:
        with suppress(ValueError):
            yield

    assert in_contexts(Recorder().handler, [forgiving])("bad") is None


def test_a_plain_handler_has_nothing_around_it_that_waits() -> None:
    it = Recorder()
    with pytest.raises(UsageError, match="gives no context manager for `with`"):
        in_contexts(it.handler, [it.waiting("a")])("m")
    assert it.seen == []
