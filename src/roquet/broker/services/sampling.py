"""StatisticsSampler: counts stored messages from the ends of queues, and takes samples."""

import asyncio
from typing import Final

from roquet.broker.log.message_log import MessageLog
from roquet.broker.statistics import Statistics
from roquet.log_records import logger
from roquet.model.names import OP_HALF_TOPIC, REVIVE_PREFIX

log = logger(__name__)

LOOK_COUNT: Final = 4_096
"""Entries whose sizes are summed before others have their turn: a third of a millisecond."""

QUEUES_COUNT: Final = 2_000
"""Queues checked before others have their turn: about half a millisecond."""


ENDS_SPARE: Final = 1_000
"""Deleted queues that may be remembered before they are removed."""


class StatisticsSampler:
    """Counts messages in the queues, so that the path of a send counts nothing."""

    def __init__(self, message_log: MessageLog, statistics: Statistics) -> None:
        self._store = message_log.store
        self._statistics = statistics
        self._begin = self._store.end_position
        """Log position of the start: later messages were stored by this process."""
        self.counted_ends: dict[tuple[str, int], int] = {}
        """By topic and queue id, the offset in front of which all messages are counted."""
        self._uncounted: set[tuple[str, int]] = set()
        """Queues that could not be counted; each is logged once."""
        self._turn = asyncio.Lock()
        """Serializes sampling: two concurrent passes would count the same messages twice."""

    async def step(self, now_ms: int) -> None:
        """Count stored messages, and take a sample."""
        await self.look()
        for _ in self._statistics.tick(now_ms):
            await asyncio.sleep(0)

    async def look(self, topic: str | None = None) -> None:
        """Count messages stored since the last pass, in one topic or in all."""
        async with self._turn:
            await self._count_topics(topic)

    async def _count_topics(self, topic: str | None) -> None:
        queues = list(self._store.queue_stats.ends()) if topic is None else self._of(topic)
        for number, queue_end in enumerate(queues, 1):
            if number % QUEUES_COUNT == 0:
                await asyncio.sleep(0)
            await self._count_all(queue_end)
        if topic is None and len(self.counted_ends) > 2 * len(queues) + ENDS_SPARE:
            self._forget_deleted()

    async def _count_all(self, queue_end: tuple[str, int, int]) -> None:
        """Count the new messages of a queue; an error does not hold up the other queues."""
        try:
            while self._count(*queue_end):  # noqa: ASYNC110 - lets others go first
                await asyncio.sleep(0)
        except Exception:
            if queue_end[:2] not in self._uncounted:
                self._uncounted.add(queue_end[:2])
                log.exception("%s queue %d cannot be counted", *queue_end[:2])
            self.counted_ends[queue_end[:2]] = queue_end[2]

    def _of(self, topic: str) -> list[tuple[str, int, int]]:
        store = self._store
        return [(topic, n, store.bounds(topic, n)[1]) for n in store.queue_ids(topic)]

    def _count(self, topic: str, queue_id: int, end: int) -> bool:
        """Count some messages of a queue; whether there are more."""
        known = self.counted_ends.get((topic, queue_id))
        if known == end:
            return False
        queue_stats = self._store.queue_stats
        if known is None or known > end:  # a new queue, or one of a topic that was made anew
            known = queue_stats.offset_since(topic, queue_id, self._begin)
        stop = min(end, known + LOOK_COUNT)
        if stop > known and topic != OP_HALF_TOPIC and not topic.startswith(REVIVE_PREFIX):
            size = queue_stats.size(topic, queue_id, known, stop)
            self._statistics.put(topic, stop - known, size)
        self.counted_ends[topic, queue_id] = max(stop, known)
        return stop < end

    def _forget_deleted(self) -> None:
        has = self._store.queue_stats.has
        self.counted_ends = {
            queue_end: end for queue_end, end in self.counted_ends.items() if has(*queue_end)
        }
