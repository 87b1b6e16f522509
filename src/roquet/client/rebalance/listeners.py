"""Rebalance listeners: callbacks for assigned, revoked and lost queues."""

import inspect
import types
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeAlias, TypeVar

from roquet.log_records import logger
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue

log = logger(__name__)

T = TypeVar("T")

RebalanceListener: TypeAlias = Callable[[Sequence[MessageQueue]], Awaitable[object] | object]
"""Called with queues that were assigned, revoked or lost; a plain function or an `async def`."""


class RebalanceListeners:
    """Callbacks of one consumer. They do not see retry topics."""

    def __init__(self) -> None:
        self.assigned: list[RebalanceListener] = []
        self.revoked: list[RebalanceListener] = []
        self.lost: list[RebalanceListener] = []

    async def notify(
        self, listeners: Sequence[RebalanceListener], queues: Iterable[MessageQueue]
    ) -> None:
        """Call listeners one after the other; log the exception of one, and go on."""
        visible = tuple(queue for queue in queues if not is_retry(queue.topic))
        for listener in listeners if visible else ():
            try:
                context = copy_context()
                answer = context.run(listener, visible)
                if inspect.isawaitable(answer):
                    await await_in(context, answer)
            except Exception:
                log.exception("a rebalance listener failed")


@types.coroutine
def await_in(context: Context, awaitable: Awaitable[T]) -> Generator[Any, None, T]:
    """Await something in a context of its own, without a task of its own.

    Context variables that it sets are not seen by the next call.
    """
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
