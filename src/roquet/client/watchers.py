"""Watchers: who is told of queues that become a consumer's, and of those that are no longer."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from roquet.log_records import logger
from roquet.model.names import is_retry
from roquet.model.queue import MessageQueue

if TYPE_CHECKING:
    from roquet.client.assignment import Assignment

log = logger(__name__)

Watcher: TypeAlias = Callable[[Sequence[MessageQueue]], Awaitable[object] | object]
"""What is told of queues that came or went; a plain function or an `async def`."""


class Watchers:
    """Who is told of queues that come and go. Retry topics are our own affair."""

    def __init__(self) -> None:
        self.assigned: list[Watcher] = []
        self.revoked: list[Watcher] = []
        self.lost: list[Watcher] = []

    async def tell(self, watchers: Sequence[Watcher], queues: Iterable[MessageQueue]) -> None:
        """Tell them of some queues; one that raises does not keep the others from hearing."""
        visible = tuple(queue for queue in queues if not is_retry(queue.topic))
        for watcher in watchers if visible else ():
            try:
                answer = watcher(visible)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                log.exception("a watcher of the assignment failed")


class Watched:
    """A consumer whose queues the group assigns."""

    _assignment: "Assignment"

    def on_assigned(self, watcher: Watcher) -> None:
        """Tell a function which queues have become this member's, before they are read."""
        self._assignment.watchers.assigned.append(watcher)

    def on_revoked(self, watcher: Watcher) -> None:
        """Tell a function which queues are no longer this member's, once progress is saved.

        That includes a close: then they are those that it has held to the end.
        """
        self._assignment.watchers.revoked.append(watcher)

    def on_lost(self, watcher: Watcher) -> None:
        """Tell a function which queues were lost: another member may have them already.

        That happens to ordered queues alone, whose lock could not be renewed.
        """
        self._assignment.watchers.lost.append(watcher)
