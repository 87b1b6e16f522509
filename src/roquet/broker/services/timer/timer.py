"""Timer: messages that wait for a delivery time, brought to their queues when it has come.

    rmq_sys_wheel_timer ──intake──▶ wheel on the disk ──its second begins──▶ due, to the ms ─▶ queue
              ▲                              │
              └──── written again ◀── on the way: its own second is far ahead

A clock that was set back by more than a minute takes both sides along: what is sent from then on
does not wait until that time comes again, nor does what was sent while it was ahead.

How far both sides are gets saved only after what was delivered is on the disk: after a crash some
messages come twice, and none is lost. In memory are the messages of the second that it is now.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from roquet.broker.log.flush import Flush
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.services.timer.clock_leaps import BACK_MS, ClockLeaps
from roquet.broker.services.timer.deliveries import TimerContext, TimerDeliveries, raw_of
from roquet.broker.services.timer.intake import TimerIntake
from roquet.log_records import logger
from roquet.model import names
from roquet.model.errors import RecordError, StoreFailed
from roquet.net.clock import Clock, every
from roquet.net.threads import in_thread
from roquet.rules.delay.timer import floor_ms, recall_fault, slot_ms, window_ms
from roquet.store.store import Store
from roquet.store.timer.layout import TimerCheckpoint, TimerUnit
from roquet.wire.records.record import decode

log = logger(__name__)

SAVE_MS: Final = 1_000
"""Between two saves, as in the genuine broker: what is delivered meanwhile a crash brings again."""

EXPIRE_MS: Final = 30_000
"""Between two looks at what of the timer log may go, as in the genuine broker."""

NAP_MS: Final = 1_000
"""The longest sleep while a message may wait: the wall's clock may be set forward meanwhile."""

QUIET_MS: Final = 3_600_000
"""The longest wait for the first message."""

FAILURE_PAUSE_MS: Final = 1_000
"""After a message that could not be stored: the disk may be full."""

SAVED_LOOK_MS: Final = 50
"""Between two looks whether the disk has everything."""


