"""TimerIntake: moves messages from the timer topic to the wheel, each to its second.

A message whose second is over is delivered at once. One whose second is out of reach goes to an
earlier slot and is rolled on. The offset reached is saved with the wheel, so that none is skipped.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from roquet.broker.ingest.set_aside import TIMER
from roquet.broker.services.delayed_delivery import STEP_BYTES, STEP_COUNT, decode_records
from roquet.broker.services.timer.deliveries import TimerContext, TimerDeliveries, out_of
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import MessageIllegal, RecordError
from roquet.rules.delay.timer import (
    NOT_ON_WHEEL_MS,
    PRECISION_MS,
    ClockSetBack,
    due_ms,
    floor_ms,
    magic,
    stop_ms,
)
from roquet.store.store import Slice
from roquet.store.timer.layout import TimerUnit
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import Record

log = logger(__name__)

FAR_MS: Final = 366 * 86_400_000
"""Ms beyond any legal wait (40 days), whatever the clock did since."""

TOPICS_MAX: Final = 1_024
"""Topics whose hashes are cached."""

_topic_hash: Final = lru_cache(TOPICS_MAX)(hash_code)


class TimerIntake:
    """Takes stored messages."""

    def __init__(self, context: TimerContext, deliveries: TimerDeliveries) -> None:
        self._context = context
        self._timers = context.timers
        self._deliveries = deliveries
        self.window_ms = context.window_ms
        """Longest time in ms that a message waits in one slot."""
        self.is_held_up = False
        """Whether the next message has to wait for a free slot on the wheel."""
        self.taken_ms = 0
        """Wall-clock ms before which all stored messages are taken."""
        self.set_back: ClockSetBack | None = None
        """The last set-back of a clock that was ahead; None without one."""
        self.set_back_end = 0
        """End of the timer topic at that moment."""
        self._mark = (0, 0)
        """A wall-clock time, and the end of the topic at that time."""

    def step(self, now_ms: int) -> None:
        """Move some messages from the topic to the wheel."""
        self._step(now_ms)
        offset = self._timers.offset
        _, end = self._context.message_log.store.bounds(names.TIMER_TOPIC, 0)
        seen_ms, seen_end = self._mark
        if offset >= end:
            self.taken_ms = now_ms
        elif seen_ms > now_ms:  # the clock was set back
            self.taken_ms = min(self.taken_ms, now_ms)
        elif offset >= seen_end:
            self.taken_ms = seen_ms
        else:
            return
        self._mark = (now_ms, end)

    def _step(self, now_ms: int) -> None:
        if not self._timers.exists:
            self._timers.advance_to(floor_ms(now_ms))
        self.is_held_up = False
        take = partial(self._taken, now_ms=now_ms)
        self.is_held_up = not self._move(None, take, self._unreadable)

    def _move(
        self,
        until: int | None,
        take: Callable[[Record], bool],
        unreadable: Callable[[bytes, RecordError], object],
    ) -> bool:
        """Take some messages in front of an offset, None for all; False at one that has to wait."""
        timers = self._timers
        offset, end = self._bounds()
        stop = end if until is None else min(until, end)
        if offset < stop:
            messages = self._read(offset, stop)
            for record in decode_records(messages.parts, unreadable):
                if not take(record):
                    timers.advance_offset(record.queue_offset)
                    return False
                timers.advance_offset(record.queue_offset + 1)
            offset = messages.next_offset  # past what cannot be read
        timers.advance_offset(offset)
        return True

    def _read(self, offset: int, stop: int) -> Slice:
        return self._context.message_log.store.read(
            names.TIMER_TOPIC,
            0,
            offset,
            count_max=min(STEP_COUNT, stop - offset),
            bytes_max=STEP_BYTES,
        )

    def _bounds(self) -> tuple[int, int]:
        """Offsets of the next message to take, and behind the last one that may be taken.

        What is taken stays so while it is not shown, as after a restart until it is known to be
        confirmed. Only a topic that lost its end, with its disk, begins at this end again.
        """
        store = self._context.message_log.store
        least, end = store.bounds(names.TIMER_TOPIC, 0)
        offset = max(self._timers.offset, least)
        if offset > end:
            offset = min(offset, max(store.stored_end(names.TIMER_TOPIC, 0), end))
        return offset, end

    def follow(self, until: int, now_ms: int) -> bool:
        """Move some messages in front of an offset to the wheel, as the master of a replica did.

        None is delivered and none is stored again, as the master has done that. Returns whether
        nothing more can be done now.
        """
        if not self._move(until, lambda record: self._copied(record, now_ms), lambda *_: None):
            return True
        return self._timers.offset >= min(until, self._bounds()[1])

    def take_overdue(self, now_ms: int) -> None:
        """Deliver some of the untaken messages whose second is over.

        One for which the time has not come, as a clock was ahead, is stored again; one that cannot
        be delivered is set aside.

        They are in front of the own offset: this broker took them as a master, and may have
        delivered them at once. The end of its log may have been cut since, and the master that it
        followed had not taken them.
        """
        timers, store = self._timers, self._context.message_log.store
        offset = max(timers.untaken or 0, store.bounds(names.TIMER_TOPIC, 0)[0])
        if offset >= timers.offset:
            timers.note_untaken(None)
            return
        messages = self._read(offset, timers.offset)
        for record in decode_records(messages.parts, self._unreadable):
            self._retake(record, now_ms)
            timers.note_untaken(record.queue_offset + 1)
        timers.note_untaken(messages.next_offset if messages.next_offset > offset else None)

    def _retake(self, record: Record, now_ms: int) -> None:
        """Deliver an untaken message that the wheel may lack, store it again, or set it aside."""
        try:
            properties = decode_properties(lossless_text(record.properties))
            out = _known_out(properties, now_ms)
            begun_ms = max(self._timers.reached_ms, floor_ms(record.stored_ms))
            # It was delivered at once if its second had begun when it was taken, which may be long
            # after it was stored: a master takes what is confirmed. And the wheel goes on from the
            # second that the other master had reached.
            is_passed = out < self._timers.replayed[1]
            if out > begun_ms and not is_passed:
                return
            if due_ms(properties, record.stored_ms, out) <= now_ms:
                self._too_late(record, properties, now_ms)
            elif is_passed or now_ms < begun_ms:
                # A clock was ahead. Its second is over, here and for replicas, until the timer goes
                # back; or it was delivered at once and the delivery is lost.
                self._deliveries.write_again(record, properties, out)
        except Exception as error:  # the others must not wait behind it
            self._context.set_aside.keep_record(TIMER, record, error)

    def _copied(self, record: Record, now_ms: int) -> bool:
        """Put a message on the wheel unless the master has delivered it, or set it aside.

        False if the wheel has no slot for it yet.
        """
        properties = decode_properties(lossless_text(record.properties))
        out = out_of(properties)
        if out is None or out - now_ms > FAR_MS or out < self._timers.replayed[1]:
            return True
        return self._onto_wheel(record, properties, out, now_ms, is_counted=True)

    def _taken(self, record: Record, now_ms: int) -> bool:
        """Take one message, or set it aside; False if the wheel has no slot for it yet."""
        try:
            return self._take(record, now_ms)
        except Exception as error:  # the others must not wait behind it
            self._context.set_aside.keep_record(TIMER, record, error)
            return True

    def _unreadable(self, raw: bytes, error: RecordError) -> None:
        self._context.set_aside.keep_raw(TIMER, names.TIMER_TOPIC, 0, raw, error)

    def _take(self, record: Record, now_ms: int) -> bool:
        """Put one message on the wheel, or deliver it.

        False if the wheel has no slot for it yet.
        """
        timers, properties = self._timers, decode_properties(lossless_text(record.properties))
        out = _known_out(properties, now_ms)
        if self._is_written_again(record, properties, out):
            return True
        offset, read_ms = timers.replayed
        if record.queue_offset < offset and out < read_ms:
            return True
        if out <= timers.read_ms:
            due = due_ms(properties, record.stored_ms, out)
            if out < timers.read_ms or (due, timers.log_end) <= timers.cursor:
                if due <= now_ms:
                    self._too_late(record, properties, now_ms)
                    return True
                # The clock was set back: it must not come too early.
                if out < timers.read_ms:
                    # Replicas take its second for over, so the log has to name another one.
                    self._deliveries.write_again(record, properties, timers.read_ms)
                    return True
                out = timers.read_ms + PRECISION_MS
        return self._onto_wheel(record, properties, out, now_ms)

    def _is_written_again(self, record: Record, properties: dict[str, str], out: int) -> bool:
        """Whether a message stored while the clock was ahead is stored again, for a nearer second.

        A recall is needed in both seconds.
        """
        deletes = props.TIMER_DELETE_UNIQUE_KEY in properties
        if self.set_back is None or not (deletes or record.queue_offset < self.set_back_end):
            return False
        if (moved := self.set_back.out_ms(properties, out)) is None:
            return False
        self._deliveries.write_again(record, properties, moved)
        return not deletes

    def _onto_wheel(
        self,
        record: Record,
        properties: dict[str, str],
        out: int,
        now_ms: int,
        *,
        is_counted: bool = False,
    ) -> bool:
        # After a set-back of the clock it must not wait in a second that is over.
        timers, write_ms = self._timers, max(floor_ms(now_ms), self._timers.read_ms)
        wanted, rolls = stop_ms(out, write_ms, self.window_ms)
        if (stop := timers.free_slot_ms(wanted)) is None:
            return False
        deletes = props.TIMER_DELETE_UNIQUE_KEY in properties
        topic = properties.get(props.REAL_TOPIC, "")
        kind = magic(rolls=rolls, deletes=deletes)
        position = timers.add(
            TimerUnit(kind, write_ms, stop, record.position, record.size, _topic_hash(topic))
        )
        if not is_counted:
            self._context.metrics.add(topic, -1 if deletes else 1, now_ms)
            counts = self._context.message_log.counts
            counts.timer_enqueued.add(topic)
            counts.delay_s.observe(topic, value=max(out - now_ms, 0) / 1000)
        self._deliveries.note_written(stop, position, kind, record)
        return True

    def _too_late(self, record: Record, properties: dict[str, str], now_ms: int) -> None:
        """Deliver a message whose second is over; a recall comes too late."""
        if props.TIMER_DELETE_UNIQUE_KEY in properties:
            log.info("message at %d came too late to take another back", record.position)
        else:
            self._deliveries.deliver(record, properties, NOT_ON_WHEEL_MS, now_ms)


def _known_out(properties: dict[str, str], now_ms: int) -> int:
    """The second that a message waits for. Raises MessageIllegal if it is none, or years ahead."""
    out = out_of(properties)
    if out is None:
        raise MessageIllegal("a timed message has no delivery time")
    if out - now_ms > FAR_MS:
        raise MessageIllegal(f"a timed message is for {out}, years ahead")
    return out
