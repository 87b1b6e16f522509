"""Queue builder: queue entries and the key index's work for records copied from a master's log.

A master writes each entry with its record. A replica gets bytes, finds the whole records in them,
and writes the same entries. It gives no offset of its own: the record has its master's, which has
to follow the queue's last one, since otherwise the two logs have different pasts.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from roquet.log_records import logger
from roquet.model.errors import MessageIllegal, StoreError
from roquet.rules.recovery import RecordRange
from roquet.store.commit_log.log import BLANK_SIZE, CommitLog
from roquet.store.commit_log.unindexed_buffer import RecordFacts
from roquet.store.consume_queue.entries import entry_columns
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import (
    OFFSET_GAP_MAX,
    SCHEDULE_TOPIC,
    EntryTagCodes,
    has_entry,
)
from roquet.store.consume_queue.topic_tombstones import TopicTombstones
from roquet.store.filesystem.mapped_file import MappedFile
from roquet.store.layout import ENTRY_SIZE, FILLER_SIZE
from roquet.store.reading.reader import RecordReader
from roquet.wire.records.partial_decode import (
    MAGICS,
    PartialRecord,
    decode_partly,
    property_value,
    tag_code,
)
from roquet.wire.records.record import ENTRY, MAGIC_BLANK, RECORD_SIZE_MIN, TOTAL_AND_MAGIC
from roquet.wire.records.speedups import compiled

ROWS_MAX: Final = 8_192
"""Records of one call at most: 4 ms, or 40 without a compiler."""


class EntryGroup(NamedTuple):
    """Consecutive entries of one queue."""

    topic: bytes
    queue_id: int
    first: int
    """Offset of the first entry."""
    entries: bytes
    """Encoded."""


PlainRecords = tuple[int, int, list[tuple[bytes, int, int, bytes]], RecordFacts]
"""Number of records, position behind the last one, the fields of an EntryGroup for each queue in
order of appearance, and the columns that the key index needs."""


@compiled
def plain_records(
    view: memoryview, at: int, limit: int, position: int, count_max: int
) -> PlainRecords:
    """Columns of up to `count_max` records from `at` on, whose position in the log is `position`.

    Ends in front of bytes that are no whole record before `limit`, of a record without a queue
    entry, one of a delay level, one whose tag is not ASCII, and one whose queue offset does not
    follow the one before it here.
    """
    groups: dict[tuple[bytes, int], tuple[int, list[bytes]]] = {}
    facts: RecordFacts = [], [], [], [], []
    positions, sizes, topics, texts, times = facts
    count = 0
    while count < count_max:
        record = decode_partly(view, at, limit, position, True)
        if record is None or not has_entry(record[3]):
            break
        size, queue_id, offset, _, stored_ms, topic, properties = record
        if topic == SCHEDULE_TOPIC or not (property_value(properties, b"TAGS") or b"").isascii():
            break
        first, entries = groups.setdefault((topic, queue_id), (offset, []))
        if offset != first + len(entries):
            break
        entries.append(ENTRY.pack(position, size, tag_code(properties)))
        positions.append(position)
        sizes.append(size)
        topics.append(topic)
        texts.append(properties)
        times.append(stored_ms)
        count, at, position = count + 1, at + size, position + size
    rows = [(*name, first, b"".join(entries)) for name, (first, entries) in groups.items()]
    return count, position, rows, facts


def entry_groups(rows: Sequence[tuple[bytes, int, int, bytes]]) -> list[EntryGroup]:
    """The groups of `plain_records`."""
    return [EntryGroup(*row) for row in rows]


log = logger(__name__)

UNREADABLE_LOGGED_MAX: Final = 100
"""Impossible names of queues that are remembered, so that each is logged once."""


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """Messages that have come into a queue, for those who wait for them."""

    topic: str
    queue_id: int
    offset: int
    """The first one's; the others follow."""
    tag_codes: Sequence[int]


