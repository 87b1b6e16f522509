"""PopRevive: redelivers popped messages that were not acknowledged in time.

    pop ──▶ ck ─┐                                    ┌─▶ %RETRY%group+topic
    ack ──▶ ack ┼─▶ rmq_sys_REVIVE_LOG_cluster ──▶ time passed
    acks ─▶ bAck┘         │                          └─▶ %DLQ%group, after the last try
                          └─▶ read again after a restart

Pops and acknowledgements are appended to the revive topic before the client gets a reply. Memory
holds the same checkpoints, so only redelivered messages are read from the disk.
"""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from roquet.broker.counts import ACKNOWLEDGEMENT, CHECKPOINT
from roquet.broker.ingest.retry_topics import RetryTopics
from roquet.broker.ingest.set_aside import REVIVE, SetAside, is_transient, location_in
from roquet.broker.log.message_log import MessageLog
from roquet.broker.services.delayed_delivery import steps_of
from roquet.broker.services.unconfirmed_pops import UnconfirmedPops
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import FieldError, MessageIllegal, RecordError, StoreError
from roquet.net.clock import Clock
from roquet.rules.consumption.pop import OpenCheckpoints, PopCheckpoint, bits_of, offsets_of
from roquet.rules.delay.delay_levels import dead_letter_properties, times_after
from roquet.store.store import Draft
from roquet.wire.java_hash import hash_code
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.property_text import decode_properties, lossless_text
from roquet.wire.records.record import Record, decode
from roquet.wire.revive_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    STEP_MAX,
    AckBody,
    CheckpointBody,
    decode_ack,
    decode_checkpoint,
    encode_body,
    revive_properties,
)

log = logger(__name__)

REVIVE_MS: Final = 200
"""Ms between two checks for checkpoints whose time has passed."""

REVIVE_COUNT: Final = 64
"""Messages redelivered before others have their turn."""

RENOTE_COUNT: Final = 256
"""Checkpoints appended again in one step, all revive queues together; the rest the next time."""

FAILURE_PAUSE_MS: Final = 1_000
"""Ms of pause after a failed append: the disk may be full."""

BACK_MS: Final = 60_000
"""A clock set back by more ms than this must not keep messages invisible for that much longer."""

NOTED_GRACE_MS: Final = 3_000
"""Extra ms for a checkpoint that waited in the timer: its acknowledgements are in the next second
of the wheel, and after a long pause both are taken from it at once."""

NOTED_GROUP: Final = "CID_RMQ_SYS_REVIVE_NOTED"
"""Group whose offsets in the revive topic tell which checkpoints the saved progress includes."""

DELAYS: Final = (props.DELAY, props.POP_CK)
"""Properties that a message loses when it is redelivered."""

CODES: Final = {tag: hash_code(tag) for tag in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)}


