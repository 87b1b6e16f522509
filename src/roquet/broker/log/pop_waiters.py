"""PopWaiters: pops that found no message and wait, in order of arrival.

A message wakes one waiting pop of each group, since a second one may not find it. A pop that finds
more than it can take wakes the next one.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from roquet.model.names import pop_retry_topic, pop_retry_topic_v1
from roquet.net.clock import Clock
from roquet.rules.consumption.pop import POLLING_MAX

ANY_QUEUE: Final = -1

TIMED_OUT: Final = -2

PopWaiter = tuple[int, asyncio.Future[int]]
"""The awaited queue, and a future of the queue it is woken for, or TIMED_OUT."""


class PopWaiters:
    """Waiting pops by group and topic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[tuple[str, str], deque[PopWaiter]] = {}
        """By group and topic."""
        self.watched: dict[str, dict[tuple[str, str], bool]] = {}
        """By topic in which messages may arrive: the keys to wake, and whether it is their retry
        topic, any queue of which counts."""
        self.is_closed = False

    def waiting(self, group: str, topic: str) -> int:
        """Waiting pops of a group."""
        return sum(not place[1].done() for place in self._waiting.get((group, topic), ()))

    def is_full(self, group: str, topic: str) -> bool:
        """Whether the group's limit of waiting pops is reached."""
        return len(self._waiting.get((group, topic), ())) >= POLLING_MAX

    def arrived(self, topic: str, queue_id: int, count: int) -> None:
        """Wake pops for `count` stored messages; called for every append while a pop waits."""
        watched = self.watched.get(topic)
        if watched is not None:
            for key, is_retry in list(watched.items()):
                self._wake(key, ANY_QUEUE if is_retry else queue_id, count)

    def wake(self, group: str, topic: str, queue_id: int = ANY_QUEUE) -> None:
        """Wake one more pop of a group, for one queue or for any."""
        self._wake((group, topic), queue_id, 1)

    def look_again(self, topic: str) -> None:
        """Wake all pops that wait for messages of a topic."""
        for key in list(self.watched.get(topic, ())):
            self._wake(key, ANY_QUEUE, len(self._waiting.get(key, ())))

    async def wait(self, group: str, topic: str, queue_id: int, deadline_ms: int) -> bool:
        """Wait until messages may be available; False when the deadline came first."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0 or self.is_closed:
            return False
        key = (group, topic)
        woken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        place = (queue_id, woken)
        self._queue(key).append(place)
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, _give_up, woken)
        try:
            return await woken != TIMED_OUT
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled() and woken.result() != TIMED_OUT:
                self._wake(key, woken.result(), 1)  # pass the message on to another pop
            raise
        finally:
            timer.cancel()
            self._leave(key, place)

    def close(self) -> None:
        """Nobody waits any longer: there will be no more messages."""
        self.is_closed = True
        for queue in self._waiting.values():
            for _, woken in queue:
                _give_up(woken)

    def _queue(self, key: tuple[str, str]) -> deque[PopWaiter]:
        queue = self._waiting.get(key)
        if queue is None:
            queue = self._waiting[key] = deque()
            for topic, is_retry in _topics(key):
                self.watched.setdefault(topic, {})[key] = is_retry
        return queue

    def _leave(self, key: tuple[str, str], place: PopWaiter) -> None:
        queue = self._waiting[key]
        queue.remove(place)
        if not queue:
            del self._waiting[key]
            for topic, _ in _topics(key):
                watched = self.watched[topic]
                del watched[key]
                if not watched:
                    del self.watched[topic]

    def _wake(self, key: tuple[str, str], queue_id: int, count: int) -> None:
        for wanted, woken in self._waiting.get(key, ()):
            if count <= 0:
                return
            if not woken.done() and (queue_id == ANY_QUEUE or wanted in (ANY_QUEUE, queue_id)):
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
