"""Writer: a message becomes a record and a queue entry."""

from collections.abc import Callable
from typing import Final

import msgspec

from roquet.model.errors import MessageIllegal, StoreError, StoreFailed
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queues import ConsumeQueue, ConsumeQueues
from roquet.store.consume_queue.rebuild import has_entry
from roquet.wire.records.record import BatchColumns, pack, pack_batch

_NOT_PLAIN: Final = 4 | 8 | 128
"""Flags of prepared, committed, rolled back and inner batch records: not all stand in a queue."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A message about to be stored. The index reads its keys from the properties, later."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    """As wire.records.record.encode_properties makes them; never ending in a zero byte."""
    tag_code: int = 0
    """What the queue's entry says: the tag's hash, or when a delayed message is due."""
    flag: int = 0
    sys_flag: int = 0
    """Bits 16 and 32 agree with the sizes of the hosts: 8 bytes, or 20 for IPv6."""
    born_ms: int = 0
    born_host: bytes = bytes(8)
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_position: int = 0


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went. It is durable when the log is flushed up to `position + size`."""

    queue_offset: int
    position: int
    size: int


class AppendBatchResult(msgspec.Struct, frozen=True, gc=False):
    """Where the messages of a batch went. They are durable when the log is flushed up to `end`."""

    queue_offset: int
    """Of the first; the others follow."""
    positions: list[int]
    end: int


class RecordWriter:
    """The one writer of log and queues.

    Room is made first, so that almost nothing of what follows can fail; what does is taken back.
    """

    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueues, fail: Callable[[str], StoreFailed]
    ) -> None:
        self._fail = fail
        self._log = commit_log
        self._queues = queues
        self._loaded = queues.loaded

    def append(self, draft: Draft, now_ms: int) -> AppendResult:
        """Store one message. Raises StoreFull and MessageIllegal: then nothing was stored."""
        queue = self._loaded.get((draft.topic, draft.queue_id))
        if queue is None:
            queue = self._queues.obtain(draft.topic, draft.queue_id)
        if draft.sys_flag & _NOT_PLAIN and not has_entry(draft.sys_flag):
            return self._append_apart(queue, draft, now_ms)
        offset = queue.end
        if offset >= queue.room:
            queue.make_room()
        commit_log = self._log
        position = commit_log.end
        record = _pack(queue, draft, offset, position, now_ms)
        size = len(record)
        if position + size > commit_log.room and commit_log.make_room(size) != position:
            position = commit_log.end
            record = _pack(queue, draft, offset, position, now_ms)
        commit_log.write(position, record)
        try:
            queue.put(position, size, draft.tag_code)
        except StoreError as error:
            self._take_back(queue, offset, position, size, error)
            raise
        commit_log.fresh.add(position, size, queue.name, draft.properties, now_ms)
        commit_log.last, commit_log.end = position, position + size
        return AppendResult(offset, position, size)

    def append_batch(self, draft: Draft, parts: BatchColumns, now_ms: int) -> AppendBatchResult:
        """Store messages one behind the other in one file: all of them or, raising, none.

        They are as the draft says, but for flag, body, properties and tag code.
        """
        if draft.sys_flag & _NOT_PLAIN and not has_entry(draft.sys_flag):
            raise MessageIllegal("a message that stands in no queue cannot be in a batch")
        queue = self._loaded.get((draft.topic, draft.queue_id))
        if queue is None:
            queue = self._queues.obtain(draft.topic, draft.queue_id)
        offset, commit_log = queue.end, self._log
        position = commit_log.end
        if not parts:
            return AppendBatchResult(offset, [], position)
        if offset + len(parts) > queue.room:
            queue.make_room(len(parts))
        records, entries = _pack_run(queue, draft, parts, position, now_ms)
        size = len(records)
        if position + size > commit_log.room and commit_log.make_room(size) != position:
            position = commit_log.end
            records, entries = _pack_run(queue, draft, parts, position, now_ms)
        commit_log.write(position, records)
        try:
            queue.put_many(entries)
        except StoreError as error:
            self._take_back(queue, offset, position, size, error)
            raise
        positions = entries[::3]
        commit_log.fresh.add_run(positions, entries[1::3], queue.name, parts.properties, now_ms)
        commit_log.last, commit_log.end = positions[-1], position + size
        return AppendBatchResult(offset, positions, position + size)

    def _take_back(
        self, queue: ConsumeQueue, offset: int, position: int, size: int, error: StoreError
    ) -> None:
        """Nothing of what was begun stays: a recovery must not find what was refused.

        Raises StoreFailed when that cannot be, and then whether it is stored is unknown.
        """
        try:
            queue.take_back(offset)
            self._log.write(position, bytes(size))
        except StoreError:
            raise self._fail(f"{queue.topic}/{queue.queue_id}: {error}") from error

    def _append_apart(self, queue: ConsumeQueue, draft: Draft, now_ms: int) -> AppendResult:
        """A record that stands in no queue: it has offset 0."""
        record = _pack(queue, draft, 0, self._log.end, now_ms)
        position = self._log.make_room(len(record))
        self._log.write(position, _pack(queue, draft, 0, position, now_ms))
        self._log.last, self._log.end = position, position + len(record)
        return AppendResult(0, position, len(record))


def _pack(queue: ConsumeQueue, draft: Draft, offset: int, position: int, now_ms: int) -> bytes:
    properties = draft.properties
    if properties and properties[-1] == 0:
        raise _torn()
    return pack(
        draft.queue_id, draft.flag, offset, position, draft.sys_flag, draft.born_ms,
        draft.born_host, now_ms, draft.store_host, draft.reconsume_times, draft.prepared_position,
        draft.body, queue.name, properties,
    )  # fmt: skip


def _pack_run(
    queue: ConsumeQueue, draft: Draft, parts: BatchColumns, position: int, now_ms: int
) -> tuple[bytes, list[int]]:
    if b"\0" in {text[-1:] for text in parts.properties}:
        raise _torn()
    return pack_batch(
        draft.queue_id, queue.end, position, draft.sys_flag, draft.born_ms, draft.born_host,
        now_ms, draft.store_host, draft.reconsume_times, draft.prepared_position, queue.name,
        parts,
    )  # fmt: skip


def _torn() -> MessageIllegal:
    """A torn write leaves zeros there: after a crash such a record would not be believed."""
    return MessageIllegal("properties end in a zero byte")
