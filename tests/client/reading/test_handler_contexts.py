"""Context managers are entered around each call of a handler."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from roquet.client.arguments import is_coroutine_function
from roquet.client.config import Around
from roquet.client.reading.handler_contexts import adapt_handler, in_contexts, within
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


async def test_a_false_result_is_an_error_to_them() -> None:
    it = Recorder()

    def handler(_message: Any) -> bool:
        return False

    async def coroutine(_message: Any) -> bool:
        return False

    with pytest.raises(UsageError, match="returned False"):
        await in_contexts(coroutine, [it.waiting("a")])("m")
    with pytest.raises(UsageError, match="returned False"):
        in_contexts(handler, [it.plain("b")])("m")
    assert it.seen == ["a enters m", "b enters m"], "neither leaves as after a success"


def test_what_was_entered_is_left_when_the_next_one_fails() -> None:
    it = Recorder()

    def failing(_message: Any) -> Any:
        raise ValueError("no session")

    with pytest.raises(ValueError, match="no session"):
        in_contexts(it.handler, [it.plain("a"), failing])("m")
    assert it.seen == ["a enters m", "a sees no session"]


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


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_that_nobody_decorated_is_an_error_with_advice(*, is_async: bool) -> None:
    it = Recorder()

    def undecorated(_message: Any) -> Any:
        return None

    handler = in_contexts(it.coroutine if is_async else it.handler, [undecorated])
    with pytest.raises(UsageError, match=r"decorate it with contextlib\.contextmanager \(or"):
        await handler("m")
    assert it.seen == []


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_call_is_within_what_its_message_makes(*, is_async: bool) -> None:
    it = Recorder()
    manager: Any = it.plain("a")
    handler = within(it.coroutine if is_async else it.handler, manager)
    assert is_coroutine_function(handler) is is_async
    assert (await handler("m") if is_async else handler("m")) == "done"
    assert it.seen == ["a enters m", "handles m", "a leaves"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_gets_what_is_made_for_it_and_is_not_called_with_nothing(
    *, is_async: bool
) -> None:
    it = Recorder()
    handler = adapt_handler(it.coroutine if is_async else it.handler, lambda taken: taken or None)
    results = [handler(taken) for taken in ("", "m")]
    assert [await one if is_async else one for one in results] == [None, "done"]
    assert it.seen == ["handles m"]
