"""Lineup: sends of one order key leave one after the other, in the order in which they were made.

So do those that one selector has bound to a queue.

A second message that leaves before the first one is stored would overtake it when the first one
has to be tried again. Other keys do not wait.
"""

import asyncio
from typing import TypeAlias

from roquet.model.errors import CallError
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock

OrderKey: TypeAlias = tuple[str, int] | MessageQueue
"""A topic, and the hash of an order key: two keys of one hash share a queue anyway. Or the queue
itself, where a selector chose it."""

OrderTicket: TypeAlias = asyncio.Future[None]


class KeyOrder:
    """Who is the last in each line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[OrderKey, OrderTicket] = {}

    def __len__(self) -> int:
        return len(self._last)

    def __contains__(self, key: OrderKey) -> bool:
        return key in self._last

    async def enter(self, key: OrderKey, deadline_ms: int) -> OrderTicket:
        """Wait until all before have left; CallError when that takes too long."""
        mine: OrderTicket = asyncio.get_running_loop().create_future()
        before = self._last.get(key)
        self._last[key] = mine
        if before is not None:
            try:
                await self._wait(before, deadline_ms)
            except BaseException:
                # Whoever is next waits for the one before: nobody may pass because we gave up.
                before.add_done_callback(lambda _: self.leave(key, mine))
                raise
        return mine

    def leave(self, key: OrderKey, mine: OrderTicket) -> None:
        """Let the next one go."""
        if self._last.get(key) is mine:
            del self._last[key]
        mine.set_result(None)

    async def _wait(self, before: OrderTicket, deadline_ms: int) -> None:
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        _, waiting = await asyncio.wait([before], timeout=left_ms / 1000)
        if waiting:
            raise CallError(
                "an earlier message that has to go first is still being sent; it was not sent",
                definite=True,
            )
