"""PrefetchBuffer: an inbox that asks for more messages when it runs low.

It measures how fast it is emptied, and asks for no more than is needed for a moment: others cannot
handle what a slow member has taken.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import release
from roquet.net.clock import Clock
from roquet.rules.consumption.pop import next_batch_size


class PrefetchBuffer(Inbox[PoppedMessage[Any]]):
    """Popped messages that wait for a handler or a read."""

    def __init__(self, clock: Clock, count_max: int) -> None:
        super().__init__()
        self._clock = clock
        self._count_max = count_max
        self.count = 1
        """Number of messages to take next."""
        self._low = 0
        self._taken = 0
        self._busy_ms = 0
        self._since_ms: int | None = None
        """When the buffer last became non-empty; None while it is idle."""
        self._has_demand = asyncio.Event()
        self._has_demand.set()
        self.is_paused = False

    def put(self, messages: Iterable[PoppedMessage[Any]]) -> None:
        """Append messages."""
        super().put(messages)
        if self._messages and self._since_ms is None:
            self._since_ms = self._clock.monotonic_ms()
        if len(self._messages) > self._low:
            self._has_demand.clear()

    def put_first(self, message: PoppedMessage[Any]) -> None:
        """Put a message back to the front; once closed, release it."""
        if self.is_closed:
            release(message)
        super().put_first(message)

    def pop(self) -> PoppedMessage[Any] | None:
        """Return the next message; None when there is none now."""
        message = super().pop()
        left = len(self._messages)
        if message is not None:
            self._taken += 1
        if left <= self._low:
            if not self.is_paused:
                self._has_demand.set()
            if not left and (message is None or self._waiting):
                self._idle()
        return message

    def _idle(self) -> None:
        """Note that a handler is idle; that of the last message may still be running."""
        if self._since_ms is not None:
            self._busy_ms += self._clock.monotonic_ms() - self._since_ms
            self._since_ms = None

    def pause(self) -> None:
        """Ask for no more."""
        self.is_paused = True
        self._has_demand.clear()

    def resume(self) -> None:
        """Ask for more as soon as the buffer runs low; never once closed."""
        if self.is_closed:
            return
        self.is_paused = False
        if len(self._messages) <= self._low:
            self._has_demand.set()

    def close(self) -> None:
        """Ask for no more; release messages whose handlers have not started to other members."""
        self.pause()
        unstarted = [message for message in self._messages if message.is_held]
        self._messages.clear()
        for message in unstarted:
            release(message)
        super().close()

    async def wait_for_demand(self) -> int:
        """Wait until the buffer runs low; return how many messages to take."""
        await self._has_demand.wait()
        if self._taken:
            now_ms = self._clock.monotonic_ms()
            if self._since_ms is not None:
                self._busy_ms += now_ms - self._since_ms
                self._since_ms = now_ms
            self.count = next_batch_size(self.count, self._taken, self._busy_ms, self._count_max)
            self._low = self.count // 2
            self._taken = self._busy_ms = 0
        return self.count
