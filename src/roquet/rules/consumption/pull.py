"""Pull: messages found, nothing new, or a corrected offset; limits of one reply.

    offset            min ........ max
    ─────────────┬─────┬───────────┬─────┬──────────────────────
    corrected    │     │   found   │ at  │ corrected to the
    to min       │     │           │ end │ group's progress,
                 │     │           │     │ or to min

An empty queue that never held messages is at its end at 0, and corrects every other offset to 0.
"""

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
