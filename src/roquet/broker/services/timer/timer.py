"""Timer: messages that wait for a delivery time, delivered to their queues when it has come.

    rmq_sys_wheel_timer ──intake──▶ wheel on the disk ──its second begins──▶ due, to the ms ─▶ queue
              ▲                              │
              └──── written again ◀── on the way: its own second is far ahead

When the clock is set back by more than a minute, both sides follow: messages sent from then on do
not wait until that time comes again, nor do those sent while the clock was ahead.

The progress of both sides is saved only after the delivered messages are on the disk: after a crash
some messages come twice, and none is lost. Memory holds the messages of the current second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

from roquet.broker.services.delayed_delivery import at_once
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
"""Ms between two saves, as in the genuine broker; a crash repeats what is delivered meanwhile."""

EXPIRE_MS: Final = 30_000
"""Ms between two expirations of the timer log, as in the genuine broker."""

NAP_MS: Final = 1_000
"""Longest sleep in ms while a message may wait: the wall clock may be set forward meanwhile."""

FOLLOW_SAVE_MS: Final = 10_000
"""Ms between two saves of a master's progress: what is lost in between is copied again."""

QUIET_MS: Final = 3_600_000
"""Longest wait in ms for the first message."""

FAILURE_PAUSE_MS: Final = 1_000
"""Ms of pause after a message that could not be stored: the disk may be full."""

SAVED_LOOK_MS: Final = 50
"""Ms between two checks whether everything is on the disk."""


