"""Queue rebuild: consume queue entries rebuilt from the log."""

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import MessageIllegal
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.rules.recovery import RecordRange
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_ends import QueueEnd, QueueName
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.layout import FILLER_SIZE
from roquet.wire.records.partial_decode import PartialRecord, property_value, tag_code

log = logger(__name__)

SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"

OFFSET_GAP_MAX: Final = 1_000_000
"""Offsets that may be missing between two messages of a queue; more is a damaged number."""

LEVEL_DIGITS_MAX: Final = 10
"""Digits of a delay level; a longer property is no level."""

CODES_MAX: Final = 1024
"""Cached tag hashes: most topics have a handful of tags."""


class EntryTagCodes:
    """Computes the tag code of an entry: the tag's hash, or a delayed message's delivery time."""

    def __init__(self, delay_levels_ms: Sequence[int]) -> None:
        self._delay_levels_ms = delay_levels_ms
        self._codes: dict[bytes, int] = {}

    def __call__(self, topic: bytes, properties: bytes, stored_ms: int) -> int:
        """The tag code of a record's entry."""
        if topic == SCHEDULE_TOPIC and (level := property_value(properties, b"DELAY")):
            is_number = level.isdigit() and len(level) <= LEVEL_DIGITS_MAX
            number = min(int(level), len(self._delay_levels_ms)) if is_number else 0
            if number > 0:
                return stored_ms + self._delay_levels_ms[number - 1]
        tag = property_value(properties, b"TAGS")
        if tag is None:
            return 0
        code = self._codes.get(tag)
        if code is None:
            if len(self._codes) >= CODES_MAX:
                self._codes.clear()
            code = self._codes[tag] = tag_code(properties)
        return code


class QueueRebuilder:
    """Writes the queue entries of records, in the order of the log."""

    def __init__(
        self,
        queues: ConsumeQueues,
        delay_levels_ms: Sequence[int],
        *,
        is_whole_log: bool = False,
        deleted: Mapping[bytes, int] = MappingProxyType({}),
        only: Container[QueueName] | None = None,
    ) -> None:
        self._queues = queues
        self._code_of = EntryTagCodes(delay_levels_ms)
        self._is_whole_log = is_whole_log
        self._deleted = deleted
        self._only = only
        self.lacking: set[QueueName] = set()
        """Queues that lack entries of records in front of the scan: they need a scan of the whole
        log."""
        self._cursors: dict[tuple[bytes, int], _Cursor | None] = {}
        self.cut = 0
        """Dropped entries: they led behind the log's end."""
        self.last = -1
        """Where the last record of the scan begins; -1 for none."""

    def put(self, position: int, found: PartialRecord) -> None:
        """Write a record's entry, unless its queue lacks entries from before this scan."""
        size, queue_id, offset, sys_flag, stored_ms, topic, properties = found
        self.last = position
        if sys_flag & _WITHOUT_ENTRY and not has_entry(sys_flag):
            return
        if self._deleted and position < self._deleted.get(topic, 0):
            return
        key = (topic, queue_id)
        try:
            cursor = self._cursors[key]
        except KeyError:
            cursor = self._cursors[key] = self._begin(topic, queue_id, offset)
        if cursor is None or offset < cursor.next or offset > cursor.next + OFFSET_GAP_MAX:
            return
        if offset > cursor.next:
            cursor.jump(offset, position)
        cursor.put(position, size, self._code_of(topic, properties, stored_ms))

    def finish(self, holes: Sequence[RecordRange]) -> None:
        """Truncate the queues that had records behind their last one.

        Entries that lead into a hole stay: their offsets were given to messages.
        """
        for cursor in self._cursors.values():
            if cursor is not None:
                self._truncate(cursor.queue, _behind_holes(cursor.queue, cursor.next, holes))
                cursor.queue.rewrite(cursor.first, cursor.next)

    def truncate_others(self, start: int, holes: Sequence[RecordRange]) -> None:
        """Truncate all other queues at the scan's start.

        The scan found no record of theirs, so an entry behind its start is left from a lost end of
        the log, even if its position has been written again since.
        """
        for topic, queue_id in self._queues.names():
            if (topic.encode(), queue_id) not in self._cursors:
                queue = self._queues.get(topic, queue_id)
                assert queue is not None
                self._truncate(queue, _behind_holes(queue, queue.offset_of(start), holes))
                self._queues.unload(queue)

    def _truncate(self, queue: ConsumeQueue, end: int) -> None:
        self.cut += max(queue.end - end, 0)
        queue.truncate(end)

    def restore_ends(self, known: Mapping[QueueName, QueueEnd]) -> None:
        """Extend rebuilt queues to their known ends, although the log lost their messages.

        Retention or damage may have removed those messages: their offsets are not given to others.
        """
        for name, end in known.items():
            queue = self._queues.obtain(*name)
            if queue.end >= end.end:
                continue
            if not queue.segments.files:
                queue.end = end.end - 1
            _Cursor(queue, queue.end).jump(end.end, max(end.last, 0))

    def _begin(self, topic: bytes, queue_id: int, offset: int) -> "_Cursor | None":
        try:
            name = topic.decode(), queue_id
            if self._only is not None and name not in self._only:
                return None
            queue = self._queues.obtain(*name)
        except (MessageIllegal, UnicodeDecodeError) as error:
            log.warning("a record of the log gets no queue entry: %s", error)
            return None
        if not queue.segments.files and self._is_whole_log:
            queue.end = offset
            return _Cursor(queue, offset)
        following = min(max(offset, queue.begin), queue.end)
        if offset > following and not self._is_whole_log:
            self.lacking.add(name)
            return None
        return _Cursor(queue, following)


_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)
_WITHOUT_ENTRY: Final = TRANSACTION_MASK | _INNER_BATCH
_OPEN: Final = (int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK))


def has_entry(sys_flag: int) -> bool:
    """Whether a record has a queue entry: not if prepared, rolled back, or a batch."""
    return sys_flag & TRANSACTION_MASK not in _OPEN and not sys_flag & _INNER_BATCH


def _behind_holes(queue: ConsumeQueue, offset: int, holes: Sequence[RecordRange]) -> int:
    """The first offset, from `offset` on, whose entry does not lead into a hole."""
    while offset < queue.end:
        position, _, _ = queue.entry(offset)
        if not any(hole.start <= position < hole.stop for hole in holes):
            break
        offset += 1
    return offset


class _Cursor:
    """The scan's place in one queue."""

    __slots__ = ("_keeps_codes", "first", "next", "queue")

    def __init__(self, queue: ConsumeQueue, following: int) -> None:
        self.queue = queue
        self.first = self.next = following
        queue.checked_from = min(queue.checked_from, following)
        # The stored delivery time of a delayed message is better than a computed one.
        self._keeps_codes = queue.name == SCHEDULE_TOPIC

    def put(self, position: int, size: int, code: int) -> None:
        """Write the entry of the next offset, unless it is there already."""
        queue, offset = self.queue, self.next
        self.next = offset + 1
        if offset < queue.end:
            entry = queue.entry(offset)
            is_same = entry[0] == position and entry[1] == size
            if not is_same or (entry[2] != code and not (self._keeps_codes and entry[2])):
                queue.overwrite(offset, position, size, code)
            return
        if offset >= queue.capacity:
            queue.reserve()
        queue.put(position, size, code)

    def jump(self, offset: int, position: int) -> None:
        """Pass offsets whose records are lost: missing entries become fillers."""
        while self.next < offset:
            if self.next >= self.queue.end or self.queue.entry(self.next)[1] == 0:
                self.put(position, FILLER_SIZE, 0)
            else:
                self.next += 1
