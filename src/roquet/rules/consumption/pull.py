"""What a pull finds: messages, nothing new, or a corrected offset; flow control.

    asked offset      min ........ max
    ─────────────┬─────┬───────────┬─────┬──────────────────────
    Corrected    │     │   Found   │Wait │ Corrected to the
    to min       │     │           │     │ group's progress,
                 │     │           │     │ or to min

A queue without messages answers Wait at 0, and corrects every other offset to 0.
"""

from typing import Final

import msgspec

COUNT_MAX: Final = 16_384
"""Messages of one reply: more would hold the loop for too long."""

BYTES_DEFAULT: Final = 256 * 1024
"""Of one reply, for clients that name no limit: the genuine broker's limit in memory."""

BYTES_MAX: Final = 8 * 1024 * 1024
"""Of one reply: half of the longest frame that peers accept."""


class OffsetFound(msgspec.Struct, frozen=True):
    """The queue holds this offset."""


class OffsetAtEnd(msgspec.Struct, frozen=True):
    """The next message will get this offset: nothing new yet."""


class OffsetCorrected(msgspec.Struct, frozen=True):
    """The queue does not hold this offset and never will: go on at another one."""

    offset: int
    reason: str
    """The genuine broker's name for it."""


FOUND: Final = OffsetFound()
AT_END: Final = OffsetAtEnd()

PullOutcome = OffsetFound | OffsetAtEnd | OffsetCorrected


def pull_outcome(
    asked: int, minimum: int, maximum: int, committed: int | None = None
) -> PullOutcome:
    """What an offset means in a queue that holds `minimum` to `maximum - 1`.

    `committed` is the progress of the group that asks, if it has any.
    """
    if minimum <= asked < maximum:
        return FOUND
    if asked == maximum:
        return AT_END
    if maximum == 0:
        return OffsetCorrected(0, "NO_MESSAGE_IN_QUEUE")
    if asked < minimum:
        return OffsetCorrected(minimum, "OFFSET_TOO_SMALL")
    # Whoever is ahead of a queue that lost its tail, or that was made anew, must not miss what was
    # stored since. The genuine broker goes on at the end, which leaves that out.
    if committed is None or not minimum <= committed <= maximum:
        committed = minimum
    return OffsetCorrected(committed, "OFFSET_OVERFLOW_BADLY")


def reply_limits(count: int, size: int | None) -> tuple[int, int]:
    """How many messages and bytes one reply may hold, by what the client asked for."""
    size = BYTES_DEFAULT if size is None or size <= 0 else min(size, BYTES_MAX)
    return min(max(count, 1), COUNT_MAX), size