class Timer:
    """Delivers messages at their delivery times."""

    def __init__(self, context: TimerContext, clock: Clock) -> None:
        self.context = context
        self._store = context.message_log.store
        self._timers = context.timers
        self._arrivals = context.message_log.arrivals
        self._flush = context.message_log.flush
        self._clock = clock
        self._deliveries = TimerDeliveries(context)
        self._intake = TimerIntake(context, self._deliveries)
        self._leaps = ClockLeaps(context, self._deliveries, clock)
        self._way_back: Iterator[int] | None = None
        self._followed_ms = 0
        """Monotonic ms of the last save of a master's progress."""
        self.may_save: Callable[[], Awaitable[bool]] = at_once
        """Waits until progress up to now may be saved; False: not now."""

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """The progress of the wheel and the timer topic."""
        return self._timers.checkpoint()

    @property
    def behind(self) -> int:
        """Messages that are stored and not yet on the wheel."""
        return max(self._store.bounds(names.TIMER_TOPIC, 0)[1] - self._timers.offset, 0)

    @property
    def is_going_back(self) -> bool:
        """Whether a clock that was set back is being followed; nothing is delivered meanwhile."""
        return self._way_back is not None

    def recall_fault(self, deliver_ms: int, now_ms: int, max_delay_ms: int) -> str | None:
        """Why a message of that delivery time cannot be recalled; None when it can.

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
        """Apply a changed retention time."""
        self._intake.window_ms = window_ms(retention_ms)

    def retention_fault(self, retention_ms: int) -> str | None:
        """Why a retention time is too short for waiting messages; None when it is long enough."""
        if not self._timers.has_wait_over(window_ms(retention_ms)):
            return None
        return (
            f"messages wait for their delivery time for longer than {retention_ms} ms of retention"
            " allow: they would be deleted before; set it when they are delivered"
        )

    def work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The loops to run."""
        yield self.serve()
        yield every(SAVE_MS, self.save, self._clock)
        yield every(EXPIRE_MS, self.expire, self._clock)

    async def serve(self) -> None:
        """Take stored messages and deliver due ones, forever."""
        while True:
            try:
                await self._round()
            except StoreFailed:  # the store has logged it
                await self._clock.sleep(FAILURE_PAUSE_MS)
            except Exception:
                log.exception("messages with a delivery time wait longer than they should")
                await self._clock.sleep(FAILURE_PAUSE_MS)

    async def save(self, now_ms: int) -> None:
        """Save the progress, once all delivered messages are confirmed and on the disk."""
        work = self._timers.save_task(now_ms)
        if work is None:
            return
        try:
            await self._flush.step()
            if not await self.may_save():
                self._timers.unsaved = True
                return
            await in_thread(work)
        except BaseException:
            self._timers.unsaved = True
            raise
        if self.context.metrics.unsaved:
            self.context.metrics.touch(now_ms)
            await in_thread(self.context.metrics.save)

    async def follow(self, master: TimerCheckpoint) -> None:
        """Take over the progress of a replica's master, and the messages that wait there.

        Nothing is delivered. A replica that becomes the master goes on from there.
        """
        self._begin_anew()
        self._timers.reached_ms = max(self._timers.reached_ms, self._timers.read_ms)
        self._timers.follow(master.master_offset, floor_ms(master.read_ms))
        is_done = False
        while not is_done:
            is_done = self._intake.follow(master.master_offset, self._clock.now_ms())
            await asyncio.sleep(0)  # lets others go first
        self._timers.note_untaken(master.master_offset)
        if self._clock.monotonic_ms() - self._followed_ms >= FOLLOW_SAVE_MS:
            self._followed_ms = self._clock.monotonic_ms()
            await self.save(self._clock.now_ms())

    def prepare_cut(self, end: int) -> None:
        """Forget all that waits if the log is about to be cut in front of some of it.

        The timer topic will end at an offset, and other messages come there. Raises StoreError.
        """
        self._begin_anew()
        self._intake.set_back_end = min(self._intake.set_back_end, end)
        self._timers.discard_behind(end, self._clock.now_ms())

    def close(self) -> None:
        """Close the files, after the last `save`."""
        self._timers.close()

    def expire(self, _now_ms: int = 0) -> None:
        """Delete entries of the timer log whose messages retention has deleted."""
        self._timers.expire(self._store.begin_position)

    def step(self, now_ms: int) -> int | None:
        """Take some stored messages and deliver some due ones; returns when there is more to do.

        None when no message has ever waited.
        """
        if self._timers.untaken is not None:
            self._intake.take_overdue(now_ms)
            return now_ms
        if (pause_ms := self._return(now_ms)) is not None:
            return now_ms + pause_ms
        self._intake.step(now_ms)
        # A recall may be stored and not yet taken: it must not come too late.
        until_ms = now_ms if self._intake.is_held_up else min(now_ms, self._intake.taken_ms)
        at = self._deliveries.step(until_ms) if self._timers.exists else None
        # Rolled messages were stored again just now.
        return now_ms if self.behind and not self._intake.is_held_up else at

    def _begin_anew(self) -> None:
        """Forget what was under way: another broker has delivered since, or the log is cut."""
        self._deliveries.restart()
        self._way_back = None
        self._leaps.begin_anew()

    def _return(self, now_ms: int) -> int | None:
        """A step of following a clock that was set back.

        Returns the pause in ms, None when done.
        """
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
        """The steps, each with the pause after it; nothing is taken or delivered meanwhile."""
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
        """One step, then a pause until there is more to do."""
        now_ms = self._clock.now_ms()
        at = self.step(now_ms)
        left = QUIET_MS if at is None else min(at - now_ms, NAP_MS)
        if left <= 0:
            await asyncio.sleep(0)
            return
        if self._intake.is_held_up or self.is_going_back:  # stored messages have to wait
            await self._clock.sleep(left)
            return
        deadline_ms = self._clock.monotonic_ms() + left
        came = await self._arrivals.reach(
            names.TIMER_TOPIC, 0, self._timers.offset + 1, None, deadline_ms
        )
        if not came and self._clock.monotonic_ms() < deadline_ms:
            await self._clock.sleep(NAP_MS)  # the broker is about to stop


def offset_of(store: Store, unit: TimerUnit) -> int | None:
    """The offset in the timer topic of the message of a unit; None if it cannot be read."""
    raw = raw_of(store, unit)
    if raw is None:
        return None
    try:
        record = decode(raw)
    except RecordError as error:
        log.warning("timed message at %d is damaged: %s", unit.position, error)
        return None
    return record.queue_offset if record.topic == names.TIMER_TOPIC else None
