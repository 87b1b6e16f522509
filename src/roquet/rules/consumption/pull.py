"""Pull: messages found, nothing new, or a corrected offset; limits, and where a group begins.

    offset            min ........ max
    ─────────────┬─────┬───────────┬─────┬──────────────────────
    corrected    │     │   found   │ at  │ corrected to the
    to min       │     │           │ end │ group's progress,
                 │     │           │     │ or to min

An empty queue that never held messages is at its end at 0, and corrects every other offset to 0.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

COUNT_MAX: Final = 16_384
"""Messages of one reply: more would hold the event loop for too long."""

BYTES_DEFAULT: Final = 256 * 1024
"""Bytes of one reply, for clients that name no limit: Apache's limit for messages in memory."""

BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of one reply: half of the longest frame that peers accept."""


class OffsetFound(msgspec.Struct, frozen=True):
    """The queue holds this offset."""


class OffsetAtEnd(msgspec.Struct, frozen=True):
    """The next message will get this offset: nothing new yet."""


class OffsetCorrected(msgspec.Struct, frozen=True):
    """The queue does not hold this offset and never will: continue at another one."""

    offset: int
    reason: str
    """Apache's name for it."""


FOUND: Final = OffsetFound()
AT_END: Final = OffsetAtEnd()

PullOutcome = OffsetFound | OffsetAtEnd | OffsetCorrected


def pull_outcome(
    offset: int, minimum: int, maximum: int, committed: int | None = None
) -> PullOutcome:
    """Meaning of an offset in a queue that holds offsets [minimum, maximum).

    `committed` is the progress of the group that pulls, if it has any.
    """
    if minimum <= offset < maximum:
        return FOUND
    if offset == maximum:
        return AT_END
    if maximum == 0:
        return OffsetCorrected(0, "NO_MESSAGE_IN_QUEUE")
    if offset < minimum:
        return OffsetCorrected(minimum, "OFFSET_TOO_SMALL")
    # A reader ahead of a queue that lost its tail, or whose topic was created again, must not miss
    # what was stored since. Apache's broker continues at the end, which skips that.
    if committed is None or not minimum <= committed <= maximum:
        committed = minimum
    return OffsetCorrected(committed, "OFFSET_OVERFLOW_BADLY")


def reply_limits(count: int, size: int | None) -> tuple[int, int]:
    """Number of messages and bytes that one reply may hold, as far as the client asks for them."""
    size = BYTES_DEFAULT if size is None or size <= 0 else min(size, BYTES_MAX)
    return min(max(count, 1), COUNT_MAX), size


LIMITS_MAX: Final = 1_024
"""Limits that are remembered: clients ask for the same ones again and again."""


@lru_cache(LIMITS_MAX)
def transfer_limits(count: int, size: int | None, count_max: int, size_max: int) -> tuple[int, int]:
    """Number of messages and bytes of a reply to a client that asks for what fits in one.

    `count_max` and `size_max` are the server's own limits.
    """
    count, size = reply_limits(count, size or size_max)
    return reply_limits(min(count, count_max), min(size, size_max))


IN_FLIGHT_MAX: Final = 1_000
"""Messages of one queue that a member holds at most, as in Java."""

IN_FLIGHT_BYTES_MAX: Final = 100 * 1024 * 1024
"""Bytes of one queue that a member holds at most, as in Java."""

SPAN_MAX: Final = 2_000
"""Distance of the lowest and highest offset in flight, as in Java: at most this many messages come
twice if a member dies while one message keeps it busy."""


class FlowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the messages of one queue in flight."""

    count: int = IN_FLIGHT_MAX
    size: int = IN_FLIGHT_BYTES_MAX
    span: int | None = SPAN_MAX
    """None for ordered queues, where nothing overtakes."""

    def are_reached(self, count: int, size: int, span: int) -> bool:
        """Whether to wait with the next pull until some messages are handled."""
        if count >= self.count or size >= self.size:
            return True
        return self.span is not None and span > self.span


MEMORY_SHARE: Final = 0.4
"""Fraction of the machine's memory: records closer to the log's end count as in the page cache."""


def queried_progress(
    committed: int | None, minimum: int, *, zero_if_absent: bool, is_in_page_cache: bool
) -> int | None:
    """A group's progress in a queue as a query reports it; None means that it has none.

    A group without progress begins at 0 while the queue still holds its first message and that is
    recent: a topic that has just been created must not lose what was sent before its first consumer
    came. Any other new group gets no progress, and begins where its own settings say.
    """
    if committed is not None:
        return committed
    return 0 if zero_if_absent and minimum <= 0 and is_in_page_cache else None


def is_in_page_cache(
    position: int, end_position: int, memory: int, share: float = MEMORY_SHARE
) -> bool:
    """Whether a record is likely to be still in memory, not only on the disk."""
    return end_position - position <= memory * share


class ConsumeWindow:
    """Messages of one queue in flight, across pulls.

        handled       in flight           not read yet
        ──────────┬─────────────────┬───────────────────▶ offsets
                  committable       next

    Progress is the offset of the lowest message still in flight, so a message that was not handled
    is read again after a crash, whatever was handled behind it.
    """

    __slots__ = ("_sizes", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Offset of the next pull."""
        self.size = 0
        """Bytes in flight."""
        self._sizes: dict[int, int] = {}
        """Bytes of each message in flight, in the order of offsets."""

    @property
    def count(self) -> int:
        """Messages in flight."""
        return len(self._sizes)

    @property
    def committable(self) -> int:
        """Progress that may be committed: every message before it is handled."""
        return next(iter(self._sizes), self.next_offset)

    @property
    def span(self) -> int:
        """Distance from the lowest to the highest offset in flight."""
        return next(reversed(self._sizes)) - next(iter(self._sizes)) if self._sizes else 0

    def take(self, messages: Iterable[tuple[int, int]], next_offset: int) -> None:
        """Add messages in flight, as (offset, size) in rising order; sets the next offset."""
        highest = next(reversed(self._sizes), -1)
        for offset, size in messages:
            assert offset > highest, "offsets of a queue only grow"
            highest = offset
            self._sizes[offset] = size
            self.size += size
        self.next_offset = next_offset

    def finish(self, offset: int) -> None:
        """Mark a message as handled; repeated calls, and unknown messages, change nothing."""
        self.size -= self._sizes.pop(offset, 0)

    def move(self, next_offset: int) -> None:
        """Continue at another offset, as the broker or the user decided.

        Forward: messages in flight still count. Back: they will be read again, so they are
        forgotten.
        """
        if next_offset < self.next_offset:
            self._sizes.clear()
            self.size = 0
        self.next_offset = next_offset


RETRY_PAUSE_MS: Final = 1_000
"""Pause before a message whose handler failed is retried; it doubles with each try."""

RETRY_PAUSE_MS_MAX: Final = 30_000
"""Longest pause: a repaired dependency is noticed within it."""


def retry_pause_ms(tries: int) -> int:
    """Pause before the next try of a message that has failed `tries` times."""
    return min(RETRY_PAUSE_MS << min(tries, 20), RETRY_PAUSE_MS_MAX)
