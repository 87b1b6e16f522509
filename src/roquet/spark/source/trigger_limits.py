"""Trigger limits: the size of a micro-batch and the earliest time for it. Pure.

Limits count queue offsets: messages that a filter drops count as well, since their number is not
known before they are read.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from roquet.lake.queue_offsets import OffsetRange, QueueKey
from roquet.model.errors import ConfigError
from roquet.spark.options import SourceOptions

PAUSE_MS_MIN: Final = 10
PAUSE_MS_MAX: Final = 25
"""Bounds of the pause between polls of the brokers: a tenth of the time without new messages."""

SAMPLED_MAX: Final = 32
"""Most queues whose message size is sampled for a batch: two calls each, of a millisecond."""


class TriggerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one micro-batch."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_ms: int = 0
    """How long fewer rows than `rows_min` are held back."""

    @classmethod
    def of(cls, settings: SourceOptions) -> "TriggerLimits":
        """The limits of a read; ConfigError when they contradict each other."""
        limits = cls(
            rows_max=settings.max_offsets_per_trigger,
            bytes_max=settings.max_bytes_per_trigger,
            rows_min=settings.min_offsets_per_trigger,
            delay_ms=settings.max_trigger_delay_ms,
        )
        if limits.rows_min and limits.rows_max and limits.rows_min > limits.rows_max:
            raise ConfigError("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
        return limits

    def holds_back(self, rows: int, waited_ms: int | None) -> bool:
        """Whether a batch of so many rows is too early, `waited_ms` after the last one.

        `waited_ms` is None for the first batch of a run, which is never held back.
        """
        if self.rows_min is None or waited_ms is None:
            return False
        return rows < self.rows_min and waited_ms < self.delay_ms


def pause_ms(idle_ms: int) -> int:
    """The pause before the next poll, after `idle_ms` without new messages.

    It delays a message by at most 25 ms, a tenth of what Spark takes for a batch. An idle stream
    costs a broker forty calls a second, some 5 ms of work.
    """
    return max(PAUSE_MS_MIN, min(PAUSE_MS_MAX, idle_ms // 10))


def longest_ranges(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The longest ranges, whose message sizes are sampled."""
    return sorted(ranges, key=len, reverse=True)[:SAMPLED_MAX]


def rows_within(
    bytes_max: int, pieces: Sequence[OffsetRange], sizes: Mapping[QueueKey, float]
) -> int:
    """The number of rows that fit into so many bytes, by the mean message sizes; at least 1.

    Queues without a known size count with the mean of the others.
    """
    known = [sizes[piece.queue] * len(piece) for piece in pieces if piece.queue in sizes]
    rows_known = sum(len(piece) for piece in pieces if piece.queue in sizes)
    rows = sum(map(len, pieces))
    if not rows_known or not sum(known):
        return rows
    return max(1, min(rows, int(bytes_max * rows_known / sum(known))))
