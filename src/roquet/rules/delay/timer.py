"""Timer: what a delivery time asks for, its slot on the wheel, what becomes of it when due.

    deliver ms     when the message is wanted: never before
    out ms         its slot: the second that ends then, as the genuine broker writes it
    stop           the slot where it waits: its own, or one on the way when that is far

                        ├──────────── window ────────────┤
    now ────────────────┼──────────────── stop ──────────┼─────────── out ──▶
                        └ written again from there, until its own slot is in reach

The arithmetic is that of the genuine HookUtils and TimerMessageStore.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from roquet.model import properties as names
from roquet.model.errors import MessageIllegal

PRECISION_MS: Final = 1_000
"""What one slot of the wheel holds."""

DAY_MS: Final = 86_400_000

MAX_DELAY_MS: Final = 3 * DAY_MS
"""The farthest delivery time unless the operator says otherwise, as in the genuine broker."""

MAX_DELAY_LIMIT_MS: Final = 40 * DAY_MS
"""What an operator may allow: farther ones would be written again twenty times and more."""

WINDOW_MS: Final = 2 * DAY_MS
"""How long a message waits in one slot at most, as in the genuine broker (timerRollWindowSlot)."""

DEFAULT: Final = 1
ROLL: Final = 2
DELETE: Final = 4
"""What a unit of the timer log says: it waits, on the way; it takes another message back."""

NOT_ON_WHEEL_MS: Final = 2**63 - 1
"""The time at which a message was put on the wheel that came too late for it."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MAX: Final = 2**63 - 1

_UNITS_MS: Final = {names.TIMER_DELAY_SEC: 1_000, names.TIMER_DELAY_MS: 1}
"""Delays, in the order in which they are believed; a time of day comes last."""

DELIVERY_TIME_PROPERTIES: Final = (*_UNITS_MS, names.TIMER_DELIVER_MS)
"""The properties that ask for a delivery time."""


CLOCK_LATENCY_MS: Final = 2 * PRECISION_MS
"""Messages may be stored for so long by a clock that was set back before the timer sees that."""


class ClockSetBack(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that leapt ahead, stored messages meanwhile, and was set back."""

    before_ms: int
    """The last time that it showed before the leap."""
    by_ms: int
    """By how much it was set back."""
    now_ms: int
    """The first time that is known to be shown since."""

    def out_ms(self, properties: Mapping[str, str], out: int) -> int | None:
        """The second for which a message has to wait now; None if its own one is right.

        A delay counts from when the message was stored: one that was stored while the clock was
        ahead got a second that is too far away. A delivery time was told by the sender and stays.
        What takes a message back is written for both seconds: the handle does not say which kind
        of wish the message had.
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
    """Whether a delivery time is asked for that was not yet fulfilled."""
    return names.TIMER_OUT_MS not in properties and any(
        name in properties for name in DELIVERY_TIME_PROPERTIES
    )


def requested_ms(properties: Mapping[str, str], now_ms: int) -> int:
    """When a message is wanted. Raises MessageIllegal for a number that is none."""
    if (delay_ms := _delay_ms(properties)) is not None:
        return now_ms + delay_ms
    if (text := properties.get(names.TIMER_DELIVER_MS)) is None:
        raise MessageIllegal(
            f"the delivery time is empty: one of {', '.join(DELIVERY_TIME_PROPERTIES)} is wanted"
        )
    return _number(names.TIMER_DELIVER_MS, text)


def out_ms(properties: Mapping[str, str], now_ms: int, max_delay_ms: int) -> int | None:
    """The slot of a message that asks for a time; None when the time has come.

    Raises MessageIllegal for a time that is too far away.
    """
    wished = requested_ms(properties, now_ms)
    if wished <= now_ms:
        return None
    if wished - now_ms > max_delay_ms:
        raise MessageIllegal(
            f"the message is to be delivered in {(wished - now_ms) // 1_000} s, this broker keeps"
            f" it for {max_delay_ms // 1_000} s at most"
        )
    return slot_ms(wished)


def slot_ms(wished: int) -> int:
    """The slot of a time: the second that ends with it or holds it."""
    return (wished - 1) // PRECISION_MS * PRECISION_MS


def floor_ms(time_ms: int) -> int:
    """The second that a time lies in."""
    return time_ms // PRECISION_MS * PRECISION_MS


def due_ms(properties: Mapping[str, str], stored_ms: int, out: int) -> int:
    """When a stored message is due, to the millisecond: within its slot, or as that ends.

    A delay counts from when the message was stored. If it was stored anew meanwhile, only its slot
    is known; then it comes when that is over.
    """
    try:
        wished = requested_ms(properties, stored_ms)
    except MessageIllegal:
        return out + PRECISION_MS
    return wished if out < wished <= out + PRECISION_MS else out + PRECISION_MS


def window_ms(retention_ms: int) -> int:
    """How long a message may wait in one slot: no longer than its record is sure to be kept."""
    return max(2 * PRECISION_MS, min(WINDOW_MS, floor_ms(retention_ms * 2 // 3)))


def stop_ms(out: int, write_ms: int, window: int) -> tuple[int, bool]:
    """The slot where a message waits, and whether it goes on from there to another.

    Where less than a third of a window would be left behind the stop it is half way, so that
    the rest is never too short.
    """
    left = out - write_ms - window
    if left < 0:
        return out, False
    slots = window // PRECISION_MS
    if left < slots // 3 * PRECISION_MS:
        return write_ms + slots // 2 * PRECISION_MS, True
    return write_ms + window, True


def magic(*, rolls: bool, deletes: bool) -> int:
    """What the timer log says of a unit."""
    return DEFAULT | (ROLL if rolls else 0) | (DELETE if deletes else 0)


def is_delete(kind: int) -> bool:
    """Whether a unit takes back another message, now or later."""
    return bool(kind & DELETE)


def must_roll(kind: int) -> bool:
    """Whether a unit that is due is written again, for another slot."""
    return bool(kind & ROLL)


def is_recall_due(kind: int) -> bool:
    """Whether a unit that is due takes back another message of its slot."""
    return kind & (DELETE | ROLL) == DELETE


def recall_fault(deliver_ms: int, now_ms: int, max_delay_ms: int) -> str | None:
    """Why a message of that time cannot be taken back; None when it can."""
    return None if 0 < deliver_ms - now_ms < max_delay_ms else "recall failed, timestamp invalid"


def _delay_ms(properties: Mapping[str, str]) -> int | None:
    """The delay that is asked for; None for none. Raises MessageIllegal."""
    for name, unit_ms in _UNITS_MS.items():
        if (text := properties.get(name)) is not None:
            return _number(name, text) * unit_ms
    return None


def _number(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or abs(number := int(text)) > _LONG_MAX:
        raise MessageIllegal(f"property {name} is {text[:40]!r}, not a whole number")
    return number
