"""Inbox: messages that were pulled and wait for somebody who handles them."""

import asyncio
from collections import deque
from collections.abc import Iterable

from roquet.client.reading.message import MessageOwner, ReceivedMessage


class Inbox:
    """First in, first out; messages of queues that were given away meanwhile are left out."""

    def __init__(self) -> None:
        self._messages: deque[ReceivedMessage] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.is_closed = False
        self._fault: Exception | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """More to handle."""
        if not self.is_closed:
            self._messages.extend(messages)
            self._wake(len(self._messages))

    def put_first(self, message: ReceivedMessage) -> None:
        """One that was here before: it goes before those behind it."""
        if not self.is_closed:
            self._messages.appendleft(message)
            self._wake(1)

    def withdraw(self, owner: MessageOwner) -> list[ReceivedMessage]:
        """Take the messages of one queue out, in their order: they are not to be handled now."""
        found = [message for message in self._messages if message.owner is owner]
        if found:
            self._messages = deque(m for m in self._messages if m.owner is not owner)
        return found

    def pop(self) -> ReceivedMessage | None:
        """The next one, if one is there."""
        messages = self._messages
        while messages:
            message = messages.popleft()
            if message.is_held:
                return message
        return None

    async def take(self) -> ReceivedMessage | None:
        """The next one; None once nothing more will come, the error when nothing ever could."""
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
                    self._wake(1)  # it was meant for us: somebody else shall look
                raise
        return message

    def close(self) -> None:
        """Nothing more will come, and what waits is left to others."""
        self.is_closed = True
        self._messages.clear()
        self._wake(len(self._waiting))

    def fail(self, error: Exception) -> None:
        """Nothing can come: who waits, and who will, is told why."""
        self._fault = error
        self._wake(len(self._waiting))

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