class Timer:
    """Delivers what has a delivery time."""

    def __init__(
        self, parts: TimerContext, arrivals: LongPolling, flush: Flush, clock: Clock
    ) -> None:
        self.parts = parts
        self._store = parts.store
        self._timers = parts.timers
        self._arrivals = arrivals
        self._flush = flush
        self._clock = clock
        self._deliveries = TimerDeliveries(parts)
        self._intake = TimerIntake(parts, self._deliveries)
        self._leaps = ClockLeaps(parts, self._deliveries, clock)
        self._way_back: Iterator[int] | None = None

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """How far the timers are."""
        return self._timers.checkpoint()

    @property
    def behind(self) -> int:
        """Messages that are stored and not yet on the wheel."""
        return self._store.bounds(names.TIMER_TOPIC, 0)[1] - self._timers.offset

    def recall_fault(self, deliver_ms: int, now_ms: int, max_delay_ms: int) -> str | None:
        """Why a message of that time cannot be taken back; None when it can.

        The clock may have been set back since messages of its second were delivered.
        """
        if self._intake.is_held_up:
            return "recall failed, the timer is behind: try again later"
        timers, slot = self._timers, slot_ms(deliver_ms)
        is_begun = slot == timers.read_ms and timers.cursor[0] > 0
        if slot < timers.read_ms or is_begun:
            return "recall failed, timestamp invalid"
        return recall_fault(deliver_ms, now_ms, max_delay_ms)

    def configure(self, retention_ms: int) -> None:
        """Messages are kept for another time from now on."""
        self._intake.window_ms = window_ms(retention_ms)

    def retention_fault(self, retention_ms: int) -> str | None:
        """Why messages must be kept for longer; None when nothing waits for so long."""
        if not self._timers.has_wait_over(window_ms(retention_ms)):
            return None
        return (
            f"messages wait for their delivery time for longer than {retention_ms} ms of retention"
            " allow: they would be deleted before; set it when they are delivered"
        )

    def work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What has to run, for ever."""
        yield self.serve()
        yield every(SAVE_MS, self.save, self._clock)
        yield every(EXPIRE_MS, self.expire, self._clock)

    async def serve(self) -> None:
        """Take what comes, deliver what is due."""
        while True:
            try:
                await self._round()
            except StoreFailed:  # the store has said so
                await self._clock.sleep(FAILURE_PAUSE_MS)
            except Exception:
                log.exception("messages with a delivery time wait longer than they should")
                await self._clock.sleep(FAILURE_PAUSE_MS)

    async def save(self, now_ms: int) -> None:
        """Write the progress, once all that it speaks of is on the disk."""
        work = self._timers.save_task(now_ms)
        if work is None:
            return
        try:
            await self._flush.step()
            await in_thread(work)
        except BaseException:
            self._timers.unsaved = True
            raise
        if self.parts.timings.unsaved:
            self.parts.timings.touch(now_ms)
            await in_thread(self.parts.timings.save)

    def close(self) -> None:
        """Let the files go; `save` was the last word."""
        self._timers.close()

    def expire(self, _now_ms: int = 0) -> None:
        """Delete what the timer log says of messages that retention has deleted."""
        self._timers.expire(self._store.begin_position)

    def step(self, now_ms: int) -> int | None:
        """Take some that came, deliver some that are due; gives when there is more to do.

        None when nothing ever waited.
        """
        if (pause_ms := self._return(now_ms)) is not None:
            return now_ms + pause_ms
        self._intake.step(now_ms)
        # What takes a message back may be stored and not yet taken: it must not come too late.
        until_ms = now_ms if self._intake.is_held_up else min(now_ms, self._intake.taken_ms)
        at = self._deliveries.step(until_ms) if self._timers.exists else None
        # What is on its way was written again just now.
        return now_ms if self.behind and not self._intake.is_held_up else at

    def _return(self, now_ms: int) -> int | None:
        """A step on the way back to a clock that was set back; gives the pause until the next."""
        timers = self._timers
        if self._way_back is None and timers.exists and timers.read_ms - now_ms > BACK_MS:
            log.warning("the clock was set back by %d ms", timers.read_ms - now_ms)
            self._intake.set_back = self._leaps.set_back(now_ms)
            self._intake.set_back_end = self._store.bounds(names.TIMER_TOPIC, 0)[1]
            self._way_back = self._going_back(floor_ms(now_ms))
        if self._way_back is None:
            self._leaps.see(now_ms)
            return None
        try:
            pause_ms = next(self._way_back, None)
        except BaseException:  # the disk is full: the way begins anew, and nothing goes on before
            self._way_back = None
            raise
        if pause_ms is None:
            self._way_back = None
        return pause_ms

    def _going_back(self, read_ms: int) -> Iterator[int]:
        """Each step, and the pause after it: nothing is taken or delivered meanwhile."""
        while not self._deliveries.leave():
            yield 0
        for _ in self._leaps.write_again(self._intake.set_back):
            yield 0
        self._timers.unsaved = True
        while not self._timers.is_saved:
            yield SAVED_LOOK_MS
        for _ in self._timers.clear_seconds(self._leaps.left):
            yield 0
        while not self._timers.is_saved:
            yield SAVED_LOOK_MS
        for _ in self._timers.rewind(read_ms):
            yield 0
        self._leaps.done(self._intake.set_back)

    async def _round(self) -> None:
        """One step, and the pause until the next one has something to do."""
        now_ms = self._clock.now_ms()
        at = self.step(now_ms)
        left = QUIET_MS if at is None else min(at - now_ms, NAP_MS)
        if left <= 0:
            await asyncio.sleep(0)
            return
        if self._intake.is_held_up or self._way_back is not None:  # what has come has to wait
            await self._clock.sleep(left)
            return
        deadline_ms = self._clock.monotonic_ms() + left
        came = await self._arrivals.reach(
            names.TIMER_TOPIC, 0, self._timers.offset + 1, None, deadline_ms
        )
        if not came and self._clock.monotonic_ms() < deadline_ms:
            await self._clock.sleep(NAP_MS)  # the broker is about to stop


def offset_of(store: Store, unit: TimerUnit) -> int | None:
    """The offset in the timer topic of the message that a unit speaks of; None if unreadable."""
    raw = raw_of(store, unit)
    if raw is None:
        return None
    try:
        record = decode(raw)
    except RecordError as error:
        log.warning("timed message at %d is damaged: %s", unit.position, error)
        return None
    return record.queue_offset if record.topic == names.TIMER_TOPIC else None
