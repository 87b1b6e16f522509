"""Timer recovery: makes wheel, timer log and checkpoint agree after a crash.

    checkpoint says:      log end P, offset O, second R
    timer log    ────────────┤P ░░░░░░░░░    units behind P are written again from offset O on
    wheel        ─▶ unit before P            such slots stay
                 ─▶ unit behind P            such slots go back to their last unit before P

The parts of our own checkpoint belong together. Apache's broker may save a later offset than its
log's end covers: then units behind the end count as long as their messages are in front of that
offset, and messages without a unit are read again.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.rules.delay.timer import PRECISION_MS, floor_ms, is_delete
from roquet.store.timer.layout import NONE, UNIT_SIZE, TimerCheckpoint, TimerSlot, TimerUnit
from roquet.store.timer.log import TimerLog
from roquet.store.timer.wheel import EMPTIED_SLOT, TimerWheel

log = logger(__name__)

TimerOffsetLookup = Callable[[TimerUnit], int | None]
"""The timer topic's offset of a unit's message; None when there is none."""

_START: Final = 0

DISCARDED: Final = -1
"""Log end in a checkpoint that leaves nothing of the wheel and the timer log in force."""

UNITS_MAX: Final = 2_000_000
"""The newest units that are compared with the wheel when a store opens: about a second. Of those in
front of them, only the last one of each slot is checked."""


COUNT_LIMIT: Final = 1 << 48
"""More bytes than any timer log has, and more messages than any topic."""

AHEAD_MS: Final = 14 * 86_400_000
"""The span of the wheel: a clock was set back since by no more than this."""


class TimerRecoveryResult(msgspec.Struct, frozen=True):
    """Where the timers continue."""

    offset: int
    """Offset of the first message that may have no unit."""
    read_ms: int
    """The first second in which something may wait; 0 for none."""


def recover(
    wheel: TimerWheel,
    timer_log: TimerLog,
    checkpoint: TimerCheckpoint,
    offset_of: TimerOffsetLookup,
) -> TimerRecoveryResult:
    """Make wheel and timer log agree."""
    if checkpoint.log_end == DISCARDED:
        log.info("the timer log was discarded when the log was cut: it is rebuilt")
        return discard(wheel, timer_log, _START)
    if not timer_log.begin <= checkpoint.log_end <= timer_log.segments.limit:
        log.warning("the timer log contradicts its checkpoint: it is rebuilt")
        return discard(wheel, timer_log, _START)
    if checkpoint.cursor is not None:
        end, offset = checkpoint.log_end, checkpoint.offset
    else:
        end, offset = _trusted_end(timer_log, checkpoint, offset_of)
    if not wheel.exists and end > timer_log.begin:
        log.warning("the timer wheel is missing: it is rebuilt from the timer log")
        wheel.prepare()
        _add_to_wheel(wheel, timer_log, timer_log.begin, end, checkpoint.read_ms)
    elif checkpoint.log_end < end:
        wheel.prepare()
        _add_to_wheel(wheel, timer_log, checkpoint.log_end, end, checkpoint.read_ms)
    first_ms = _roll_back(wheel, timer_log, end, checkpoint.read_ms)
    if not _is_consistent(wheel, timer_log, end, checkpoint.read_ms):
        log.warning("the timer log or its wheel is damaged: both are rebuilt")
        return discard(wheel, timer_log, _START)
    timer_log.truncate(end)
    return TimerRecoveryResult(offset, first_ms)


def is_plausible(checkpoint: TimerCheckpoint, now_ms: int) -> bool:
    """Whether a broker can have written this checkpoint; ours has a checksum.

    Garbage would pass over messages that were never delivered.
    """
    if checkpoint.cursor is not None:
        return True
    counts = (checkpoint.log_end, checkpoint.offset, checkpoint.changes)
    is_whole = all(0 <= count < COUNT_LIMIT for count in counts)
    return is_whole and 0 <= checkpoint.read_ms <= now_ms + AHEAD_MS


def _is_consistent(wheel: TimerWheel, timer_log: TimerLog, end: int, read_ms: int) -> bool:
    """Whether the wheel's slots lead to their own units, and pending units have their slots.

    Units lie in the order of their records. In a future second each unit leads to the one before
    it, or to none where the second had been emptied, and the slot leads to the last one.
    """
    start = max(end - UNITS_MAX * UNIT_SIZE, timer_log.begin)
    start = timer_log.place_from(start)
    chains = _last_units(timer_log, start, end, floor_ms(read_ms))
    if chains is None:
        return False
    for time_ms, slot in wheel.used():
        if time_ms <= floor_ms(read_ms):
            continue
        chain = chains.pop(time_ms, None)
        if chain is None:
            unit = timer_log.unit(slot.last) if slot.last < start else None
            if unit is None or floor_ms(unit.slot_ms) != time_ms:
                return False
        elif slot.last != chain:
            return False
    return all(map(wheel.is_emptied, chains))


def _last_units(timer_log: TimerLog, start: int, end: int, read_ms: int) -> dict[int, int] | None:
    """The last unit of each second behind `read_ms`; None if the units are damaged."""
    last = dict[int, int]()
    behind = at = timer_log.begin
    for at, before, slot_ms, position, size in timer_log.rows(start, end):
        if position < behind and (at != start or position < 0):
            return None
        behind = position + size
        second = slot_ms - slot_ms % PRECISION_MS
        if second <= read_ms:
            continue
        if before != NONE and before != last.get(second, before if before < start else at):
            return None
        last[second] = at
    if end > start and at + UNIT_SIZE != end and timer_log.place_from(at + UNIT_SIZE) != end:
        return None
    return last


def discard(wheel: TimerWheel, timer_log: TimerLog, offset: int) -> TimerRecoveryResult:
    """Discard wheel and log: everything is written again from an offset on."""
    used = list(wheel.used())
    if used:
        wheel.prepare()
    for time_ms, _ in used:
        wheel.blank(time_ms)
    timer_log.truncate(0)
    return TimerRecoveryResult(offset, 0)


def _trusted_end(
    timer_log: TimerLog, checkpoint: TimerCheckpoint, offset_of: TimerOffsetLookup
) -> tuple[int, int]:
    """The usable end of an Apache broker's log, and the offset behind its last message."""
    end, last = checkpoint.log_end, None
    for position, unit in timer_log.units(checkpoint.log_end):
        offset = offset_of(unit)
        if offset is None or offset >= checkpoint.offset:
            break
        end, last = position + UNIT_SIZE, offset
    if last is None and end > timer_log.begin:
        before = timer_log.last_before(end)
        last = offset_of(before) if before is not None else None
    return end, checkpoint.offset if last is None else min(checkpoint.offset, last + 1)


