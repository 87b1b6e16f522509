"""Rebalance listeners: callbacks for assigned, revoked and lost queues."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from typing import TypeAlias

from roquet.client.connection.call_context import await_in
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
                context = copy_context()
                answer = context.run(listener, visible)
                if inspect.isawaitable(answer):
                    await await_in(context, answer)
            except Exception:
                log.exception("a rebalance listener failed")
