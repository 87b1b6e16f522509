"""Outstanding sends: how a flush waits for all of them, and sends of one order key for each other.

Sends with the same order key leave one after the other, in the order of the calls. So do sends to
one queue that a selector has chosen. Otherwise a second message could be stored before the first
one is retried. Other keys do not wait.
"""

import asyncio
from typing import TypeAlias

from roquet.client.arguments import check_timeout
from roquet.model.errors import CallError
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock

OrderKey: TypeAlias = tuple[str, int] | MessageQueue
"""A topic and the hash of an order key (keys with the same hash share a queue anyway), or the queue
that a selector has chosen."""

OrderTicket: TypeAlias = asyncio.Future[None]


class KeyOrder:
    """The last send of each key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[OrderKey, OrderTicket] = {}

    def __len__(self) -> int:
        return len(self._last)

    def __contains__(self, key: OrderKey) -> bool:
        return key in self._last

    async def acquire(self, key: OrderKey, deadline_ms: int) -> OrderTicket:
        """Wait until all earlier sends of the key have ended; CallError after the deadline."""
        ticket: OrderTicket = asyncio.get_running_loop().create_future()
        previous = self._last.get(key)
        self._last[key] = ticket
        if previous is not None:
            try:
                await self._wait(previous, deadline_ms)
            except BaseException:
                # The next send must wait for the one before this one, although this one gives up.
                previous.add_done_callback(lambda _: self.release(key, ticket))
                raise
        return ticket

    def release(self, key: OrderKey, ticket: OrderTicket) -> None:
        """Let the next send of the key go."""
        if self._last.get(key) is ticket:
            del self._last[key]
        ticket.set_result(None)

    async def _wait(self, previous: OrderTicket, deadline_ms: int) -> None:
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        _, waiting = await asyncio.wait([previous], timeout=left_ms / 1000)
        if waiting:
            raise CallError(
                "an earlier message that has to go first is still being sent; it was not sent",
                definite=True,
            )


class FlushEpoch:
    """The sends between two flushes; `with` counts one of them."""

    __slots__ = ("_count", "_ended")

    def __init__(self) -> None:
        self._count = 0
        self._ended: asyncio.Event | None = None

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if self._ended is not None and not self._count:
            self._ended.set()

    @property
    def is_idle(self) -> bool:
        """Whether all of them have ended."""
        return not self._count

    async def ended(self) -> None:
        """Wait until all have ended; only for a past epoch, which gets no new sends."""
        if self._count:
            if self._ended is None:
                self._ended = asyncio.Event()
            await self._ended.wait()


class OutstandingSends:
    """All sends of one producer: `with outstanding.current:` around each."""

    def __init__(self) -> None:
        self.current = FlushEpoch()
        self._past: list[FlushEpoch] = []

    async def flushed(self, timeout_ms: int | None) -> bool:
        """Wait for all earlier sends, up to a timeout; return whether all have ended."""
        check_timeout(timeout_ms)
        self._past = [epoch for epoch in (*self._past, self.current) if not epoch.is_idle]
        self.current = FlushEpoch()
        waited = list(self._past)
        if not waited or timeout_ms == 0:
            return not waited
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                for epoch in waited:
                    await epoch.ended()
        except TimeoutError:
            return False
        return True
