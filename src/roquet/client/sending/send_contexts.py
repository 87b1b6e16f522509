"""Send contexts: context managers that are entered around each send, as handlers have theirs."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Any, TypeVar

from roquet.client.config import Around
from roquet.model.errors import UsageError

T = TypeVar("T")


async def enter_all(stack: AsyncExitStack, around: Sequence[Around], taken: object) -> None:
    """Enter what each function returns, of either kind, the first one outermost."""
    for each in around:
        manager: Any = each(taken)
        if isinstance(manager, AbstractAsyncContextManager):
            await stack.enter_async_context(manager)
        elif isinstance(manager, AbstractContextManager):
            stack.enter_context(manager)
        else:
            raise no_manager(each)


def no_manager(function: Around) -> UsageError:
    """Make the error for a function that returns no context manager of either kind."""
    return UsageError(
        f"around: {function!r:.100} gives no context manager: decorate it with "
        "contextlib.contextmanager (or asynccontextmanager)"
    )


async def send_within(
    around: Sequence[Around], outgoing: object, send: Callable[[], Awaitable[T]]
) -> T:
    """Send within the contexts of a message, or of a list of them."""
    if not around:
        return await send()
    async with AsyncExitStack() as stack:
        await enter_all(stack, around, outgoing)
        return await send()
    raise UsageError("around: a context manager has suppressed a send's error: it has no receipt")
