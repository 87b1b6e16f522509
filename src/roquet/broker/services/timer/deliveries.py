"""TimerDeliveries: due messages of the wheel are delivered, rolled on, or were recalled.

A second begins when its time does. All its units are read, then its messages are delivered in the
order in which they are due; more of them may come meanwhile.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from roquet.broker.counts import DELAY
from roquet.broker.ingest.destination import Destinations
from roquet.broker.ingest.set_aside import TIMER, SetAside
from roquet.broker.log.message_log import MessageLog
from roquet.broker.services.delayed_delivery import STEP_BYTES, STEP_COUNT
from roquet.broker.tables.timer_metrics import TimerMetrics
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import MessageIllegal, RecordError
from roquet.rules.delay.timer import (
    PRECISION_MS,
    DueQueue,
    due_ms,
    floor_ms,
    is_delete,
    is_recall_due,
    must_roll,
)
from roquet.store.store import Store
from roquet.store.timer.layout import NONE, TimerUnit
from roquet.store.timer.timers import TimerStore
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import Record, decode

log = logger(__name__)

LOOK_COUNT: Final = 64
"""Units read before others have their turn."""

EMPTY_COUNT: Final = 4_096
"""Empty seconds that are skipped in one step, after a long pause."""

TIMER_PLACE: Final = (names.TIMER_TOPIC, 0)
"""Topic and queue of all waiting messages."""

ReviveNoteListener = Callable[[Record, int, int], object]
"""Called for a record of the revive topic that had waited, with its new queue id and offset."""


class TimerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that the timer uses."""

    message_log: MessageLog
    destinations: Destinations
    set_aside: SetAside
    timers: TimerStore
    metrics: TimerMetrics
    window_ms: int
    """Longest time in ms that a message waits in one slot, at the start."""
    on_revive_note: ReviveNoteListener


