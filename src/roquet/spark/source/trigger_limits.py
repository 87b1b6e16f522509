"""Rate: how much a batch may bring, and when it is time for one; pure.

Limits are of queue offsets: messages that a filter leaves out count as well, since nobody knows
before they are read how many there are.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.spark.queue_offsets import OffsetRange, QueueKey

if TYPE_CHECKING:
    from roquet.spark.options import SourceOptions

PAUSE_MS_MIN: Final = 10
PAUSE_MS_MAX: Final = 25
"""Between two looks at the brokers: a tenth of the time that nothing came, within these."""

SAMPLED_MAX: Final = 32
"""Queues whose message size is asked for before a batch: two calls each, of a millisecond."""


class TriggerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a user allows for one batch."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_ms: int = 0
    """How long fewer than `rows_min` are held back."""

    @classmethod
    def of(cls, settings: "SourceOptions") -> "TriggerLimits":
        """The limits of a read; ConfigError for those that contradict each other."""
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
        """Whether a batch of so many rows, so long after the last one, is too early.

        The first batch of a run, when nobody knows how long, never is.
        """
        if self.rows_min is None or waited_ms is None:
            return False
        return rows < self.rows_min and waited_ms < self.delay_ms


def pause_ms(idle_ms: int) -> int:
    """Until the next look, after so long without anything new.

    A message then waits a tenth longer than the quiet before it was, 25 ms at most, a tenth of what
    Spark takes for a batch; a stream that rests costs a broker forty calls a second, some 5 ms.
    """
    return max(PAUSE_MS_MIN, min(PAUSE_MS_MAX, idle_ms // 10))


def longest_ranges(pieces: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The pieces whose message sizes decide: the longest ones."""
    return sorted(pieces, key=len, reverse=True)[:SAMPLED_MAX]


def rows_within(
    bytes_max: int, pieces: Sequence[OffsetRange], sizes: Mapping[QueueKey, float]
) -> int:
    """How many rows of the pieces take so many bytes, by the mean sizes that are known; at least 1.

    Queues without a known size are taken for the mean of the others.
    """
    known = [sizes[piece.queue] * len(piece) for piece in pieces if piece.queue in sizes]
    rows_known = sum(len(piece) for piece in pieces if piece.queue in sizes)
    rows = sum(map(len, pieces))
    if not rows_known or not sum(known):
        return rows
    return max(1, min(rows, int(bytes_max * rows_known / sum(known))))
