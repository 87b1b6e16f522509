"""Stock: an inbox that says when it runs low, and how quickly it is emptied.

What a slow member has taken nobody else can handle: it takes no more than it needs for a moment.
"""

import asyncio
from collections.abc import Iterable

from roquet.client.popping.acks import RELEASE_MS
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import ReceivedMessage
from roquet.net.clock import Clock
from roquet.rules.consumption.pop import next_batch_size


class PrefetchBuffer(Inbox):
    """Messages that were popped and wait for somebody who handles them."""

    def __init__(self, clock: Clock, count_max: int) -> None:
        super().__init__()
        self._clock = clock
        self._count_max = count_max
        self.count = 1
        """How many messages to take next."""
        self._low = 0
        self._taken = 0
        self._busy_ms = 0
        self._since_ms: int | None = None
        """When there was something again to handle; None while there is nothing."""
        self._has_demand = asyncio.Event()
        self._has_demand.set()
        self.is_paused = False

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """More to handle."""
        super().put(messages)
        if self._messages and self._since_ms is None:
            self._since_ms = self._clock.monotonic_ms()
        if len(self._messages) > self._low:
            self._has_demand.clear()

    def put_first(self, message: ReceivedMessage) -> None:
        """One that was here before; once closed, it is given back."""
        if self.is_closed:
            message.fail(RELEASE_MS)
        super().put_first(message)

    def pop(self) -> ReceivedMessage | None:
        """The next one, if one is there."""
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
        """Somebody has nothing to do; whoever took the last one may still be at work on it."""
        if self._since_ms is not None:
            self._busy_ms += self._clock.monotonic_ms() - self._since_ms
            self._since_ms = None

    def rest(self) -> list[ReceivedMessage]:
        """What nobody has begun with, taken out."""
        found = [message for message in self._messages if message.is_held]
        self._messages.clear()
        return found

    def pause(self) -> None:
        """Want no more."""
        self.is_paused = True
        self._has_demand.clear()

    def resume(self) -> None:
        """Want more, as soon as it runs low; once closed, never."""
        if self.is_closed:
            return
        self.is_paused = False
        if len(self._messages) <= self._low:
            self._has_demand.set()

    def close(self) -> None:
        """Want nothing more, and give back what nobody has begun with: others get it at once."""
        self.pause()
        for message in self.rest():
            message.fail(RELEASE_MS)
        super().close()

    async def wait_for_demand(self) -> int:
        """Wait until it runs low; gives how many messages to take."""
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
