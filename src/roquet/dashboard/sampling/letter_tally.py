"""Letter tally: counts of all dead letters of a group by kind, kept so that each is read once."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from roquet.admin import dead_letters, messages
from roquet.admin.dead_letters import DeadLetter
from roquet.client.pull import PullConsumer
from roquet.model import names
from roquet.model.queue import MessageQueue
from roquet.rules.consumption.dead_letter_reason import reason_kind

COUNT_TIMEOUT_S: Final = 3.0
"""Time in which the letters of a group are read for one page."""

TALLIES_MAX: Final = 64
"""Tallies that are kept."""


class LetterKind(NamedTuple):
    """Fields of a dead letter by which letters are counted."""

    origin_topic: str | None
    tag: str | None
    failures: int
    reason: str = ""
    """The kind of its consumer's reason; empty where that gave none."""


class QueueTally(msgspec.Struct):
    """Counts of the letters in the half-open offset range [begin, end) of a queue."""

    begin: int
    end: int
    counts: Counter[LetterKind]


class LetterTally:
    """Counts of all dead letters of a group by kind; reads each letter once."""

    def __init__(self) -> None:
        self._queues: dict[MessageQueue, QueueTally] = {}
        self._lock = asyncio.Lock()

    async def count(self, reader: PullConsumer, group: str) -> Counter[LetterKind]:
        """The counts after those letters are added that came since the last time.

        Some are missing when there are more than can be read in `COUNT_TIMEOUT_S`; the next call
        goes on there.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(COUNT_TIMEOUT_S), self._lock:
                for queue in await messages.queues(reader, names.dlq_topic(group)):
                    await self._count_queue(reader, group, queue)
        return sum((one.counts for one in self._queues.values()), Counter[LetterKind]())

    async def _count_queue(self, reader: PullConsumer, group: str, queue: MessageQueue) -> None:
        begin, end = await reader.min_offset(queue), await reader.max_offset(queue)
        known = self._queues.get(queue)
        if known is None or known.begin != begin or known.end > end:  # retention, or a new topic
            known = self._queues[queue] = QueueTally(begin, begin, Counter())
        async for letter in dead_letters.read_range(reader, group, queue, known.end, end):
            known.counts[kind_of(letter)] += 1
            known.end = letter.message.queue_offset + 1


class LetterTallies:
    """The tally of each group that a user looked at; of many the newest.

    Each user has his own: brokers check that he may read the letters while they are counted.
    """

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str | None], LetterTally] = {}

    def of(self, group: str, user: str | None) -> LetterTally:
        """The tally of a group; an empty one for the first time. None: nobody logs in."""
        key = (group, user)
        tally = self._tallies.pop(key, None) or LetterTally()
        self._tallies[key] = tally
        while len(self._tallies) > TALLIES_MAX:
            del self._tallies[next(iter(self._tallies))]
        return tally


def kind_of(letter: DeadLetter) -> LetterKind:
    """The kind that a letter is counted in."""
    message = letter.message
    reason = reason_kind(letter.reason or "")
    return LetterKind(letter.origin_topic, message.tag, message.reconsume_times, reason)
