"""Watchers: who is told of queues that become a consumer's, and of those that are no longer."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from roquet.log_records import logger
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue

log = logger(__name__)

RebalanceListener: TypeAlias = Callable[[Sequence[MessageQueue]], Awaitable[object] | object]
"""What is told of queues that came or went; a plain function or an `async def`."""


class RebalanceListeners:
    """Who is told of queues that come and go. Retry topics are our own affair."""

    def __init__(self) -> None:
        self.assigned: list[RebalanceListener] = []
        self.revoked: list[RebalanceListener] = []
        self.lost: list[RebalanceListener] = []

    async def tell(
        self, listeners: Sequence[RebalanceListener], queues: Iterable[MessageQueue]
    ) -> None:
        """Tell them of some queues; one that raises does not keep the others from hearing."""
        visible = tuple(queue for queue in queues if not is_retry(queue.topic))
        for listener in listeners if visible else ():
            try:
                answer = listener(visible)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                log.exception("a watcher of the assignment failed")
