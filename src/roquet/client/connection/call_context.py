"""Call contexts: context variables that a user's function sets are not seen by the next call."""

import types
from collections.abc import Awaitable, Generator
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def await_in(context: Context, awaitable: Awaitable[T]) -> Generator[Any, None, T]:
    """Await something in a context of its own, without a task of its own."""
    steps = awaitable.__await__()
    step = partial(next, steps)
    while True:
        try:
            future = context.run(step)
        except StopIteration as end:
            result: T = end.value
            return result
        step = partial(next, steps)
        try:
            yield future
        except BaseException as error:  # a cancellation, or the end of the event loop
            step = partial(steps.throw, error)
