"""LongPolling: suspended pulls and pops, woken when messages arrive in their queues.

Pulls with the same tags of one queue share a watermark. It advances with messages of those tags
alone, so other messages do not wake them. Where messages are hidden until replicas have them, they
arrive when they are shown (`hold`, `show`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from typing import Final

from roquet.broker.filtering.tag_expressions import TagCodes
from roquet.model.names import pop_retry_topic, pop_retry_topic_v1
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import Clock
from roquet.rules.consumption.pop import POLLING_MAX

ANY_QUEUE: Final = -1

TIMED_OUT: Final = -2

PopWaiter = tuple[int, asyncio.Future[int]]
"""A number that says who came first, and a future of the queue it is woken for, or TIMED_OUT."""

HIDDEN_MAX: Final = 65_536
"""Arrivals that are remembered while messages are hidden: with more, all waiters look again."""


class PopWaiters:
    """Waiting pops by group and topic, in order of arrival.

    A message wakes one waiting pop of each group, since a second one may not find it. A pop that
    finds more than it can take wakes the next one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[tuple[str, str], dict[int, deque[PopWaiter]]] = {}
        """By group and topic, then by the awaited queue: a message costs no look at pops that wait
        for other queues."""
        self._turn = 0
        self.watched: dict[str, dict[int, dict[tuple[str, str], bool]]] = {}
        """By topic in which messages may arrive, and queue: the keys to wake, and whether it is
        their retry topic, any queue of which counts."""
        self.is_closed = False

    def waiting(self, group: str, topic: str) -> int:
        """Waiting pops of a group."""
        queues = self._waiting.get((group, topic), {})
        return sum(not woken.done() for queue in queues.values() for _, woken in queue)

    def is_full(self, group: str, topic: str) -> bool:
        """Whether the group's limit of waiting pops is reached."""
        return self._count((group, topic)) >= POLLING_MAX

    def arrived(self, topic: str, queue_id: int, count: int) -> None:
        """Wake pops for `count` stored messages; called for every append while a pop waits."""
        watched = self.watched.get(topic)
        if watched is not None:
            keys = watched.get(queue_id, {}) | watched.get(ANY_QUEUE, {})
            for key, is_retry in keys.items():
                self._wake(key, ANY_QUEUE if is_retry else queue_id, count)

    def wake(self, group: str, topic: str, queue_id: int = ANY_QUEUE) -> None:
        """Wake one more pop of a group, for one queue or for any."""
        self._wake((group, topic), queue_id, 1)

    def look_again(self, topic: str) -> None:
        """Wake all pops that wait for messages of a topic."""
        for keys in self.watched.get(topic, {}).values():
            for key in keys:
                self._wake(key, ANY_QUEUE, self._count(key))

    async def wait(self, group: str, topic: str, queue_id: int, deadline_ms: int) -> bool:
        """Wait until messages may be available; False when the deadline came first."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0 or self.is_closed:
            return False
        key = (group, topic)
        woken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._turn += 1
        waiter = (self._turn, woken)
        self._queue(key, queue_id).append(waiter)
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, _give_up, woken)
        try:
            return await woken != TIMED_OUT
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled() and woken.result() != TIMED_OUT:
                self._wake(key, woken.result(), 1)  # pass the message on to another pop
            raise
        finally:
            timer.cancel()
            self._leave(key, queue_id, waiter)

    def close(self) -> None:
        """Nobody waits any longer: there will be no more messages."""
        self.is_closed = True
        for queues in self._waiting.values():
            for queue in queues.values():
                for _, woken in queue:
                    _give_up(woken)

    def _count(self, key: tuple[str, str]) -> int:
        return sum(map(len, self._waiting.get(key, {}).values()))

    def _queue(self, key: tuple[str, str], queue_id: int) -> deque[PopWaiter]:
        queues = self._waiting.setdefault(key, {})
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = deque()
            for topic, is_retry in _topics(key):
                watched = self.watched.setdefault(topic, {})
                watched.setdefault(ANY_QUEUE if is_retry else queue_id, {})[key] = is_retry
        return queue

    def _leave(self, key: tuple[str, str], queue_id: int, waiter: PopWaiter) -> None:
        queues = self._waiting[key]
        queues[queue_id].remove(waiter)
        if queues[queue_id]:
            return
        del queues[queue_id]
        if not queues:
            del self._waiting[key]
        for topic, is_retry in _topics(key):
            if not is_retry or not queues:
                self._watch_no_more(topic, ANY_QUEUE if is_retry else queue_id, key)

    def _watch_no_more(self, topic: str, queue_id: int, key: tuple[str, str]) -> None:
        watched = self.watched[topic]
        del watched[queue_id][key]
        if not watched[queue_id]:
            del watched[queue_id]
            if not watched:
                del self.watched[topic]

    def _wake(self, key: tuple[str, str], queue_id: int, count: int) -> None:
        queues = self._waiting.get(key, {})
        wanted = queues if queue_id == ANY_QUEUE else (ANY_QUEUE, queue_id)
        for _, woken in merge(*[queues[one] for one in wanted if one in queues]):
            if count <= 0:
                return
            if not woken.done():
                woken.set_result(queue_id)
                count -= 1


def _topics(key: tuple[str, str]) -> Iterator[tuple[str, bool]]:
    """The topics that a group's pops of a topic wait for."""
    group, topic = key
    yield topic, False
    yield pop_retry_topic(group, topic), True
    yield pop_retry_topic_v1(group, topic), True


def _give_up(woken: asyncio.Future[int]) -> None:
    if not woken.done():
        woken.set_result(TIMED_OUT)


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
        if self._position is None:
            if topic in self._marks or topic in self._polled:
                self._arrived(topic, queue_id, offset, tag_codes)
        else:
            if len(self._hidden) >= HIDDEN_MAX:
                self._forgotten = self._hidden[-1][0]
                self._hidden.clear()
            self._hidden.append((self._position(), topic, queue_id, offset, tag_codes))
            self.on_hidden()

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
        # Once: a batch may have 16,000 messages, and one client pulls for as many sets of tags.
        reached = {code: next_offset for next_offset, code in enumerate(tag_codes, offset + 1)}
        for wanted, mark in marks.items():
            if wanted is None:
                mark.advance(offset + len(tag_codes))
            else:
                mark.advance(max(map(reached.__getitem__, wanted & reached.keys()), default=0))

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