def _add_to_wheel(
    wheel: TimerWheel, timer_log: TimerLog, start: int, end: int, read_ms: int
) -> None:
    for position, unit in timer_log.units(start):
        if position >= end:
            return
        if unit.slot_ms < read_ms:
            continue
        slot = wheel.slot(unit.slot_ms)
        if slot is None or slot.first > position:
            wheel.put(unit.slot_ms, TimerSlot(position, position, 1))
        elif slot.last < position:
            wheel.put(
                unit.slot_ms, TimerSlot(slot.first, position, slot.count + _count_change(unit))
            )


def _roll_back(wheel: TimerWheel, timer_log: TimerLog, end: int, read_ms: int) -> int:
    """Remove the units from `end` on from their slots; gives the first used second."""
    first_ms = 0
    ahead: list[tuple[int, TimerSlot]] = []
    for time_ms, slot in wheel.used():
        if time_ms >= floor_ms(read_ms):
            first_ms = min(first_ms or time_ms, time_ms)
        if slot.last >= end:
            ahead.append((time_ms, slot))
    if ahead:
        wheel.prepare()
    lost: set[int] = set()
    for time_ms, slot in ahead:
        shortened = _without_units_from(timer_log, time_ms, slot, end)
        if shortened is None:
            lost.add(time_ms)
        else:
            _set(wheel, time_ms, shortened)
    if lost:
        _search_last_units(wheel, timer_log, lost, end)
    return first_ms


def _without_units_from(
    timer_log: TimerLog, time_ms: int, slot: TimerSlot, end: int
) -> TimerSlot | None:
    """The slot without its units from `end` on; None when their chain is broken."""
    at, count = slot.last, slot.count
    while at >= end:
        unit = timer_log.unit(at)
        if unit is None or floor_ms(unit.slot_ms) != time_ms or not NONE <= unit.before < at:
            return None
        at, count = unit.before, count - _count_change(unit)
    return TimerSlot(min(slot.first, at), at, count)


def _search_last_units(wheel: TimerWheel, timer_log: TimerLog, lost: set[int], end: int) -> None:
    """Search the whole log for the last units of slots whose chain is broken."""
    slots: dict[int, TimerSlot] = {}
    for position, unit in timer_log.units(timer_log.begin):
        if position >= end:
            break
        time_ms = floor_ms(unit.slot_ms)
        if time_ms in lost:
            before = slots.get(time_ms) or TimerSlot(position, NONE, 0)
            slots[time_ms] = TimerSlot(before.first, position, before.count + _count_change(unit))
    for time_ms in lost:
        _set(wheel, time_ms, slots.get(time_ms) or TimerSlot(NONE, NONE, 0))


def _set(wheel: TimerWheel, time_ms: int, slot: TimerSlot) -> None:
    wheel.put(time_ms, EMPTIED_SLOT if slot.last == NONE else slot)


def _count_change(unit: TimerUnit) -> int:
    return -1 if is_delete(unit.magic) else 1
