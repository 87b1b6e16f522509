"""ClockLeaps: messages that wait too long because the clock was ahead are stored again.

    clock   10:00 ──leap──▶ 12:00 … 12:05 ──set back──▶ 10:05
    delay of an hour, sent at 12:01:  waits for 13:01 ───────▶ 11:01

A delay counts from when its message is stored, so its second on the wheel is as wrong as the clock
was. A set-back is followed only after a leap ahead: without one the new time may be the wrong one,
and waiting messages must not come early once it is corrected.
"""

from collections.abc import Iterator
from typing import Final

from roquet.broker.services.timer.deliveries import TimerContext, TimerDeliveries, out_of, raw_of
from roquet.model import properties as props
from roquet.model.errors import MessageIllegal, RecordError
from roquet.net.clock import Clock
from roquet.rules.delay.timer import ClockSetBack, is_delete
from roquet.store.timer.layout import TimerUnit
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import decode

BACK_MS: Final = 60_000
"""Ms that the wheel may be ahead of now: smaller corrections of the clock are ignored."""

REMEMBERED_MS: Final = 86_400_000
"""Ms after a leap within which a set-back of the clock is taken for its correction."""

LEAPS_MAX: Final = 8
"""Leaps that are remembered: a process that was suspended has seen one, too."""

TOGETHER: Final = 64
"""Units read before others have their turn: about a millisecond."""


class ClockLeaps:
    """Tracks leaps of the clock, and stores messages again that wait because of them."""

    def __init__(self, context: TimerContext, deliveries: TimerDeliveries, clock: Clock) -> None:
        self._context = context
        self._timers = context.timers
        self._deliveries = deliveries
        self._clock = clock
        # The process before may have used another clock.
        self._seen_ms = self._timers.read_ms if self._timers.exists else 0
        self._stopwatch_ms = clock.monotonic_ms()
        self._written: set[int] = set()
        self.left: list[int] = []
        """Seconds on the wheel that are empty now."""

    def see(self, now_ms: int) -> None:
        """Note the time, and a leap if there was one."""
        expected_ms = self._expected_ms()
        if self._seen_ms and now_ms - expected_ms > BACK_MS:
            leaps = (*self._context.metrics.leaps, (expected_ms, now_ms))
            self._context.metrics.leapt(leaps[-LEAPS_MAX:])
        self._seen_ms, self._stopwatch_ms = now_ms, self._clock.monotonic_ms()

    def set_back(self, now_ms: int) -> ClockSetBack | None:
        """The leap that a set-back of the clock corrects; None without one."""
        by_ms = self._expected_ms() - now_ms
        for before_ms, after_ms in reversed(self._context.metrics.leaps):
            is_recent = self._seen_ms - after_ms <= REMEMBERED_MS
            if is_recent and BACK_MS < by_ms <= after_ms - before_ms + BACK_MS:
                return ClockSetBack(before_ms=before_ms, by_ms=by_ms, now_ms=now_ms)
        return None

    def write_again(self, set_back: ClockSetBack | None) -> Iterator[None]:
        """Store messages again that wait for too late a second, some at a time. Raises StoreFull.

        After a failure it may be called again: no message is stored a second time.
        """
        self.left.clear()
        if set_back is None:
            return
        looked = 0
        for time_ms in self._timers.seconds_from(self._timers.read_ms):
            if time_ms is None:
                yield
                continue
            units = self._units(time_ms)
            for _ in self._write_second(time_ms, units, set_back):
                looked += 1
                if looked % TOGETHER == 0:
                    yield

    def done(self, set_back: ClockSetBack | None) -> None:
        """Note that the wheel has followed the clock; the rest of a leap may be set back later."""
        if set_back is not None:
            metrics, before_ms = self._context.metrics, set_back.before_ms
            earlier = [leap for leap in metrics.leaps if leap[0] <= before_ms]
            left = ((begin, end - set_back.by_ms) for begin, end in earlier)
            metrics.leapt(tuple(leap for leap in left if leap[1] - leap[0] > BACK_MS))
        self._seen_ms, self._stopwatch_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget which messages were stored again: the end of the log may be lost."""
        self._written.clear()
        self.left.clear()

    def _expected_ms(self) -> int:
        return self._seen_ms + self._clock.monotonic_ms() - self._stopwatch_ms

    def _units(self, time_ms: int) -> Iterator[tuple[int, TimerUnit]]:
        slot = self._timers.slot(time_ms)
        position = slot.last if slot else -1
        while position >= 0 and (unit := self._timers.unit(position)) is not None:
            yield position, unit
            position = unit.before if unit.before < position else -1

    def _write_second(
        self, time_ms: int, units: Iterator[tuple[int, TimerUnit]], set_back: ClockSetBack
    ) -> Iterator[None]:
        """Store again the messages of one second that are too late, and their recalls."""
        is_left, any_moved, takes_back = True, False, []
        for position, unit in units:
            if is_delete(unit.magic):
                takes_back.append((position, unit))
            elif self._is_moved(position, unit, set_back):
                any_moved = True
            else:
                is_left = False
            yield
        if any_moved:
            for position, unit in takes_back:
                self._is_moved(position, unit, set_back)
                yield
            if is_left:
                self.left.append(time_ms)

    def _is_moved(self, position: int, unit: TimerUnit, set_back: ClockSetBack) -> bool:
        if position in self._written:
            return True
        raw = raw_of(self._context.message_log.store, unit)
        if raw is None:
            return False
        try:
            record = decode(raw)
            properties = decode_properties(lossless_text(record.properties))
            out = out_of(properties)
            moved = None if out is None else set_back.out_ms(properties, out)
            if moved is None:
                return False
            self._deliveries.write_again(record, properties, moved)
        except (RecordError, MessageIllegal):  # it is set aside when its turn comes
            return False
        topic = properties.get(props.REAL_TOPIC, "")
        self._context.metrics.add(topic, 1 if is_delete(unit.magic) else -1, set_back.now_ms)
        self._written.add(position)
        return True
