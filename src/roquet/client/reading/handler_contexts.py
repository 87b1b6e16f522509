"""Handler contexts: context managers that are entered around each call of a user's handler.

They are for what belongs to every message: a database session, a timer, fields of a logger.
"""

from collections.abc import Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from typing import Any

from roquet.client.arguments import is_coroutine_function
from roquet.client.config import Around
from roquet.client.reading.handler_result import check_result
from roquet.client.sending.send_contexts import enter_all, no_manager
from roquet.model.errors import UsageError


def in_contexts(handler: Callable[[Any], Any], around: Sequence[Around]) -> Callable[[Any], Any]:
    """Wrap a handler, so that each of `around` is entered in turn, the first one outermost."""
    if not around:
        return handler
    if not is_coroutine_function(handler):
        return within(handler, lambda taken: _enter_plain(around, taken))

    async def awaited(taken: Any) -> object:
        async with AsyncExitStack() as stack:
            await enter_all(stack, around, taken)
            return check_result(await handler(taken))

    return awaited


def _enter_plain(around: Sequence[Around], taken: object) -> ExitStack:
    with ExitStack() as stack:
        for each in around:
            manager: Any = each(taken)
            if isinstance(manager, AbstractContextManager):
                stack.enter_context(manager)
            elif isinstance(manager, AbstractAsyncContextManager):
                raise UsageError(
                    f"around: {each!r:.100} gives no context manager for `with`, as a handler "
                    "needs that is a plain `def`"
                )
            else:
                raise no_manager(each)
        return stack.pop_all()


def within(
    handler: Callable[[Any], Any], enter: Callable[[Any], AbstractContextManager[object]]
) -> Callable[[Any], Any]:
    """Wrap a handler, so that each call is within a context manager of what the handler gets."""
    if is_coroutine_function(handler):

        async def awaited(taken: Any) -> object:
            with enter(taken):
                return check_result(await handler(taken))

        return awaited

    def called(taken: Any) -> object:
        with enter(taken):
            return check_result(handler(taken))

    return called


def adapt_handler(
    handler: Callable[[Any], Any], adapt: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Wrap a handler, so that it gets what `adapt` makes; it is not called with None."""
    if is_coroutine_function(handler):

        async def awaited(taken: Any) -> object:
            return None if (given := adapt(taken)) is None else await handler(given)

        return awaited
    return lambda taken: None if (given := adapt(taken)) is None else handler(given)