class PopRevive:
    """Tracks popped messages, and redelivers those that were not acknowledged."""

    def __init__(
        self,
        message_log: MessageLog,
        tables: BrokerTables,
        retry_topics: RetryTopics,
        set_aside: SetAside,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._broker_name = config.broker_name
        self.topic = self._topic = names.revive_topic(config.cluster_name)
        self._retry_topics = retry_topics
        self._set_aside = set_aside
        self._seen_ms = 0
        """The latest time at which due checkpoints were looked for."""
        self._store = message_log.store
        self._ingest = message_log.ingest
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clock = clock
        topic = self._topics.get(self._topic)
        self._queue_count = max(1, topic.write_queue_nums if topic else 1)
        self._turn = 0
        self._complained: set[type[Exception]] = set()
        self.in_flight = OpenCheckpoints()
        self.unconfirmed = UnconfirmedPops()
        """Stays empty where consumers see all of the log at once."""

    # -- popped and acknowledged --------------------------------------------------------------

    def next_revive_queue_id(self) -> int:
        """The revive queue of the next pop, round robin."""
        self._turn = revive_queue_id = (self._turn + 1) % self._queue_count
        return revive_queue_id

    def give(self, checkpoint: PopCheckpoint, *, moves_progress: bool = False) -> None:
        """Store a checkpoint. After a StoreError its messages must not be delivered.

        The progress of the group moves with one of a pop.
        """
        self._note(checkpoint)
        if moves_progress:
            self._note_unconfirmed(checkpoint)
        self.in_flight.add(checkpoint)
        notes = self._ingest.counts.revive_notes
        notes.add(checkpoint.topic, checkpoint.group, CHECKPOINT)

    def settle(self, checkpoint: PopCheckpoint, bits: int) -> None:
        """Store an acknowledgement. After a StoreError it does not count."""
        bits &= checkpoint.left
        if not bits:
            return
        is_one = not bits & (bits - 1)
        offset = checkpoint.start + bits.bit_length() - 1
        body = AckBody(
            offset=offset if is_one else None,
            offsets=None if is_one else offsets_of(bits, checkpoint.start),
            broker=self._broker_name,
            group=checkpoint.group,
            pop_ms=checkpoint.pop_ms,
            queue_id=checkpoint.queue_id,
            start=checkpoint.start,
            topic=checkpoint.topic,
        )
        self._append(checkpoint.revive_queue_id, ACK_TAG if is_one else BATCH_ACK_TAG, body)
        self.in_flight.settle(checkpoint, bits)
        notes = self._ingest.counts.revive_notes
        notes.add(checkpoint.topic, checkpoint.group, ACKNOWLEDGEMENT)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the checkpoints of deleted topics."""
        gone = set(topics)
        for checkpoint in [checkpoint for checkpoint in self.in_flight if checkpoint.topic in gone]:
            self.in_flight.settle(checkpoint, checkpoint.left)

    def settle_all(self, group: str, topic: str) -> None:
        """Store that nothing is redelivered of what a group popped from a topic that stays."""
        for checkpoint in list(self.in_flight):
            if (checkpoint.group, checkpoint.topic) == (group, topic):
                self.settle(checkpoint, checkpoint.left)

    def fresh_pop_ms(self, entry: tuple[str, str, int, int], now_ms: int) -> int:
        """A pop time from `now_ms` on that makes the key of a new checkpoint unique."""
        while self.in_flight.find((*entry, now_ms)) is not None:
            now_ms += 1
        return now_ms

    def _note(self, checkpoint: PopCheckpoint) -> None:
        offsets = offsets_of(checkpoint.delivered, checkpoint.start)
        acked = bits_of(
            (n for n, o in enumerate(offsets) if not checkpoint.left & checkpoint.bit(o)), 0
        )
        body = CheckpointBody(
            acked=acked,
            broker=self._broker_name,
            group=checkpoint.group,
            steps=[offset - checkpoint.start for offset in offsets],
            invisible_ms=checkpoint.invisible_ms,
            count=len(offsets),
            pop_ms=checkpoint.pop_ms,
            queue_id=checkpoint.queue_id,
            start=checkpoint.start,
            is_suspended=checkpoint.is_suspended,
            topic=checkpoint.topic,
        )
        checkpoint.revive_offset = self._append(checkpoint.revive_queue_id, CHECKPOINT_TAG, body)

    def _note_unconfirmed(self, checkpoint: PopCheckpoint) -> None:
        """Note that progress moves with a checkpoint that may be cut with the end of the log."""
        log_end = self._store.end_position
        if self._store.confirmed_position < log_end:
            queue = (checkpoint.group, checkpoint.topic, checkpoint.queue_id)
            self.unconfirmed.add(queue, checkpoint.start, log_end)

    def _append(self, queue_id: int, tag: str, body: AckBody | CheckpointBody) -> int:
        now_ms, raw = self._clock.now_ms(), encode_body(body)
        draft = Draft(self._topic, queue_id, raw, revive_properties(tag, now_ms), CODES[tag])
        offset = self._store.append(draft, now_ms).queue_offset
        self._offsets.commit(NOTED_GROUP, self._topic, queue_id, offset + 1)
        return offset

    # -- coming again ------------------------------------------------------------------------

    async def step(self, now_ms: int) -> None:
        """Give out again what was not acknowledged in time, and note how far all is settled."""
        self._watch_clock(now_ms)
        while (checkpoint := self.in_flight.take_due(now_ms)) is not None:
            try:
                self._revive(checkpoint)
            except StoreError as error:
                self.in_flight.retry(checkpoint, now_ms + FAILURE_PAUSE_MS)
                self._complain(error)
                break
            except Exception as error:  # whatever is wrong with it: the others come again
                self._give_up(checkpoint, now_ms, error)
            else:
                if checkpoint.left:
                    self.in_flight.retry(checkpoint, now_ms)
            await asyncio.sleep(0)
        self.commit()

    def _watch_clock(self, now_ms: int) -> None:
        """See that nothing stays invisible until a clock that was ahead is reached again."""
        if now_ms < self._seen_ms - BACK_MS:
            self.in_flight.clock_set_back(now_ms)
        self._seen_ms = now_ms

    def _give_up(self, checkpoint: PopCheckpoint, now_ms: int, error: Exception) -> None:
        """Set the messages of a checkpoint aside that cannot come again, each with its goal."""
        try:
            for offset in offsets_of(checkpoint.left, checkpoint.start):
                self._keep(checkpoint, offset, error)
                self.in_flight.settle(checkpoint, checkpoint.bit(offset))
        except Exception as refused:
            self.in_flight.retry(checkpoint, now_ms + FAILURE_PAUSE_MS)
            self._complain(refused)

    def _keep(self, checkpoint: PopCheckpoint, offset: int, error: Exception) -> None:
        """Set one message aside; when it is tried again it goes to the group's retry topic."""
        raw = self._raw(checkpoint.topic, checkpoint.queue_id, offset)
        if raw is None:
            return
        location = location_in(raw, checkpoint.topic, checkpoint.queue_id)
        self._set_aside.keep(REVIVE, location, error, raw, self._retry_place(checkpoint))

    def commit(self) -> None:
        """Commit the progress in the revive topic; old open checkpoints are appended again."""
        for revive_queue_id in range(self._queue_count):
            _, end = self._store.bounds(self._topic, revive_queue_id)
            oldest = self.in_flight.oldest(revive_queue_id)
            first = end - self.in_flight.lag_max()
            for _ in range(max(1, RENOTE_COUNT // self._queue_count)):
                if oldest is None or oldest.revive_offset >= first:
                    break
                self._note(oldest)
                self.in_flight.moved(oldest, oldest.revive_offset)
                oldest = self.in_flight.oldest(revive_queue_id)
            self._commit_done(revive_queue_id, end if oldest is None else oldest.revive_offset)

    def _commit_done(self, revive_queue_id: int, offset: int) -> None:
        """Commit that everything before an offset is done.

        Genuine brokers read this as well: for them it is the last record that is done, not the next
        one.
        """
        if offset > 0:
            self._offsets.commit(names.REVIVE_GROUP, self._topic, revive_queue_id, offset - 1)

    def _revive(self, checkpoint: PopCheckpoint) -> None:
        done = 0
        try:
            for offset in offsets_of(checkpoint.left, checkpoint.start)[:REVIVE_COUNT]:
                try:
                    self._redeliver(checkpoint, offset)
                except Exception as error:  # the others must not wait behind it
                    if is_transient(error):
                        raise
                    self._make_dead_letter(checkpoint, offset, error)
                done |= checkpoint.bit(offset)
        finally:
            self.settle(checkpoint, done)

    def _redeliver(self, checkpoint: PopCheckpoint, offset: int) -> None:
        """Redeliver one message or make it a dead letter.

        One that retention has deleted is skipped.
        """
        # A kill may have lost a group that was created by a heartbeat or pop.
        group = self._groups.get(checkpoint.group) or self._groups.default(checkpoint.group)
        record = self._record(checkpoint.topic, checkpoint.queue_id, offset)
        if group is None or record is None:
            log.info(
                "offset %d of %s queue %d is gone", offset, checkpoint.topic, checkpoint.queue_id
            )
            return
        properties = decode_properties(lossless_text(record.properties))
        origin = names.retried_topic(checkpoint.group, checkpoint.topic)
        kept = _without_delays(properties)
        if not names.is_retry(origin):
            kept[props.RETRY_TOPIC] = origin
        kept.setdefault(props.FIRST_POP_TIME, str(checkpoint.pop_ms))
        if checkpoint.is_suspended:  # the try that ends now does not count
            record = replace(record, reconsume_times=record.reconsume_times - 1)
        if record.reconsume_times >= group.retry_max_times:
            topic, queue_id = names.dlq_topic(checkpoint.group), 0
            self._topics.create_for_group(topic, 1, self._clock.now_ms())
            message_id = offset_message_id(record.store_host, record.position)
            kept = dead_letter_properties(kept, origin, message_id)
            kept.pop(props.DELAY, None)
        else:
            topic, queue_id = self._retry_place(checkpoint)
        self._store_again(record, (topic, queue_id), kept, properties)
        counts = self._ingest.counts
        if names.is_dlq(topic):
            counts.dead_letters.add(checkpoint.group, origin)
        else:
            counts.redelivered.add(checkpoint.topic, checkpoint.group)

    def _retry_place(self, checkpoint: PopCheckpoint) -> tuple[str, int]:
        """The retry topic, which is created, and the queue of messages that come again."""
        topic = origin = names.retried_topic(checkpoint.group, checkpoint.topic)
        if not names.is_retry(origin):  # else not of popped messages, or of another group
            topic = self._retry_topics.pop_retry_topic(checkpoint.group, origin)
        return topic, self._retry_topics.pop_retry_queue(topic, origin, checkpoint.queue_id)

    def _store_again(
        self,
        record: Record,
        place: tuple[str, int],
        kept: dict[str, str],
        properties: dict[str, str],
    ) -> None:
        times = times_after(record.reconsume_times)
        reappend = partial(
            self._ingest.reappend, record, topic=place[0], queue_id=place[1], reconsume_times=times
        )
        try:
            reappend(properties=kept)
        except MessageIllegal:  # no room for another property: those it has do fit
            plain = _without_delays(properties)
            plain.pop(props.RETRY_TOPIC, None)  # whatever the sender wrote there
            reappend(properties=plain)

    def _make_dead_letter(self, checkpoint: PopCheckpoint, offset: int, why: Exception) -> None:
        """Make a message that cannot be redelivered a dead letter, without further properties."""
        log.error(
            "offset %d of %s queue %d cannot come again: %s",
            offset, checkpoint.topic, checkpoint.queue_id, why,
        )  # fmt: skip
        try:
            self._store_dead_letter(checkpoint, offset)
        except Exception as error:  # it cannot be a dead letter either
            self._keep(checkpoint, offset, error)

    def _store_dead_letter(self, checkpoint: PopCheckpoint, offset: int) -> None:
        record = self._record(checkpoint.topic, checkpoint.queue_id, offset)
        if record is None:
            raise RecordError("the message is gone")
        topic, times = names.dlq_topic(checkpoint.group), times_after(record.reconsume_times)
        self._topics.create_for_group(topic, 1, self._clock.now_ms())
        try:
            plain = _without_delays(decode_properties(lossless_text(record.properties)))
            self._ingest.reappend(record, topic=topic, properties=plain, reconsume_times=times)
        except (MessageIllegal, RecordError):  # without properties: its body is what counts
            self._ingest.reappend(record, topic=topic, properties={}, reconsume_times=times)

    def _record(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """The record at an offset; None for one that is gone. RecordError if it is damaged."""
        raw = self._raw(topic, queue_id, offset)
        record = None if raw is None else decode(raw)
        return record if record is not None and record.queue_offset == offset else None

    def _raw(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        messages = self._store.read(topic, queue_id, offset, count_max=1)
        return bytes(messages.parts[0]) if messages.count else None

    def _complain(self, error: Exception) -> None:
        if type(error) not in self._complained:
            self._complained.add(type(error))
            trace = None if isinstance(error, StoreError) else error
            log.warning("popped messages cannot come again for now: %s", error, exc_info=trace)

    # -- after a restart ---------------------------------------------------------------------

    def restore(self) -> None:
        """Read the revive topic at a start: what was popped stays in flight."""
        for _ in self.restoring():
            pass

    def restoring(self) -> Iterator[None]:
        """Read it in steps, when a replica becomes the master; nothing is popped in between."""
        self.in_flight = OpenCheckpoints()
        for revive_queue_id in self._store.queue_ids(self._topic):
            begin, _ = self._store.bounds(self._topic, revive_queue_id)
            settled = self._offsets.get(names.REVIVE_GROUP, self._topic, revive_queue_id)
            noted = self._offsets.get(NOTED_GROUP, self._topic, revive_queue_id) or 0
            at = begin if settled is None else max(begin, settled + 1)
            unreadable = partial(self._set_aside.keep_raw, REVIVE, self._topic, revive_queue_id)
            queue = (self._topic, revive_queue_id)
            for records in steps_of(self._store, queue, at, unreadable):
                for record in records:
                    self._take(record, revive_queue_id, is_new=record.queue_offset >= noted)
                yield
        self.in_flight.clock_set_back(self._clock.now_ms())
        log.info("%d pops are in flight", len(self.in_flight))

    def retried(self, record: Record) -> None:
        """Take a record of the revive topic that had been set aside and was put back."""
        self._take(record, record.queue_id, is_new=True)

    def noted(self, record: Record, revive_queue_id: int, offset: int) -> None:
        """Take a record of a genuine broker that had waited in its timer.

        Its checkpoint stays open a little longer: acknowledgements come the same way, at the same
        time.
        """
        note = replace(record, queue_offset=offset)
        waits_until_ms = self._clock.now_ms() + NOTED_GRACE_MS
        self._take(note, revive_queue_id, is_new=True, waits_until_ms=waits_until_ms)
        self._offsets.commit(NOTED_GROUP, self._topic, revive_queue_id, offset + 1)

    def _take(
        self, record: Record, revive_queue_id: int, *, is_new: bool, waits_until_ms: int = 0
    ) -> None:
        try:
            tag = decode_properties(record.properties).get(props.TAGS)
            if tag == CHECKPOINT_TAG:
                self._take_checkpoint(record, revive_queue_id, is_new, waits_until_ms)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                self._take_ack(decode_ack(record.body))
        except Exception as error:  # the other records count
            self._set_aside.keep_record(REVIVE, record, error)

    def _take_checkpoint(
        self, record: Record, revive_queue_id: int, is_new: bool, waits_until_ms: int
    ) -> None:
        body = decode_checkpoint(record.body)
        if record.position < self._store.deleted_before(body.topic):
            return  # its messages were deleted with their topic
        end = self._store.bounds(body.topic, body.queue_id)[1]
        offsets = body.offsets()
        if max(offsets) >= end:
            raise FieldError(f"it gives out messages up to {max(offsets)}, there are {end}")
        delivered = bits_of(offsets, body.start)
        acked = bits_of((o for n, o in enumerate(offsets) if body.acked >> n & 1), body.start)
        checkpoint = PopCheckpoint(
            group=body.group,
            topic=body.topic,
            queue_id=body.queue_id,
            start=body.start,
            pop_ms=body.pop_ms,
            invisible_ms=max(body.invisible_ms, waits_until_ms - body.pop_ms),
            delivered=delivered,
            left=delivered & ~acked,
            revive_queue_id=revive_queue_id,
            revive_offset=record.queue_offset,
            is_suspended=body.is_suspended,
        )
        self.in_flight.add(checkpoint)
        progress = self._offsets.get(body.group, body.topic, body.queue_id)
        if is_new and (progress is None or progress < checkpoint.next_offset):
            # Its messages were delivered after the progress of all groups was saved.
            self._note_unconfirmed(checkpoint)
            self._offsets.commit(body.group, body.topic, body.queue_id, checkpoint.next_offset)

    def _take_ack(self, body: AckBody) -> None:
        key = (body.group, body.topic, body.queue_id, body.start, body.pop_ms)
        checkpoint = self.in_flight.find(key)
        if checkpoint is None:
            return
        offsets = [body.offset or 0] if body.offsets is None else body.offsets
        wanted = [offset for offset in offsets if 0 <= offset - body.start <= STEP_MAX]
        self.in_flight.settle(checkpoint, bits_of(wanted, body.start))


def _without_delays(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in DELAYS}
