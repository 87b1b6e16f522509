"""Handler contexts: context managers that are entered around each call of a user's handler.

They are for what belongs to every message: a database session, a timer, fields of a logger.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any

from roquet.client.config import Around
from roquet.client.reading.handler_pool import is_coroutine_function
from roquet.client.sending.send_contexts import enter_all
from roquet.model.errors import UsageError


def in_contexts(handler: Callable[[Any], Any], around: Sequence[Around]) -> Callable[[Any], Any]:
    """Wrap a handler, so that each of `around` is entered in turn, the first one outermost."""
    if not around:
        return handler
    if is_coroutine_function(handler):
        return _coroutine_in_contexts(handler, around)
    return _function_in_contexts(handler, around)


def _coroutine_in_contexts(
    handler: Callable[[Any], Any], around: Sequence[Around]
) -> Callable[[Any], Any]:
    async def awaited(taken: Any) -> object:
        async with AsyncExitStack() as stack:
            await enter_all(stack, around, taken)
            return await handler(taken)

    return awaited


def _function_in_contexts(
    handler: Callable[[Any], Any], around: Sequence[Around]
) -> Callable[[Any], Any]:
    def called(taken: Any) -> object:
        with ExitStack() as stack:
            for each in around:
                manager = each(taken)
                if not isinstance(manager, AbstractContextManager):
                    raise UsageError(
                        f"around: {each!r:.100} gives no context manager for `with`, as a handler "
                        "needs that is a plain `def`"
                    )
                stack.enter_context(manager)
            return handler(taken)

    return called
