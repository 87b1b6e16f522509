"""DelayedDelivery: messages that wait at a delay level, delivered to their queues when due.

    SCHEDULE_TOPIC_XXXX   queue 0 │ level 1 │ due 10:00:01 │ due 10:00:04 │ …      one loop a level:
                          queue 1 │ level 2 │ due 10:00:07 │ …                     the first is due
                          …                                                        first

The tag code of a queue entry is the time at which its message is due. The progress of a level is
saved only after the delivered messages are on the disk: after a crash some messages come twice, and
none is lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from roquet.broker.ingest.destination import Destinations
from roquet.broker.ingest.set_aside import DELAY, SetAside
from roquet.broker.log.message_log import MessageLog
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as property_names
from roquet.model.errors import MessageIllegal, RecordError, StoreFailed
from roquet.net.clock import Clock
from roquet.net.threads import in_thread
from roquet.rules.delay.delay_levels import excess_delay_ms
from roquet.store.store import Store
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import RECORD_SIZE_MIN, TOTAL_AND_MAGIC, Record, decode

log = logger(__name__)

SAVE_MS: Final = 10_000
"""Ms between two saves of the progress, as in the genuine broker."""

Unreadable = Callable[[bytes, RecordError], object]
"""Called for each damaged record of a queue."""

STEP_COUNT: Final = 64
"""Messages delivered before others have their turn: about a millisecond."""

STEP_BYTES: Final = 1024 * 1024
"""Bytes of these messages, for the same reason: the largest take as long as many small ones."""

NAP_MS: Final = 1_000
"""Longest sleep in ms while a message waits: the wall clock may be set forward meanwhile."""

QUIET_MS: Final = 3_600_000
"""Longest wait in ms for a level's first message."""

FAILURE_PAUSE_MS: Final = 10_000
"""Ms of pause after a failed delivery, as in the genuine broker; the level goes on where it was."""


async def at_once() -> bool:
    """Progress may be saved now."""
    return True


class DelayedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """Delivers the messages of all delay levels."""

    message_log: MessageLog
    delay_offsets: DelayOffsets
    destinations: Destinations
    set_aside: SetAside
    clock: Clock
    levels: tuple[int, ...]
    firsts: dict[int, tuple[int, int]] = {}
    """Level → the last offset looked at, and by how many ms its time was ahead."""
    may_save: Callable[[], Awaitable[bool]] = at_once
    """Waits until progress up to now may be saved; False: not now."""

    def work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The loops to run, one for each level.

        Messages may also wait at a level that the settings no longer have: each entry has its time.
        """
        queue_ids = self.message_log.store.queue_ids(names.SCHEDULE_TOPIC)
        levels = {queue_id + 1 for queue_id in queue_ids}.union(range(1, len(self.levels) + 1))
        return (self.serve(level) for level in sorted(levels))

    async def serve(self, level: int) -> None:
        """Deliver the messages of one level, each when it is due and in their order."""
        while True:
            try:
                await self._round(level)
            except StoreFailed:  # the store has logged it
                await self.clock.sleep(FAILURE_PAUSE_MS)
            except Exception:
                log.exception("messages of delay level %d wait longer than they should", level)
                await self.clock.sleep(FAILURE_PAUSE_MS)

    async def save(self, now_ms: int) -> None:
        """Save the progress, once all delivered messages are confirmed and on the disk."""
        if not self.delay_offsets.unsaved:
            return
        self.delay_offsets.touch(now_ms)
        work = self.delay_offsets.saving()
        try:
            await self.message_log.flush.step()
            if not await self.may_save():
                self.delay_offsets.unsaved = True
            elif work is not None:
                await in_thread(work)
        except BaseException:
            self.delay_offsets.unsaved = True
            raise

    def step(self, level: int, now_ms: int) -> int | None:
        """Deliver some due messages; returns when the next one is due, None when none waits."""
        queue_id, offset = level - 1, self._offset(level)
        due: list[int] = []
        messages = self.message_log.store.read(
            names.SCHEDULE_TOPIC,
            queue_id,
            offset,
            count_max=STEP_COUNT,
            bytes_max=STEP_BYTES,
            wanted=_noting(due),
        )
        unreadable = partial(self.set_aside.keep_raw, DELAY, names.SCHEDULE_TOPIC, queue_id)
        for record in decode_records(messages.parts, unreadable):
            if (at := self._due(level, record, due[record.queue_offset - offset], now_ms)) > now_ms:
                return at
            try:
                self._deliver(record)
            except Exception as error:  # the others must not wait behind it
                self.set_aside.keep_record(DELAY, record, error)
            self.delay_offsets.advance(level, record.queue_offset + 1)
        self.delay_offsets.advance(level, messages.next_offset)  # past what cannot be read
        _, end = self.message_log.store.bounds(names.SCHEDULE_TOPIC, queue_id)
        return now_ms if messages.next_offset < end else None

    async def _round(self, level: int) -> None:
        """One step, then a pause until the next message is due or stored."""
        at = self.step(level, self.clock.now_ms())
        if at is None:
            deadline_ms = self.clock.monotonic_ms() + QUIET_MS
            behind = self.delay_offsets.get(level) + 1
            if not await self.message_log.arrivals.reach(
                names.SCHEDULE_TOPIC, level - 1, behind, None, deadline_ms
            ):
                await self.clock.sleep(NAP_MS)  # nothing came, or the broker is about to stop
            return
        # Looked at again after each nap: if the clock was set back, it is due sooner than it was.
        left = at - self.clock.now_ms()
        await (self.clock.sleep(min(left, NAP_MS)) if left > 0 else asyncio.sleep(0))

    def _offset(self, level: int) -> int:
        """The next offset of a level, within the bounds of its queue whatever the file says."""
        least, end = self.message_log.store.bounds(names.SCHEDULE_TOPIC, level - 1)
        offset = min(max(self.delay_offsets.get(level), least), end)
        if offset != self.delay_offsets.get(level):
            self.delay_offsets.advance(level, offset)
        return offset

    def _due(self, level: int, record: Record, noted_ms: int, now_ms: int) -> int:
        """When a message is due: the noted time, corrected if the clock was set back since."""
        offset, ahead = self.firsts.get(level, (-1, 0))
        known = level <= len(self.levels)
        longest_ms = max(self.levels[level - 1] if known else max(self.levels), 0)
        if offset != record.queue_offset or noted_ms - ahead > now_ms + longest_ms:
            ahead = excess_delay_ms(noted_ms, now_ms, longest_ms, ahead)
            self.firsts[level] = (record.queue_offset, ahead)
        return noted_ms - ahead

    def _deliver(self, record: Record) -> None:
        properties = decode_properties(lossless_text(record.properties))
        topic = properties.get(property_names.REAL_TOPIC, "")
        if not topic or topic in names.BROKER_ONLY_TOPICS:
            raise MessageIllegal(f"a delayed message cannot be delivered to topic {topic!r}")
        queue_id = self.destinations.queue(topic, properties.get(property_names.REAL_QUEUE_ID, "0"))
        self.message_log.ingest.append_due(
            record, topic=topic, queue_id=queue_id, properties=properties
        )


def _noting(codes: list[int]) -> Callable[[int], bool]:
    """A filter that accepts every message and collects its tag code."""

    def note(code: int) -> bool:
        codes.append(code)
        return True

    return note


def decode_records(parts: Sequence[memoryview], unreadable: Unreadable) -> Iterator[Record]:
    """The records of a slice."""
    for view in parts:
        part, at = bytes(view), 0  # a record is read from bytes in half the time
        while len(part) - at >= RECORD_SIZE_MIN:
            total, _ = TOTAL_AND_MAGIC.unpack_from(part, at)
            end = at + max(total, RECORD_SIZE_MIN)
            try:
                yield decode(part, at)
            except RecordError as error:
                unreadable(part[at:end], error)
            at = end


def steps_of(
    store: Store, queue: tuple[str, int], at: int, unreadable: Unreadable
) -> Iterator[Iterator[Record]]:
    """The records that a queue has now from an offset on, some at a time."""
    _, end = store.bounds(*queue)
    while at < end:
        messages = store.read(*queue, at, count_max=STEP_COUNT, bytes_max=STEP_BYTES)
        yield decode_records(messages.parts, unreadable)
        at = max(messages.next_offset, at + 1)
