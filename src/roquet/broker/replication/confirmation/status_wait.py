"""StatusWait: a sender that waits for replicas by one watermark, without a task of its own."""

from collections.abc import Awaitable, Generator
from typing import Any, Protocol

import msgspec

from roquet.net.async_watermark import AsyncWatermark
from roquet.rules.replication.acknowledgement import PutStatus


class StatusSource(Protocol):
    """Acknowledgements, as their waits see them."""

    def status_after(self, wait: "StatusWait", reached: bool) -> PutStatus | Awaitable[PutStatus]:
        """The status once a wait has ended, or one that takes longer still."""


class StatusWait(msgspec.Struct, frozen=True):
    """A wait for one number to grow, as nearly all waits of senders are."""

    source: StatusSource
    mark: AsyncWatermark
    position: int
    """Value of the mark that is waited for."""
    begun_ms: int
    """Monotonic time at which the message was stored."""
    deadline_ms: int
    """Monotonic time at which the wait ends at the latest."""
    epoch: int = 0
    """Epoch in which the message was stored; 0 where roles are fixed."""

    def status(self, reached: bool) -> PutStatus | Awaitable[PutStatus]:
        """The status; False when the deadline came first, or when the mark will grow no more."""
        return self.source.status_after(self, reached)

    def __await__(self) -> Generator[Any, Any, PutStatus]:
        """Wait for the status."""
        reached = yield from self.mark.reach(self.position, self.deadline_ms).__await__()
        status = self.status(reached)
        return status if isinstance(status, PutStatus) else (yield from status.__await__())
