"""Scrub: checks the older log, its queue entries and its keys before a reader meets damage."""

from collections.abc import Sequence
from typing import Final

from roquet.rules.recovery import RecordRange
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queue_repair import QueueRepair
from roquet.store.key_index.index_check import IndexCheck

RECORDS_MAX: Final = 256
"""Records checked in one step: somewhat more than a millisecond, in which nothing else is served.
"""


class Scrub:
    """One walk over the log, up to the records that this process has written or checked."""

    def __init__(self, commit_log: CommitLog, repair: QueueRepair, keys: IndexCheck) -> None:
        self._log = commit_log
        self._repair = repair
        self._keys = keys
        self._until = commit_log.checked_from
        self.position = max(commit_log.begin, commit_log.origin)
        """Everything in front of it has been checked."""
        self._is_at_record = True
        """Whether a record begins at the position; a skip may end inside one."""

    @property
    def is_over(self) -> bool:
        """Whether log and index have been checked."""
        return self._is_through and self._keys.is_over

    @property
    def _is_through(self) -> bool:
        return self.position >= self._until

    def limit(self, end: int) -> None:
        """Check nothing behind a position, where the log was cut, and the index from its begin."""
        self._until, self.position = min(self._until, end), min(self.position, end)
        self._keys = self._keys.restarted()

    def step(self, budget: int) -> Sequence[RecordRange]:
        """Check about `budget` bytes, or fewer in small records; gives the holes in them."""
        if not self._keys.resume():
            return []
        if self._is_through:
            self._keys.finish()
            return []
        self.position = before = max(self.position, self._log.begin)
        holes: list[RecordRange] = []
        stop = min(before + budget, self._until)
        is_through = self._walk(stop, holes)
        while is_through and self.position == before and stop < self._until:
            # Inside a hole or a blank: look ahead to its end.
            stop = min(2 * stop - before, self._until)
            is_through = self._walk(stop, holes)
        if is_through and stop == self._until and not self._is_through:
            holes += self._blank_holes(self._until)
            if self._is_at_record and not self._log.is_blank_at(self.position, self._until):
                holes.append(RecordRange(self.position, self._until))
            self.position = self._until
        self._repair.end_step(is_over=self._is_through)
        return holes

    def skip(self, budget: int) -> None:
        """Pass over the next `budget` bytes without checking them.

        Neither is the rest of the record in which that ends.
        """
        self._is_at_record = False
        self.position = min(self.position + budget, max(self._until, self.position))
        self._repair.end_step(is_over=self._is_through)

    def _blank_holes(self, stop: int) -> Sequence[RecordRange]:
        """The blanks up to `stop` that took the place of messages."""
        if not self._is_at_record or self.position == stop:
            return ()
        return self._repair.lost_in_blanks(self.position, stop)

    def _walk(self, stop: int, holes: list[RecordRange]) -> bool:
        """Walk to `stop`; False when the step ended early: after enough records, or other work."""
        left = RECORDS_MAX
        walk = self._log.walk(self.position, stop, self._until, check_crc=True)
        for expected, position, record in walk:
            holes += self._blank_holes(expected)
            if expected != position and self._is_at_record:
                holes.append(RecordRange(expected, position))
            self.position, self._is_at_record = position + record[0], True
            is_turn_over = not self._repair.compare(position, record)
            left -= 1
            if not self._keys.compare(position, record) or is_turn_over or not left:
                return False
        return True
