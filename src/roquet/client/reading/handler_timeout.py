"""Time limit: handlers that hang are seen by looks at their workers, which cost these nothing."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from roquet.client.config import ConsumerConfig
from roquet.client.reading.message import ReceivedMessage
from roquet.log_records import logger

log = logger(__name__)

CHECKS_PER_LIMIT: Final = 15
"""Within the time limit of a handler: so exact is the limit."""


class WorkerSlot:
    """The place of one worker, and the message that it is at."""

    __slots__ = ("is_left", "message", "seen_ms", "seen_with", "task")

    def __init__(self) -> None:
        self.message: ReceivedMessage | None = None
        self.is_left = False
        """Whether its message took too long and was taken from it."""
        self.seen_with: ReceivedMessage | None = None
        self.seen_ms = 0
        self.task: asyncio.Task[None] | None = None

    def late(self, now_ms: int, limit_ms: int) -> ReceivedMessage | None:
        """The message at which it has been seen for so long; None where all is well.

        It is looked at once: a handler in a thread may end meanwhile, and begin with another.
        """
        message = self.message
        if message is not self.seen_with:
            self.seen_with, self.seen_ms = message, now_ms
        return message if now_ms - self.seen_ms >= limit_ms else None


async def watch_timeouts(
    slots: Sequence[WorkerSlot],
    late: Callable[[WorkerSlot, ReceivedMessage], None],
    config: ConsumerConfig,
) -> None:
    """Take messages away that are worked at for too long; a look now and then costs them nothing.

    Ordered handlers have no limit, as in Java: what comes after them must wait anyway.
    """
    limit_ms, clock = config.handler_limit_ms, config.clock
    while not config.ordered:
        await clock.sleep(max(limit_ms // CHECKS_PER_LIMIT, 1))
        now_ms = clock.monotonic_ms()
        for slot in list(slots):
            message = None if slot.is_left else slot.late(now_ms, limit_ms)
            if message is not None:
                log.warning(
                    "the handler is at work on %r for more than %d ms, which counts as a failure",
                    message,
                    limit_ms,
                )
                late(slot, message)
