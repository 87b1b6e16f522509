"""Timer messages: delivery times, their slots on the wheel, and the order of those that are due.

    deliver ms     time asked for: never delivered before
    out ms         its slot: the second that ends then, as Apache's broker writes it
    stop           the slot where it waits: its own, or one on the way if that is far

                        ├──────────── window ────────────┤
    now ────────────────┼──────────────── stop ──────────┼─────────── out ──▶
                        └ written again from there, until its own slot is in reach

The arithmetic is that of Apache's HookUtils and TimerMessageStore.
"""

import re
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from roquet.model import properties as names
from roquet.model.errors import MessageIllegal

PRECISION_MS: Final = 1_000
"""Length of one slot of the wheel."""

DAY_MS: Final = 86_400_000

MAX_DELAY_MS: Final = 3 * DAY_MS
"""Farthest delivery time unless the operator says otherwise, as in Apache's broker."""

MAX_DELAY_LIMIT_MS: Final = 40 * DAY_MS
"""Farthest delivery time that an operator may allow: messages beyond it would be written again
twenty times and more."""

WINDOW_MS: Final = 2 * DAY_MS
"""Longest wait of a message in one slot, as in Apache's broker (timerRollWindowSlot)."""

DEFAULT: Final = 1
ROLL: Final = 2
DELETE: Final = 4
"""Flags of a unit of the timer log: it waits; it rolls on to another slot; it cancels a message."""

