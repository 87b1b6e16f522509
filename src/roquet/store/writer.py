"""RecordWriter: appends records to the log and entries to their queues."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roquet.model.errors import MessageIllegal, StoreError, StoreFailed
from roquet.store.commit_log.log import WRITE_PAST_MAP_MIN, CommitLog
from roquet.store.commit_log.unindexed_buffer import HashedRun
from roquet.store.consume_queue.entries import entry_columns
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import has_entry
from roquet.store.layout import ENTRY_SIZE
from roquet.wire.plain_send import PlainSend, put_send
from roquet.wire.records.plain_batch import BatchBody, PackedBatch, pack_items
from roquet.wire.records.record import (
    ENDS_IN_ZERO,
    ENTRY,
    BatchColumns,
    SplitRecord,
    pack,
    pack_batch,
    pack_split,
)

_MAYBE_WITHOUT_ENTRY: Final = 4 | 8 | 128
"""Flags of prepared, committed, rolled back and inner batch records: not all of them have a queue
entry."""

PUT_MAX: Final = WRITE_PAST_MAP_MIN - 1
"""Bytes of a record that is written straight into the log's map."""

SPLIT_BODY_MIN: Final = 256 * 1024
"""Bytes of a body from which two more system calls cost less than a copy of it."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A message about to be stored. The key index reads its keys from the properties, later."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    """Encoded by wire.records.record.encode_properties; never ending in a zero byte."""
    tag_code: int = 0
    """The tag code of the queue entry: the tag's hash, or a delayed message's delivery time."""
    flag: int = 0
    sys_flag: int = 0
    """Bits 16 and 32 agree with the sizes of the hosts: 8 bytes, or 20 for IPv6."""
    born_ms: int = 0
    born_host: bytes = bytes(8)
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_position: int = 0


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored. It is durable once the log is flushed up to `position + size`."""

    queue_offset: int
    position: int
    size: int


class AppendBatchResult(msgspec.Struct, frozen=True, gc=False):
    """Where a batch was stored. It is durable once the log is flushed up to `end`."""

    queue_offset: int
    """The offset of the first message; the others follow."""
    entries: bytes
    """The queue entries of the messages."""
    end: int
    size: int
    """Bytes of the records."""

    @property
    def positions(self) -> Sequence[int]:
        """Where each message was stored."""
        return entry_columns(self.entries)[0]


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """Where a batch was stored, and what its properties told."""

    appended: AppendBatchResult
    tag_codes: Sequence[int]
    waits: bool
    """Whether the sender of the first message waits until it is durable."""


