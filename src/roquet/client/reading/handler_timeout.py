"""Handler timeout: workers are polled for handlers that hang, which costs the handlers nothing."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from roquet.client.config import ConsumerConfig
from roquet.client.reading.message import ReceivedMessage
from roquet.log_records import logger

log = logger(__name__)

CHECKS_PER_LIMIT: Final = 15
"""Polls within one time limit, which set its precision."""


class WorkerSlot:
    """One worker, and the message that it handles."""

    __slots__ = ("is_left", "message", "seen_ms", "seen_with", "task")

    def __init__(self) -> None:
        self.message: ReceivedMessage | None = None
        self.is_left = False
        """Whether its handler timed out and its message was failed."""
        self.seen_with: ReceivedMessage | None = None
        self.seen_ms = 0
        self.task: asyncio.Task[None] | None = None

    def late(self, now_ms: int, limit_ms: int) -> ReceivedMessage | None:
        """Return the message that the worker has handled for too long; None if there is none.

        Read once: a handler in a thread may end meanwhile and start with another message.
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
    """Poll workers, and call `late` for messages that are handled for too long.

    Ordered handlers have no limit, as in Java: the next message would have to wait anyway.
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
