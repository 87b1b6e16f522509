"""Contiguous range: a part of the log that holds only records of some queues.

    log       ─a1─b1─a2─c1─b2─a3─x1─      a, b, c are requested, x is not
    range      └───────────────┘

A reader of many queues of a topic takes such a range as it lies in the log, without work per
record. A sum proves that no other records are in it: the sizes of the queues' records add up to the
length of the range. The caller checks whether the records are whole.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.layout import FILLER_SIZE

QUEUES_MAX: Final = 64
"""Queues of one range: each costs a few searches, together less than a millisecond."""


class ContiguousRange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Positions [start, stop) of the log, and the number of records there."""

    start: int
    stop: int
    count: int
    next_offset: int
    """Of the queue that was requested first: the offset behind its last record in the range."""


class _Share:
    """The entries of one queue that lead into the range."""

    __slots__ = ("behind", "first", "queue")

    def __init__(self, queue: ConsumeQueue, start: int, stop: int) -> None:
        self.queue = queue
        self.first = queue.offset_of(start)
        self.behind = queue.offset_of(stop)

    def end(self) -> int:
        """Where the queue's last record in the range ends; 0 without one."""
        if self.first == self.behind:
            return 0
        position, size, _ = self.queue.entry(self.behind - 1)
        return position + size

    def size(self) -> int:
        """Bytes of the queue's records in the range."""
        return self.queue.records_size(self.first, self.behind)


def contiguous_range(
    commit_log: CommitLog,
    requested: Mapping[ConsumeQueue, int],
    limits: tuple[int, int],
    visible_end: int,
) -> ContiguousRange | None:
    """The range from the first of these offsets on; None if it holds other queues' records.

    No record in it ends behind `visible_end`.

    It is shortened in front of others' records, but not below the lesser limit of bytes. The first
    queue must have its offset, and its record is in the range.
    """
    start = min(_first_positions(commit_log, requested), default=-1)
    file = commit_log.segments.file_at(start)
    if file is None or not 0 < len(requested) <= QUEUES_MAX:
        return None
    least, most = limits
    end = min(file.start + file.size, visible_end)
    while True:
        candidate = _range_up_to(requested, start, min(start + most, end))
        if candidate is not None or most // 2 < least:
            return candidate
        most //= 2


def _range_up_to(
    requested: Mapping[ConsumeQueue, int], start: int, limit: int
) -> ContiguousRange | None:
    shares = [_Share(queue, start, limit) for queue in requested]
    last = max(shares, key=_Share.end)
    if last.end() > limit:
        last.behind -= 1
    stop = max(share.end() for share in shares)
    leading, offset = shares[0], next(iter(requested.values()))
    if not leading.first <= offset < leading.behind:
        return None
    if sum(share.size() for share in shares) != stop - start:
        return None
    count = sum(share.behind - share.first for share in shares)
    return ContiguousRange(start=start, stop=stop, count=count, next_offset=leading.behind)


def _first_positions(commit_log: CommitLog, requested: Mapping[ConsumeQueue, int]) -> list[int]:
    """Where the records of these offsets begin, as far as they exist."""
    entries = [
        queue.entry(offset)
        for queue, offset in requested.items()
        if queue.min_offset(commit_log.begin) <= offset < queue.end
    ]
    return [position for position, size, _ in entries if size != FILLER_SIZE]
