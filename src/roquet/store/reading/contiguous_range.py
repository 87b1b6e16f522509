"""Stretch: a run of the log that holds records of some queues and of nobody else.

    log       ─a1─b1─a2─c1─b2─a3─x1─      a, b, c are asked for, x is not
    stretch    └───────────────┘

Whoever reads many queues of a topic takes such a run as it lies, at no cost for the single record.
What makes sure that nobody else's are in it is a sum: the sizes of the queues' records give the
length of the run. Whether the records are whole is left to whoever asked to look at.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queues import ConsumeQueue
from roquet.store.layout import FILLER_SIZE

QUEUES_MAX: Final = 64
"""Queues of one stretch: each costs a few searches, together less than a millisecond."""


class ContiguousRange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where it lies."""

    start: int
    stop: int
    count: int
    next_offset: int
    """Of the queue that was asked for first: behind its last record in here."""


class _Share:
    """The entries of one queue that lead into the stretch."""

    __slots__ = ("behind", "first", "queue")

    def __init__(self, queue: ConsumeQueue, start: int, stop: int) -> None:
        self.queue = queue
        self.first = queue.offset_of(start)
        self.behind = queue.offset_of(stop)

    def end(self) -> int:
        """Where its last record ends."""
        if self.first == self.behind:
            return 0
        position, size, _ = self.queue.entry(self.behind - 1)
        return position + size

    def size(self) -> int:
        """Bytes of its records."""
        total, at = 0, self.first
        while at < self.behind:
            count, _, _, size = self.queue.span(at, self.behind - at)
            total += size
            at += count
        return total


def contiguous_range(
    commit_log: CommitLog, asked: Mapping[ConsumeQueue, int], limits: tuple[int, int]
) -> ContiguousRange | None:
    """The run from the first of the offsets asked for; None when it is not theirs alone.

    It is cut short in front of others' records, but is not tried below the lesser limit of bytes.
    The first queue's offset must be one that it has, and is in the stretch that is given.
    """
    start = min(_begins(commit_log, asked), default=-1)
    file = commit_log.segments.file_at(start)
    if file is None or not 0 < len(asked) <= QUEUES_MAX:
        return None
    least, most = limits
    end = min(file.start + file.size, commit_log.end)
    while True:
        found = _found(asked, start, min(start + most, end))
        if found is not None or most // 2 < least:
            return found
        most //= 2


def _found(asked: Mapping[ConsumeQueue, int], start: int, limit: int) -> ContiguousRange | None:
    shares = [_Share(queue, start, limit) for queue in asked]
    last = max(shares, key=_Share.end)
    if last.end() > limit:
        last.behind -= 1
    stop = max(share.end() for share in shares)
    leading, offset = shares[0], next(iter(asked.values()))
    if not leading.first <= offset < leading.behind:
        return None
    if sum(share.size() for share in shares) != stop - start:
        return None
    count = sum(share.behind - share.first for share in shares)
    return ContiguousRange(start=start, stop=stop, count=count, next_offset=leading.behind)


def _begins(commit_log: CommitLog, asked: Mapping[ConsumeQueue, int]) -> list[int]:
    """Where the records of these offsets begin, as far as they are there."""
    entries = [
        queue.entry(offset)
        for queue, offset in asked.items()
        if queue.min_offset(commit_log.begin) <= offset < queue.end
    ]
    return [position for position, size, _ in entries if size != FILLER_SIZE]
