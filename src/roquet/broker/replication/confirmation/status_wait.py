"""StatusWait: a sender that waits for replicas without a task of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple

from roquet.rules.replication.acknowledgement import PutStatus


class StatusWait(NamedTuple):
    """A wait for one number to grow, as nearly all waits of senders are."""

    reached: asyncio.Future[bool]
    """False when the deadline came first, or when the number will grow no more."""
    status: Callable[[bool], PutStatus | Awaitable[PutStatus]]
    """Gives the status for the future's result, or one that takes longer still."""

    def __await__(self) -> Generator[Any, Any, PutStatus]:
        """Wait for the status."""
        status = self.status((yield from self.reached))
        return status if isinstance(status, PutStatus) else (yield from status.__await__())