NOT_ON_WHEEL_MS: Final = 2**63 - 1
"""Enqueue time of a message that came too late for the wheel."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MAX: Final = 2**63 - 1

_UNITS_MS: Final = {names.TIMER_DELAY_SEC: 1_000, names.TIMER_DELAY_MS: 1}
"""Delay properties in order of precedence; an absolute time comes last."""

DELIVERY_TIME_PROPERTIES: Final = (*_UNITS_MS, names.TIMER_DELIVER_MS)
"""Properties that ask for a delivery time."""


CLOCK_LATENCY_MS: Final = 2 * PRECISION_MS
"""Messages may be stored this long by a clock that was set back before the timer notices."""


class ClockSetBack(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that jumped ahead, stored messages meanwhile, and was set back."""

    before_ms: int
    """Last time shown before the jump."""
    by_ms: int
    """Amount by which it was set back."""
    now_ms: int
    """First time known to be shown since."""

    def out_ms(self, properties: Mapping[str, str], out: int) -> int | None:
        """The slot in which a message has to wait now; None if its own slot is right.

        A delay counts from the store time: a message stored while the clock was ahead got a slot
        that is too far away. A delivery time was chosen by the sender and stays. A cancellation is
        written for both slots: its handle does not say which kind of time the message asked for.
        """
        moved = -(-(out - self.by_ms) // PRECISION_MS) * PRECISION_MS
        if names.TIMER_DELETE_UNIQUE_KEY in properties:
            is_first = slot_ms(requested_ms(properties, 0)) == out
            return moved if is_first and moved > self.now_ms else None
        if (delay_ms := _delay_ms(properties)) is None:
            return None
        stored_ms = out - delay_ms  # or up to a second later
        is_new = 0 <= self.now_ms - stored_ms <= CLOCK_LATENCY_MS
        return moved if stored_ms > self.before_ms and not is_new else None


def is_timed(properties: Mapping[str, str]) -> bool:
    """Whether a delivery time is asked for that has not been fulfilled yet."""
    return names.TIMER_OUT_MS not in properties and any(
        name in properties for name in DELIVERY_TIME_PROPERTIES
    )


def requested_ms(properties: Mapping[str, str], now_ms: int) -> int:
    """Requested delivery time. Raises MessageIllegal for a value that is not a number."""
    if (delay_ms := _delay_ms(properties)) is not None:
        return now_ms + delay_ms
    if (text := properties.get(names.TIMER_DELIVER_MS)) is None:
        raise MessageIllegal(
            f"the delivery time is empty: one of {', '.join(DELIVERY_TIME_PROPERTIES)} is wanted"
        )
    return _number(names.TIMER_DELIVER_MS, text)


def out_ms(properties: Mapping[str, str], now_ms: int, max_delay_ms: int) -> int | None:
    """Slot of a message with a delivery time; None if the time has come.

    Raises MessageIllegal for a time that is too far away.
    """
    requested = requested_ms(properties, now_ms)
    if requested <= now_ms:
        return None
    if requested - now_ms > max_delay_ms:
        raise MessageIllegal(
            f"the message is to be delivered in {(requested - now_ms) // 1_000} s, this broker"
            f" keeps it for {max_delay_ms // 1_000} s at most"
        )
    return slot_ms(requested)


def slot_ms(time_ms: int) -> int:
    """Slot of a time: the second that ends with it or contains it."""
    return (time_ms - 1) // PRECISION_MS * PRECISION_MS


def floor_ms(time_ms: int) -> int:
    """Start of the second that contains a time."""
    return time_ms // PRECISION_MS * PRECISION_MS


def due_ms(properties: Mapping[str, str], stored_ms: int, out: int) -> int:
    """Due time of a stored message, in ms: within its slot, or at its end.

    A delay counts from the store time. If the message was stored again meanwhile, only its slot is
    known; then it is due at the slot's end.
    """
    try:
        requested = requested_ms(properties, stored_ms)
    except MessageIllegal:
        return out + PRECISION_MS
    return requested if out < requested <= out + PRECISION_MS else out + PRECISION_MS


def window_ms(retention_ms: int) -> int:
    """Longest wait in one slot: no longer than the record is certain to be kept."""
    return max(2 * PRECISION_MS, min(WINDOW_MS, floor_ms(retention_ms * 2 // 3)))


def stop_ms(out: int, write_ms: int, window: int) -> tuple[int, bool]:
    """Slot in which a message waits, and whether it rolls on from there to another.

    If less than a third of a window would be left behind the stop, the stop is half a window away,
    so that the rest is never too short.
    """
    left = out - write_ms - window
    if left < 0:
        return out, False
    slots = window // PRECISION_MS
    if left < slots // 3 * PRECISION_MS:
        return write_ms + slots // 2 * PRECISION_MS, True
    return write_ms + window, True


def magic(*, rolls: bool, deletes: bool) -> int:
    """Flags of a unit of the timer log."""
    return DEFAULT | (ROLL if rolls else 0) | (DELETE if deletes else 0)


def is_delete(kind: int) -> bool:
    """Whether a unit cancels another message, now or later."""
    return bool(kind & DELETE)


def must_roll(kind: int) -> bool:
    """Whether a unit that is due is written again, for another slot."""
    return bool(kind & ROLL)


def is_recall_due(kind: int) -> bool:
    """Whether a unit that is due cancels another message of its slot."""
    return kind & (DELETE | ROLL) == DELETE


def recall_fault(deliver_ms: int, now_ms: int, max_delay_ms: int) -> str | None:
    """Why a message with this delivery time cannot be cancelled; None if it can."""
    return None if 0 < deliver_ms - now_ms < max_delay_ms else "recall failed, timestamp invalid"


def _delay_ms(properties: Mapping[str, str]) -> int | None:
    """Requested delay; None without one. Raises MessageIllegal."""
    for name, unit_ms in _UNITS_MS.items():
        if (text := properties.get(name)) is not None:
            return _number(name, text) * unit_ms
    return None


def _number(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or abs(number := int(text)) > _LONG_MAX:
        raise MessageIllegal(f"property {name} is {text[:40]!r}, not a whole number")
    return number


POSITION_BITS: Final = 48
"""Bits of a unit's position, packed into one number with its time: 256 TiB of timer log."""

_POSITION_MASK: Final = (1 << POSITION_BITS) - 1


class DueQueue:
    """Messages of one second, a number for each, since there may be a million."""

    def __init__(self, begin_ms: int, last: int, done: tuple[int, int]) -> None:
        self.begin_ms = begin_ms
        self.next = last
        """Next unit to read: a chain, from the newest back; -1 at its end."""
        self._done = self._key(*done) if done[0] else -1
        self._keys: list[int] = []
        self._is_ordered = False
        self._recalled: set[tuple[str, str]] = set()

    @property
    def is_known(self) -> bool:
        """Whether all units have been read, so that the first due message is known."""
        return self.next < 0

    def add(self, due_ms: int, position: int) -> None:
        """Add a message, unless it was delivered before."""
        key = self._key(due_ms, position)
        if key <= self._done:
            return
        if self._is_ordered:
            heappush(self._keys, key)
        else:
            self._keys.append(key)

    def recall(self, topic: str, unique_key: str) -> None:
        """Cancel a message."""
        self._recalled.add((topic, unique_key))

    def is_recalled(self, topic: str, unique_key: str) -> bool:
        """Whether a message was cancelled by its sender."""
        return (topic, unique_key) in self._recalled

    def first(self) -> tuple[int, int] | None:
        """Due time and unit position of the next message; None if none is left."""
        if not self._is_ordered:
            heapify(self._keys)
            self._is_ordered = True
        if not self._keys:
            return None
        key = self._keys[0]
        return self.begin_ms + (key >> POSITION_BITS), key & _POSITION_MASK

    def drop(self) -> None:
        """Remove the first message."""
        heappop(self._keys)

    def _key(self, due_ms: int, position: int) -> int:
        return max(due_ms - self.begin_ms, 0) << POSITION_BITS | position