class TimerDeliveries:
    """Delivers due messages."""

    def __init__(self, context: TimerContext) -> None:
        self._context = context
        self._timers = context.timers
        self._second: DueQueue | None = None

    def step(self, now_ms: int) -> int:
        """Deliver some messages to their queues; returns when there is more to do."""
        second = self._second or self._next_second(now_ms)
        if second is None:
            read_ms = self._timers.read_ms
            if read_ms + PRECISION_MS <= now_ms:
                return now_ms
            return read_ms if read_ms > now_ms else read_ms + PRECISION_MS
        if not second.is_known:
            self._read_units(second)
            return now_ms
        store = self._context.message_log.store
        stop = store.end_position + STEP_BYTES
        for _ in range(STEP_COUNT):
            if (first := second.first()) is None:
                return self._leave(second, now_ms)
            if store.end_position >= stop:
                break
            due, position = first
            if due > now_ms:
                return due
            self._unit_due(second, position, now_ms)
            second.drop()
            self._timers.note_delivered(due, position)
        return now_ms

    def leave(self) -> bool:
        """Leave the second being delivered, which is ahead of the clock; whether that is done.

        If all of it was delivered it is over, so that it is not repeated when its time comes.
        """
        timers = self._timers
        slot = timers.slot(timers.read_ms)
        if slot is not None and timers.cursor[0]:
            second = self._second or DueQueue(timers.read_ms, slot.last, timers.cursor)
            self._second = second
            if not second.is_known:
                self._read_units(second)
                return False
            if second.first() is None:
                timers.advance_to(second.begin_ms + PRECISION_MS)
        self._second = None
        return True

    def restart(self) -> None:
        """Begin the present second anew: another broker has delivered since."""
        self._second = None

    def note_written(self, slot_ms: int, position: int, kind: int, record: Record) -> None:
        """Note a unit that was written; one of the second being delivered is still in time."""
        second = self._second
        if second is not None and slot_ms == second.begin_ms:
            self._order(second, position, kind, record)

    def _next_second(self, now_ms: int) -> DueQueue | None:
        timers = self._timers
        read_ms = timers.read_ms
        end_ms = min(floor_ms(now_ms), read_ms + EMPTY_COUNT * PRECISION_MS)
        if end_ms > read_ms:
            read_ms = timers.next_used_ms(read_ms, end_ms)
        if read_ms != timers.read_ms:
            timers.advance_to(read_ms)
        slot = timers.slot(read_ms)
        if slot is None or read_ms > now_ms:
            return None
        self._second = DueQueue(read_ms, slot.last, timers.cursor)
        return self._second

    def _leave(self, second: DueQueue, now_ms: int) -> int:
        """Go on to the next second, unless more messages may come into this one."""
        following_ms = second.begin_ms + PRECISION_MS
        if following_ms > now_ms:
            return following_ms
        self._second = None
        self._timers.advance_to(following_ms)
        self._timers.unsaved = True
        return now_ms

    def _read_units(self, second: DueQueue) -> None:
        """Read when some units of a second are due."""
        left = STEP_BYTES
        for _ in range(LOOK_COUNT):
            position, unit = second.next, self._timers.unit(second.next)
            if unit is None or floor_ms(unit.slot_ms) != second.begin_ms:
                if position >= 0:
                    log.warning("the timer log ends at %d, in a chain of units", position)
                second.next = NONE
                return
            second.next = unit.before if unit.before < position else NONE
            raw = raw_of(self._context.message_log.store, unit)
            if raw is not None:
                self._order_raw(second, position, unit.magic, raw)
            left -= unit.size
            if left <= 0:
                return

    def _order_raw(self, second: DueQueue, position: int, kind: int, raw: bytes) -> None:
        """Add a unit to the order of its second; one that cannot be read is due at once."""
        try:
            record = decode(raw)
        except RecordError:  # it is set aside when it is due, and only once
            second.add(second.begin_ms, position)
        else:
            self._order(second, position, kind, record)

    def _order(self, second: DueQueue, position: int, kind: int, record: Record) -> None:
        if record.topic != names.TIMER_TOPIC:
            return  # the position holds another record now
        try:
            _add_to_order(second, position, kind, record)
        except Exception:  # as above
            second.add(second.begin_ms, position)

    def _unit_due(self, second: DueQueue, position: int, now_ms: int) -> None:
        unit = self._timers.unit(position)
        raw = raw_of(self._context.message_log.store, unit) if unit else None
        if unit is None or raw is None:
            return
        try:
            self._message_due(second, unit, decode(raw), now_ms)
        except Exception as error:  # the others must not wait behind it
            self._context.set_aside.keep_raw(TIMER, names.TIMER_TOPIC, 0, raw, error)

    def _message_due(self, second: DueQueue, unit: TimerUnit, record: Record, now_ms: int) -> None:
        """Deliver a due message, roll it on, or skip it if it was recalled."""
        properties = decode_properties(lossless_text(record.properties))
        topic = properties.get(props.REAL_TOPIC, "")
        if must_roll(unit.magic):
            self._roll(record, properties, unit, now_ms)
        elif second.is_recalled(topic, properties.get(props.UNIQUE_KEY, "")):
            return  # the recall has counted for both
        else:
            self.deliver(record, properties, unit.write_ms, now_ms)
        self._context.metrics.add(topic, 1 if is_delete(unit.magic) else -1, now_ms)

    def _roll(
        self, record: Record, properties: dict[str, str], unit: TimerUnit, now_ms: int
    ) -> None:
        """Store a message again, for a second that is in reach now."""
        text = properties.get(props.TIMER_ROLL_TIMES, "0")
        times = int(text) + 1 if text.isascii() and text.isdecimal() and len(text) < 10 else 1
        more = {
            props.TIMER_ENQUEUE_MS: str(unit.write_ms),
            props.TIMER_ROLL_TIMES: str(times),
            props.TIMER_DEQUEUE_MS: str(now_ms),
        }
        self._store_again(record, properties, more, TIMER_PLACE)

    def deliver(
        self, record: Record, properties: dict[str, str], write_ms: int, now_ms: int
    ) -> None:
        """Store a message in the queue that it was sent to."""
        topic = properties.get(props.REAL_TOPIC, "")
        if not topic or topic in names.BROKER_ONLY_TOPICS or topic == names.TIMER_TOPIC:
            raise MessageIllegal(f"a timed message cannot be delivered to topic {topic!r}")
        queue_id = self._context.destinations.queue(topic, properties.get(props.REAL_QUEUE_ID, "0"))
        more = {props.TIMER_ENQUEUE_MS: str(write_ms), props.TIMER_DEQUEUE_MS: str(now_ms)}
        offset = self._store_again(record, properties, more, (topic, queue_id))
        counts = self._context.message_log.counts
        counts.timer_dequeued.add(topic)
        counts.note_stored(topic, DELAY, record.size)
        if topic.startswith(names.REVIVE_PREFIX):
            self._context.on_revive_note(record, queue_id, offset)

    def write_again(self, record: Record, properties: dict[str, str], out: int) -> None:
        """Store a message again, for another second than the one it names."""
        self._store_again(record, properties | {props.TIMER_OUT_MS: str(out)}, {}, TIMER_PLACE)

    def _store_again(
        self,
        record: Record,
        properties: dict[str, str],
        more: dict[str, str],
        place: tuple[str, int],
    ) -> int:
        try:
            return self._append(record, properties | more, place)
        except MessageIllegal:  # there may be no room for further properties
            return self._append(record, properties, place)

    def _append(self, record: Record, properties: dict[str, str], place: tuple[str, int]) -> int:
        appended = self._context.message_log.ingest.reappend(
            record,
            topic=place[0],
            queue_id=place[1],
            properties=properties,
        )
        return appended.queue_offset


def raw_of(store: Store, unit: TimerUnit) -> bytes | None:
    """The raw record of a unit; None when it is gone."""
    view = store.record_at(unit.position, unit.size)
    if view is None:
        log.warning("timed message at %d is gone", unit.position)
        return None
    return bytes(view)  # decoding bytes takes half the time of a view


def _add_to_order(second: DueQueue, position: int, kind: int, record: Record) -> None:
    properties = decode_properties(lossless_text(record.properties))
    topic, out = properties.get(props.REAL_TOPIC, ""), out_of(properties)
    if out is not None and out > second.begin_ms and not must_roll(kind):
        return  # the position holds the record of another second now
    if is_recall_due(kind):
        second.recall(topic, _target(properties, topic))
        return
    wanted = out == second.begin_ms and not must_roll(kind)
    due = due_ms(properties, record.stored_ms, second.begin_ms) if wanted else second.begin_ms
    second.add(due, position)


def out_of(properties: dict[str, str]) -> int | None:
    """The second that a message waits for; None if its property is no time."""
    text = properties.get(props.TIMER_OUT_MS, "")
    return floor_ms(int(text)) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _target(properties: dict[str, str], topic: str) -> str:
    """The unique key of the message that this one recalls.

    The topic may precede it (the setting recall_key_with_topic, and brokers of 5.4).
    """
    return properties.get(props.TIMER_DELETE_UNIQUE_KEY, "").removeprefix(f"{topic}+")
