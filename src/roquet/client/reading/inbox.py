"""Inbox: pulled messages that wait for a handler or a read."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic

from roquet.client.reading.message import M, MessageOwner, owner_of, retry_later


class Inbox(Generic[M]):
    """A first-in first-out queue, which skips messages of revoked queues."""

    def __init__(self) -> None:
        self.collected: list[M] = []
        """Messages that were taken for a batch, which waits for more."""
        self._messages: deque[M] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.is_closed = False
        self._fault: Exception | None = None
        self._is_aborted = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Iterable[M]) -> None:
        """Append messages."""
        if not self.is_closed:
            self._messages.extend(messages)
            self._wake(len(self._messages))

    def put_first(self, message: M) -> None:
        """Put a message that was taken before back to the front."""
        if not self.is_closed:
            self._messages.appendleft(message)
            self._wake(1)

    def put_back(self, messages: Sequence[M]) -> None:
        """Put messages that were taken, but that nobody has settled, back to the front."""
        for message in reversed(messages):
            if message.is_held and not message.is_settled:
                self.put_first(message)
            else:
                retry_later(message)

    def withdraw(self, owner: MessageOwner) -> list[M]:
        """Remove and return the messages of one owner, in their order."""
        waiting = (*self.collected, *self._messages)
        withdrawn = [message for message in waiting if owner_of(message) is owner]
        if withdrawn:
            self.collected[:] = [m for m in self.collected if owner_of(m) is not owner]
            self._messages = deque(m for m in self._messages if owner_of(m) is not owner)
        return withdrawn

    def pop(self) -> M | None:
        """Return the next message; None when there is none now, or reads are aborted."""
        if self._is_aborted:
            return None
        messages = self._messages
        while messages:
            message = messages.popleft()
            if message.is_held:
                return message
        return None

    async def take(self) -> M | None:
        """Wait for the next message; None once closed. Raises the error given to `fail`."""
        while (message := self.pop()) is None:
            if self.is_closed:
                return None
            if self._fault is not None:
                raise self._fault
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # the wakeup was for this reader: pass it on
                raise
        return message

    def close(self) -> None:
        """Drop all messages and accept no more."""
        self.is_closed = True
        self._messages.clear()
        self._wake(len(self._waiting))

    def fail(self, error: Exception) -> None:
        """Make current and later reads raise an error: no message can come."""
        self._fault = error
        self._wake(len(self._waiting))

    def abort(self, error: Exception) -> None:
        """Make reads raise an error before messages that wait, each of which would meet it."""
        self._is_aborted = True
        self.fail(error)

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
