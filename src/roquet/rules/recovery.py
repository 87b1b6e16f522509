"""From scanned facts, where the log truly ends.

    ──── whole ────┤ damage ├──── whole ────┼──── whole ────┤ torn … (whole) …
                                            durable          end

Everything before `durable` had reached the disk, so a hole there is damage: what stands behind it
was promised and stays. Behind `durable` the first thing that is not whole is the tail of a write
that never ended, and nothing behind it was promised.
"""

from collections.abc import Sequence
from typing import Final

import msgspec


class RecordRange(msgspec.Struct, frozen=True):
    """Whole records one behind the other, from a position to a position."""

    start: int
    stop: int


class LostMessages(msgspec.Struct, frozen=True):
    """Messages of one queue that cannot be read: offsets from `first` up to `stop`."""

    topic: str
    queue_id: int
    first: int
    stop: int


class LogDamage(msgspec.Struct, frozen=True):
    """Bytes of the log that are not whole records, and the messages that were there."""

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
    """Where the log ends, what before it cannot be read, and whether whole records are cut off."""

    end: int
    damage: tuple[RecordRange, ...]
    cut: tuple[RecordRange, ...]


def is_torn_tail(gap_start: int, durable: int) -> bool:
    """Whether the first byte that is not whole belongs to a write that never ended."""
    return gap_start >= durable


def find_log_end(scanned: Sequence[RecordRange], start: int, durable: int) -> LogEnd:
    """Judge the runs that a scan from `start` found, in the order of their positions.

    A hole in front of `durable` with nothing whole behind it reaches to `durable`: its positions
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


class UncleanStop(msgspec.Struct, frozen=True):
    """What an unordered stop left behind, for a log without a trusted position."""

    first_stored_ms: tuple[int | None, ...]
    """Per file, oldest first: store time of its first record, None where there is none."""
    safe_ms: int
    """Records stored until then are known to be durable, their queue entries as well."""


CLOCK_SLACK_MS: Final = 3000
"""How much earlier than the checkpoint says a scan begins: its times are taken in passing."""


def first_file_to_scan(clues: UncleanStop) -> int:
    """The file from which the log has to be read again: the last one that began in safety."""
    limit = max(0, clues.safe_ms - CLOCK_SLACK_MS)
    for index in range(len(clues.first_stored_ms) - 1, 0, -1):
        stored_ms = clues.first_stored_ms[index]
        if stored_ms is not None and 0 < stored_ms <= limit:
            return index
    return 0
