"""Ordered pop: while a member holds messages of a queue, no other member gets the next ones.

    free ── pop ──▶ held ── all acknowledged ──▶ free
             ▲        └──── time passed ───────────┐
             └───── same messages again ◀──────────┘

A member that repeats its attempt, because the reply was lost, gets the same messages again. The
rules are those of Apache's ConsumerOrderInfoManager.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

CLOCK_SET_BACK_MS: Final = 60_000
"""A pop that seems to come from this far in the future was made before the clock was set back."""


class OrderedPopLock(msgspec.Struct, kw_only=True):
    """Messages of one queue that a member of one group holds."""

    pop_ms: int
    invisible_ms: int
    offsets: Sequence[int]
    visible_ms: dict[int, int]
    """Time by offset, for messages whose invisible time the member has changed."""
    times: dict[int, int]
    """Number of earlier deliveries by offset; messages without one are left out."""
    acked: int = 0
    """Bit n: the n-th message is acknowledged."""
    attempt: str | None = None
    suspended: set[int] = set()
    """Offsets whose next delivery does not count."""

    def is_acked(self, index: int) -> bool:
        """Whether the n-th message is acknowledged."""
        return bool(self.acked >> index & 1)


def blocked_until(held: OrderedPopLock | None, attempt: str | None, now_ms: int) -> int | None:
    """Time until which the queue is blocked for others; None if it is free now."""
    if held is None or (held.attempt is not None and held.attempt == attempt):
        return None
    if held.pop_ms - now_ms > CLOCK_SET_BACK_MS:
        return None  # the clock was set back: otherwise the queue would be blocked until then
    due_ms = held.pop_ms + held.invisible_ms
    times = [
        held.visible_ms.get(offset, due_ms)
        for index, offset in enumerate(held.offsets)
        if not held.is_acked(index)
    ]
    latest = max(times, default=0)
    return latest if latest > now_ms else None


def hold(
    before: OrderedPopLock | None,
    offsets: Sequence[int],
    pop_ms: int,
    invisible_ms: int,
    attempt: str | None,
) -> OrderedPopLock:
    """Lock a queue's messages for a member, and count repeated deliveries."""
    times: dict[int, int] = {}
    if before is not None:
        if attempt is not None and before.attempt == attempt:
            times = {o: n for o, n in before.times.items() if o in offsets}
        else:
            again = set(before.offsets)
            counts = {o: before.times.get(o, 0) for o in offsets if o in again}
            counted = {o: n + (o not in before.suspended) for o, n in counts.items()}
            times = {o: n for o, n in counted.items() if n}
    return OrderedPopLock(
        pop_ms=pop_ms,
        invisible_ms=invisible_ms,
        offsets=offsets,
        visible_ms={},
        times=times,
        attempt=attempt,
    )


def change_visibility(held: OrderedPopLock, offset: int, visible_ms: int, *, suspend: bool) -> None:
    """Change when a message is visible again; `suspend`: its next delivery does not count."""
    held.visible_ms[offset] = visible_ms
    (held.suspended.add if suspend else held.suspended.discard)(offset)


def acknowledge(held: OrderedPopLock | None, offset: int, pop_ms: int, progress: int) -> int | None:
    """The group's progress after an acknowledgement; None if it does not belong to the holder.

    Without a holder nothing new counts, where Apache's broker moves on: locks are saved with the
    progress, so such messages were not delivered. Offsets below the progress are done.
    """
    if offset < progress:
        return progress
    if held is None or held.pop_ms != pop_ms or offset not in held.offsets:
        return None
    held.acked |= 1 << held.offsets.index(offset)
    for index, known in enumerate(held.offsets):
        if not held.is_acked(index):
            return max(known, progress)
    return max(held.offsets[-1] + 1, progress)


def is_free(held: OrderedPopLock) -> bool:
    """Whether all its messages are acknowledged."""
    return held.acked == (1 << len(held.offsets)) - 1
