"""Recovery: the true end of the log, from the facts of a scan.

    ──── whole ────┤ damage ├──── whole ────┼──── whole ────┤ torn … (whole) …
                                            durable          end

Everything before `durable` had reached the disk, so a gap there is damage: records behind it were
promised and stay. Behind `durable` the first incomplete record is the tail of a write that never
finished, and nothing behind it was promised.
"""

from collections.abc import Sequence
from typing import Final

import msgspec


class RecordRange(msgspec.Struct, frozen=True):
    """Whole records without a gap, at positions [start, stop)."""

    start: int
    stop: int


class LostMessages(msgspec.Struct, frozen=True):
    """Unreadable messages of one queue, at offsets [first, stop)."""

    topic: str
    queue_id: int
    first: int
    stop: int


class LogDamage(msgspec.Struct, frozen=True):
    """Damaged bytes of the log, at positions [start, stop), and the messages lost there."""

    start: int
    stop: int
    lost: tuple[LostMessages, ...]

    def __str__(self) -> str:
        what = ", ".join(
            f"{lost.topic} queue {lost.queue_id} offsets {lost.first} to {lost.stop - 1}"
            for lost in self.lost
        )
        return f"positions {self.start} to {self.stop - 1}: {what or 'no message known'}"


class LogEnd(msgspec.Struct, frozen=True):
    """End of the log, damage before it, and whole records that are cut off behind it."""

    end: int
    damage: tuple[RecordRange, ...]
    cut: tuple[RecordRange, ...]


def is_torn_tail(gap_start: int, durable: int) -> bool:
    """Whether the first incomplete record belongs to a write that never finished."""
    return gap_start >= durable


def find_log_end(scanned: Sequence[RecordRange], start: int, durable: int) -> LogEnd:
    """Find the log's end from the ranges that a scan from `start` found, in order of position.

    A gap in front of `durable` with no whole record behind it extends to `durable`: its positions
    and offsets were promised once and are never given to other messages.
    """
    end, damage = start, list[RecordRange]()
    for index, run in enumerate(scanned):
        if run.start != end:
            if is_torn_tail(end, durable):
                return LogEnd(end, tuple(damage), tuple(scanned[index:]))
            damage.append(RecordRange(end, run.start))
        end = run.stop
    if end < durable:
        damage.append(RecordRange(end, durable))
        end = durable
    return LogEnd(end, tuple(damage), ())


def end_runs(scanned: list[RecordRange], start: int, lost: Sequence[RecordRange]) -> int:
    """End the run from `start` at each lost range; gives where it begins again behind them."""
    for gap in lost:
        scanned.append(RecordRange(start, gap.start))
        start = gap.stop
    return start


class UncleanStop(msgspec.Struct, frozen=True):
    """Facts about a log after an unclean stop, which left no trusted position."""

    first_stored_ms: tuple[int | None, ...]
    """Store time of the first record of each file, oldest file first; None for a file without
    one."""
    safe_ms: int
    """Records stored until then are known to be durable, and so are their queue entries."""


CLOCK_SLACK_MS: Final = 3000
"""A scan begins this much before the checkpoint's time, which is not taken at the same instant."""


def first_file_to_scan(clues: UncleanStop) -> int:
    """Index of the file from which the log is scanned again: the last one that began safely."""
    limit = max(0, clues.safe_ms - CLOCK_SLACK_MS)
    for index in range(len(clues.first_stored_ms) - 1, 0, -1):
        stored_ms = clues.first_stored_ms[index]
        if stored_ms is not None and 0 < stored_ms <= limit:
            return index
    return 0
