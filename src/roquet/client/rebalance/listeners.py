"""Rebalance listeners: callbacks for assigned, revoked and lost queues."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from roquet.log_records import logger
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue

log = logger(__name__)

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
                answer = listener(visible)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                log.exception("a rebalance listener failed")