class QueueOffsetMismatch(StoreError):
    """A copied record has another queue offset than the next one of its queue."""

    def __init__(self, queue: ConsumeQueue, offset: int, position: int) -> None:
        super().__init__(
            f"the record at {position} is offset {offset} of {queue.topic}/{queue.queue_id}, whose"
            f" next offset is {queue.end}: this log and its master's have different pasts, or the"
            " topic was deleted there and made anew; delete the topic here, or copy the log again"
        )
        self.topic, self.queue_id = queue.topic, queue.queue_id
        self.expected, self.found = queue.end, offset
        self.position = position


class QueueBuilder:
    """Follows the log behind `CommitLog.raw_from` and writes queue entries."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        deleted: TopicTombstones,
        reader: RecordReader,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._deleted = deleted
        self._reader = reader
        self._code_of = EntryTagCodes(delay_levels_ms)
        self._illegal: set[tuple[bytes, int]] = set()
        self._searched = (-1, -1)
        """Position of bytes that are no record, and the log's end, when one was last searched."""

    def step(self, count_max: int) -> list[Arrival]:
        """Write the entries of up to `count_max` whole records; gives what came into which queue.

        Nothing more is done in front of a record that is incomplete. Raises QueueOffsetMismatch, or
        StoreFull, with everything in front of the record done; the next call tries it again.
        """
        arrivals: list[Arrival] = []
        try:
            while count_max > 0 and (done := self._advance(count_max, arrivals)):
                count_max -= done
        except StoreError:
            if not arrivals:
                raise
        return arrivals

    def _advance(self, count_max: int, arrivals: list[Arrival]) -> int:
        """Pass some records, or a blank; gives their number, 0 when more bytes are needed."""
        commit_log, position = self._log, self._log.dispatched
        file = commit_log.segments.file_at(position)
        if file is None or position >= commit_log.end:
            return 0
        view, limit = file.view(), min(file.size, commit_log.end - file.start)
        count, stop, rows, facts = plain_records(
            view, position - file.start, limit, position, min(count_max, ROWS_MAX)
        )
        groups = entry_groups(rows)
        if not count or not self._put_groups(groups, arrivals):
            done = 0
            while done < max(count, 1) and self._pass_one(file, arrivals):
                done += 1
            return done
        commit_log.unindexed.add_columns(facts)
        commit_log.last = facts[0][-1]
        self._passed(stop)
        return count

    def _passed(self, position: int) -> None:
        commit_log = self._log
        commit_log.raw_from = position if position < commit_log.end else None

    # -- many records ------------------------------------------------------------------------

    def _put_groups(self, groups: Sequence[EntryGroup], arrivals: list[Arrival]) -> bool:
        """Write the entries of several queues; False, with nothing written, if one needs a look."""
        queues = [self._ready_queue(group) for group in groups]
        if None in queues:
            return False
        for group, queue in zip(groups, queues, strict=True):
            assert queue is not None
            queue.put_many(group.entries)
            codes = entry_columns(group.entries)[2]
            arrivals.append(Arrival(queue.topic, queue.queue_id, group.first, codes))
        return True

    def _ready_queue(self, group: EntryGroup) -> ConsumeQueue | None:
        """The group's queue with room for its entries; None if they do not follow its last one."""
        if group.topic in self._deleted.positions:
            return None
        queue = self._queue(group.topic, group.queue_id)
        if queue is None or not _begins(queue, group.first):
            return None
        count = len(group.entries) // ENTRY_SIZE
        if group.first + count > queue.capacity:
            self._reserve(queue, count)
        return queue

    def _reserve(self, queue: ConsumeQueue, count: int) -> None:
        try:
            queue.reserve(count)
        except StoreError:
            if not queue.segments.files:
                queue.end = 0
            raise

    def _queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        try:
            name = topic.decode(), queue_id
            queue = self._queues.loaded.get(name)
            return self._queues.obtain(*name) if queue is None else queue
        except (MessageIllegal, UnicodeDecodeError) as error:
            if (topic, queue_id) not in self._illegal:
                if len(self._illegal) < UNREADABLE_LOGGED_MAX:
                    self._illegal.add((topic, queue_id))
                log.warning("a record of the log gets no queue entry: %s", error)
            return None

    # -- one record, or none -----------------------------------------------------------------

    def _pass_one(self, file: MappedFile, arrivals: list[Arrival]) -> bool:
        """Pass one record, a blank or damaged bytes; False when more bytes are needed."""
        position, end = self._log.dispatched, self._log.end
        at, view = position - file.start, file.view()
        left = file.size - at
        have = min(left, end - position)
        if left < RECORD_SIZE_MIN + BLANK_SIZE:
            return self._pass_bytes(position + left, is_there=0 < have == left)
        if have < BLANK_SIZE:
            return False
        total, magic = TOTAL_AND_MAGIC.unpack_from(view, at)
        if (total, magic) == (left, MAGIC_BLANK):
            return self._pass_bytes(position + left, is_there=have == left)
        if magic in MAGICS and RECORD_SIZE_MIN <= total <= left:
            if total > have:
                return False
            record = decode_partly(view, at, at + have, position, True)
            if record is not None:
                self._put_one(position, record, arrivals)
                self._log.last = position
                return self._pass_bytes(position + total, is_there=True)
        return self._pass_damage(file, position, is_whole=have == left)

    def _pass_bytes(self, position: int, *, is_there: bool) -> bool:
        if is_there:
            self._passed(position)
        return is_there

    def _pass_damage(self, file: MappedFile, position: int, *, is_whole: bool) -> bool:
        """Pass bytes that are no record, as far as it is known that nothing makes them one."""
        end = self._log.end
        if self._searched == (position, end) and not is_whole:
            return False
        self._searched = position, end
        later = self._log.next_record(file, position)
        if later is None and not is_whole:
            return False
        stop = file.start + file.size if later is None else later
        self._passed(stop)
        self._reader.report(RecordRange(position, stop))
        return True

    def _put_one(self, position: int, record: PartialRecord, arrivals: list[Arrival]) -> None:
        size, queue_id, offset, sys_flag, stored_ms, topic, properties = record
        if not has_entry(sys_flag) or position < self._deleted.positions.get(topic, 0):
            return
        queue = self._queue(topic, queue_id)
        if queue is None:
            return
        if offset < queue.end and _is_there(queue, offset, position, size):
            return  # a step that failed half way has written it
        if not _begins(queue, offset):
            self._fill_gap(queue, offset, position)
        if queue.end >= queue.capacity:
            self._reserve(queue, 1)
        code = self._code_of(topic, properties, stored_ms)
        queue.put(position, size, code)
        arrivals.append(Arrival(queue.topic, queue_id, offset, [code]))

    def _fill_gap(self, queue: ConsumeQueue, offset: int, position: int) -> None:
        """Fill the offsets of records that the master's log has lost; no others may be missing."""
        missing, begin = offset - queue.end, 0
        if queue.end > queue.begin:
            begin, size, _ = queue.entry(queue.end - 1)
            begin += 0 if size == FILLER_SIZE else size
        if not 0 < missing <= OFFSET_GAP_MAX or not self._reader.has_damage(begin, position):
            raise QueueOffsetMismatch(queue, offset, position)
        self._reserve(queue, missing)
        queue.put_many(ENTRY.pack(position, FILLER_SIZE, 0) * missing)


def _begins(queue: ConsumeQueue, offset: int) -> bool:
    """Whether this is the queue's next offset; a new queue begins with its first record's."""
    if not queue.end and not queue.segments.files:
        queue.end = max(offset, 0)
    return queue.end == offset


def _is_there(queue: ConsumeQueue, offset: int, position: int, size: int) -> bool:
    return offset >= queue.begin and queue.entry(offset)[:2] == (position, size)