class RecordWriter:
    """The only writer of log and queues.

    Space is reserved first, so that almost nothing of what follows can fail; if it does, it is
    undone.
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
        if draft.sys_flag & _MAYBE_WITHOUT_ENTRY and not has_entry(draft.sys_flag):
            return self._append_without_entry(queue, draft, now_ms)
        offset = queue.end
        if offset >= queue.capacity:
            queue.reserve()
        commit_log = self._log
        position = commit_log.end
        record = _pack(queue, draft, offset, position, now_ms)
        size = len(record)
        if position + size > commit_log.capacity and commit_log.reserve(size) != position:
            position = commit_log.end
            record = _pack(queue, draft, offset, position, now_ms)
        commit_log.write(position, record)
        try:
            queue.put(position, size, draft.tag_code)
        except StoreError as error:
            self._undo(queue, offset, position, size, error)
            raise
        commit_log.unindexed.add(position, size, queue.name, draft.properties, now_ms)
        commit_log.last, commit_log.end = position, position + size
        return AppendResult(offset, position, size)

    def append_plain(
        self, send: PlainSend, sys_flag: int, born_host: bytes, store_host: bytes, tail: bytes,
        now_ms: int,
    ) -> AppendResult | None:  # fmt: skip
        """Store a plain send, whose properties `tail` ends; None, with nothing done, for another.

        It is stored when its record, below the size of a write without the map, and its entry have
        their places in memory: then nothing can fail.
        """
        queue, commit_log = self._loaded.get((send.topic, send.queue_id)), self._log
        if queue is None or queue.tail is None or commit_log.tail is None:
            return None
        offset, position = queue.end, commit_log.end
        log_file, queue_file = commit_log.tail, queue.tail
        records, entries = log_file.mapped_view, queue_file.mapped_view
        room = commit_log.capacity - position
        room = room if room < PUT_MAX else PUT_MAX  # noqa: FURB136 - a call costs
        if offset >= queue.capacity or records is None or entries is None:
            return None
        size = put_send(
            send, records, position - log_file.start, room, entries,
            offset * ENTRY_SIZE - queue_file.start, offset, position, sys_flag, born_host, now_ms,
            store_host, queue.name, tail,
        )  # fmt: skip
        if not size:
            return None
        log_file.is_used = queue_file.is_used = True
        if not queue_file.is_dirty:
            queue_file.mark_dirty()
        queue.end = offset + 1
        commit_log.unindexed.add(position, size, queue.name, send.properties, now_ms)
        commit_log.last, commit_log.end = position, position + size
        return AppendResult(offset, position, size)

    def append_batch(self, draft: Draft, parts: BatchColumns, now_ms: int) -> AppendBatchResult:
        """Store messages adjacently in one file: all of them or, raising, none.

        Flag, body, properties and tag code are each message's own; the rest is the draft's.
        """
        if draft.sys_flag & _MAYBE_WITHOUT_ENTRY and not has_entry(draft.sys_flag):
            raise MessageIllegal("a message without a queue entry cannot be in a batch")
        queue = self._loaded.get((draft.topic, draft.queue_id))
        if queue is None:
            queue = self._queues.obtain(draft.topic, draft.queue_id)
        offset, commit_log = queue.end, self._log
        position = commit_log.end
        if not parts:
            return AppendBatchResult(offset, b"", position, 0)
        if offset + len(parts) > queue.capacity:
            queue.reserve(len(parts))
        records, entries = _pack_run(queue, draft, parts, position, now_ms)
        size = len(records)
        if position + size > commit_log.capacity and commit_log.reserve(size) != position:
            position = commit_log.end
            records, entries = _pack_run(queue, draft, parts, position, now_ms)
        self._write_run(queue, position, records, entries)
        positions, sizes, _ = entry_columns(entries)
        commit_log.unindexed.add_run(positions, sizes, queue.name, parts.properties, now_ms)
        return AppendBatchResult(offset, entries, position + size, size)

    def append_body(self, draft: Draft, body: BatchBody, now_ms: int) -> StoredBatch | None:
        """Store the messages of a plain batch as `append_batch` does.

        None, with nothing stored, for any other batch, and for the first one of a queue.
        """
        if draft.sys_flag & _MAYBE_WITHOUT_ENTRY or draft.prepared_position:
            return None
        queue, commit_log = self._loaded.get((draft.topic, draft.queue_id)), self._log
        if queue is None:
            return None
        offset, position = queue.end, commit_log.end
        packed = _pack_body(queue, draft, body, position, now_ms)
        if packed is None:
            return None
        count, size = len(packed.tag_codes), len(packed.records)
        if offset + count > queue.capacity:
            queue.reserve(count)
        if position + size > commit_log.capacity and commit_log.reserve(size) != position:
            position = commit_log.end
            packed = _pack_body(queue, draft, body, position, now_ms)
            assert packed is not None
        self._write_run(queue, position, packed.records, packed.entries)
        commit_log.unindexed.add_hashed(
            HashedRun(position, size, count, packed.key_hashes, packed.key_positions, now_ms)
        )
        appended = AppendBatchResult(offset, packed.entries, position + size, size)
        return StoredBatch(appended, packed.tag_codes, packed.waits)

    def _write_run(
        self, queue: ConsumeQueue, position: int, records: bytes, entries: bytes
    ) -> None:
        """Write adjacent records and their entries, for which there is room."""
        offset, commit_log = queue.end, self._log
        commit_log.write(position, records)
        try:
            queue.put_many(entries)
        except StoreError as error:
            self._undo(queue, offset, position, len(records), error)
            raise
        commit_log.last = ENTRY.unpack_from(entries, len(entries) - ENTRY.size)[0]
        commit_log.end = position + len(records)

    def _undo(
        self, queue: ConsumeQueue, offset: int, position: int, size: int, error: StoreError
    ) -> None:
        """Remove a begun append: a recovery must not find messages that were refused.

        Raises StoreFailed if that fails: then it is unknown whether the message is stored.
        """
        try:
            queue.undo_append(offset)
            self._log.write(position, bytes(size))
        except StoreError:
            raise self._fail(f"{queue.topic}/{queue.queue_id}: {error}") from error

    def _append_without_entry(self, queue: ConsumeQueue, draft: Draft, now_ms: int) -> AppendResult:
        record = _pack(queue, draft, 0, self._log.end, now_ms)
        position = self._log.reserve(len(record))
        self._log.write(position, _pack(queue, draft, 0, position, now_ms))
        self._log.last, self._log.end = position, position + len(record)
        return AppendResult(0, position, len(record))


def _pack(
    queue: ConsumeQueue, draft: Draft, offset: int, position: int, now_ms: int
) -> bytes | SplitRecord:
    if draft.properties and draft.properties[-1] == 0:  # recovery takes that for a torn write
        raise MessageIllegal(ENDS_IN_ZERO)
    form = pack if len(draft.body) < SPLIT_BODY_MIN else pack_split
    return form(
        draft.queue_id, draft.flag, offset, position, draft.sys_flag, draft.born_ms,
        draft.born_host, now_ms, draft.store_host, draft.reconsume_times, draft.prepared_position,
        draft.body, queue.name, draft.properties,
    )  # fmt: skip


def _pack_run(
    queue: ConsumeQueue, draft: Draft, parts: BatchColumns, position: int, now_ms: int
) -> tuple[bytes, bytes]:
    return pack_batch(
        draft.queue_id, queue.end, position, draft.sys_flag, draft.born_ms, draft.born_host,
        now_ms, draft.store_host, draft.reconsume_times, draft.prepared_position, queue.name,
        parts,
    )  # fmt: skip


def _pack_body(
    queue: ConsumeQueue, draft: Draft, body: BatchBody, position: int, now_ms: int
) -> PackedBatch | None:
    return pack_items(
        draft.queue_id, queue.end, position, draft.sys_flag, draft.born_ms, draft.born_host,
        now_ms, draft.store_host, draft.reconsume_times, queue.name, body.items, body.shared,
        body.added,
    )  # fmt: skip
