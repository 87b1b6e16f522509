"""LongPolling: suspended pulls and pops, woken when messages arrive in their queues.

Pulls with the same tags of one queue share a watermark. It advances with messages of those tags
alone, so other messages do not wake them. Where messages are hidden until replicas have them, they
arrive when they are shown (`hold`, `show`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from roquet.broker.filtering.tag_expressions import TagCodes
from roquet.broker.log.pop_waiters import PopWaiters
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import Clock
from roquet.rules.tag_filter import matches

HIDDEN_MAX: Final = 65_536
"""Arrivals that are remembered while messages are hidden: with more, all waiters look again."""


class LongPolling:
    """Watermarks of the queues that pulls wait for, and the waiting pops."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[str, dict[int, dict[TagCodes, AsyncWatermark]]] = {}
        """By topic, queue id and tags; kept while a pull returns to wait."""
        self._closed = False
        self._position: Callable[[], int] | None = None
        self._hidden: deque[tuple[int, str, int, int, Sequence[int]]] = deque()
        """Arrivals behind the position up to which messages are shown, each with its position."""
        self._forgotten: int | None = None
        """Position up to which arrivals were forgotten, since there were too many; None: none."""
        self.on_hidden: Callable[[], object] = lambda: None
        """Called for each arrival that is hidden."""
        self.waiters = PopWaiters(clock)
        """Waiting pops; they may wait for any queue of a topic."""
        self._polled = self.waiters.watched

    def __len__(self) -> int:
        return sum(
            mark.waiting
            for queues in self._marks.values()
            for marks in queues.values()
            for mark in marks.values()
        )

    def arrived(self, topic: str, queue_id: int, offset: int, tag_codes: Sequence[int]) -> None:
        """Wake the waiters for messages stored from `offset` on; called for every append."""
        if self._position is not None:
            if len(self._hidden) >= HIDDEN_MAX:
                self._forgotten = self._hidden[-1][0]
                self._hidden.clear()
            self._hidden.append((self._position(), topic, queue_id, offset, tag_codes))
            self.on_hidden()
        else:
            self._arrived(topic, queue_id, offset, tag_codes)

    def hold(self, position: Callable[[], int]) -> None:
        """Let messages arrive once they are shown; `position` is where the last of them ends."""
        self._position = position

    def show(self, position: int | None) -> None:
        """Let the messages arrive that end before a position; None: all, and later ones at once."""
        hidden, forgotten = self._hidden, self._forgotten
        if forgotten is not None:
            self.look_again([*self._marks, *self._polled])
            if position is None or position >= forgotten:
                self._forgotten = None
        while hidden and (position is None or hidden[0][0] <= position):
            self._arrived(*hidden.popleft()[1:])
        if position is None:
            self._position = None

    def forget_hidden(self) -> None:
        """Forget what did not arrive: the log was cut."""
        self._hidden.clear()
        self._forgotten = None

    def _arrived(self, topic: str, queue_id: int, offset: int, tag_codes: Sequence[int]) -> None:
        if self._polled and topic in self._polled:
            self.waiters.arrived(topic, queue_id, len(tag_codes))
        queues = self._marks.get(topic)
        if queues is None or (marks := queues.get(queue_id)) is None:
            return
        for wanted, mark in marks.items():
            for next_offset in range(offset + len(tag_codes), offset, -1):
                if matches(wanted, tag_codes[next_offset - offset - 1]):
                    mark.advance(next_offset)
                    break

    async def reach(
        self, topic: str, queue_id: int, next_offset: int, wanted: TagCodes, deadline_ms: int
    ) -> bool:
        """Wait until a message with these tags is stored at `next_offset - 1` or later.

        False when the deadline, a monotonic time, comes first.
        """
        if self._closed:
            return False
        marks = self._marks.setdefault(topic, {}).setdefault(queue_id, {})
        mark = marks.get(wanted)
        if mark is None:
            mark = marks[wanted] = AsyncWatermark(next_offset - 1, clock=self._clock)
        return await mark.reach(next_offset, deadline_ms)

    def look_again(self, topics: Iterable[str]) -> None:
        """Wake all waiters of these topics: settings or progress have changed."""
        for topic in topics:
            for marks in self._marks.pop(topic, {}).values():
                for mark in marks.values():
                    mark.release()
            self.waiters.look_again(topic)

    def sweep(self) -> None:
        """Remove watermarks without a waiter."""
        for topic, queues in list(self._marks.items()):
            for queue_id, marks in list(queues.items()):
                for wanted in [wanted for wanted, mark in marks.items() if not mark.waiting]:
                    del marks[wanted]
                if not marks:
                    del queues[queue_id]
            if not queues:
                del self._marks[topic]

    @property
    def is_closed(self) -> bool:
        """Whether the broker stops: nothing is waited for any more."""
        return self._closed

    def close(self) -> None:
        """Wake all waiters, and refuse new ones: the broker is stopping."""
        self._closed = True
        self.waiters.close()
        for queues in self._marks.values():
            for marks in queues.values():
                for mark in marks.values():
                    mark.release()
