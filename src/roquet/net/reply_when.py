"""ReplyWhen: a reply that waits for a number to grow, and costs neither a task nor a future.

    handler ──ReplyWhen──▶ router ──HeldReply──▶ connection ──▶ watermark
                                                     ▲              │ it is reached, or too late
                                                     └──── frame ───┘

A handler gives any other reply that is not ready as an awaitable.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any

import msgspec

from roquet.net.async_watermark import AsyncWatermark
from roquet.wire.call import Reply


class ReplyWhen(msgspec.Struct, frozen=True):
    """A handler's reply that is decided when a watermark is reached, or at a deadline."""

    mark: AsyncWatermark
    target: int
    """A value that the watermark has not reached yet."""
    begun_ms: int
    """Monotonic time at which the wait began."""
    deadline_ms: int
    """Monotonic time at which it ends at the latest."""
    reply: Callable[[bool], Reply | Awaitable[Reply | None]]
    """Gives the reply, by whether the target was reached; or one that takes longer still."""

    def __await__(self) -> Generator[Any, Any, Reply | None]:
        """Wait for the reply, as for any awaitable."""
        reached = yield from self.mark.reach(self.target, self.deadline_ms).__await__()
        answer = self.reply(reached)
        return answer if isinstance(answer, Reply) else (yield from answer.__await__())
