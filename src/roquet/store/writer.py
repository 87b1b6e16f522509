"""Writer: a message becomes a record and a queue entry."""

from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.model.errors import MessageIllegal
from roquet.store.commitlog import CommitLog
from roquet.store.queues import ConsumeQueue, ConsumeQueues
from roquet.store.rebuild import has_entry
from roquet.wire.record import pack

_NOT_PLAIN: Final = 4 | 8 | 128
"""Flags of prepared, committed, rolled back and inner batch records: not all stand in a queue."""


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message about to be stored. The index reads its keys from the properties, later."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    """As wire.record.encode_properties makes them; never ending in a zero byte."""
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


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a message went. It is durable when the log is flushed up to `position + size`."""

    queue_offset: int
    position: int
    size: int


class Writer:
    """The one writer of log and queues. Room is made first, so what follows cannot fail."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues) -> None:
        self._log = commit_log
        self._queues = queues
        self._loaded = queues.loaded

    def append(self, draft: Draft, now_ms: int) -> Appended:
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
        queue.put(position, size, draft.tag_code)
        commit_log.last, commit_log.end = position, position + size
        return Appended(offset, position, size)

    def append_batch(self, drafts: Sequence[Draft], now_ms: int) -> list[Appended]:
        """Store messages one behind the other in one file: all of them or, raising, none."""
        if not drafts:
            return []
        queues, offsets = self._reserve(drafts)
        records = self._pack_all(queues, offsets, drafts, now_ms)
        size, position = sum(map(len, records)), self._log.end
        if position + size > self._log.room and self._log.make_room(size) != position:
            position = self._log.end
            records = self._pack_all(queues, offsets, drafts, now_ms)
        self._log.write(position, b"".join(records))
        appended = []
        for queue, offset, draft, record in zip(queues, offsets, drafts, records, strict=True):
            if offset >= queue.room:
                queue.make_room()  # has its blocks already: only the file changes
            size = len(record)
            queue.put(position, size, draft.tag_code)
            appended.append(Appended(offset, position, size))
            position += size
        self._log.last, self._log.end = appended[-1].position, position
        return appended

    def _reserve(self, drafts: Sequence[Draft]) -> tuple[list[ConsumeQueue], list[int]]:
        """Each draft's queue and offset, with room for the entries."""
        loaded, obtain = self._loaded, self._queues.obtain
        queues, offsets, following = list[ConsumeQueue](), list[int](), dict[ConsumeQueue, int]()
        for draft in drafts:
            if draft.sys_flag & _NOT_PLAIN and not has_entry(draft.sys_flag):
                raise MessageIllegal("a message that stands in no queue cannot be in a batch")
            queue = loaded.get((draft.topic, draft.queue_id))
            if queue is None:
                queue = obtain(draft.topic, draft.queue_id)
            offset = following.get(queue, queue.end)
            following[queue] = offset + 1
            queues.append(queue)
            offsets.append(offset)
        for queue, stop in following.items():
            if stop > queue.room:
                queue.make_room(stop - queue.end)
        return queues, offsets

    def _pack_all(
        self, queues: list[ConsumeQueue], offsets: list[int], drafts: Sequence[Draft], now_ms: int
    ) -> list[bytes]:
        position, records = self._log.end, list[bytes]()
        for queue, offset, draft in zip(queues, offsets, drafts, strict=True):
            record = _pack(queue, draft, offset, position, now_ms)
            records.append(record)
            position += len(record)
        return records

    def _append_apart(self, queue: ConsumeQueue, draft: Draft, now_ms: int) -> Appended:
        """A record that stands in no queue: it has offset 0."""
        record = _pack(queue, draft, 0, self._log.end, now_ms)
        position = self._log.make_room(len(record))
        self._log.write(position, _pack(queue, draft, 0, position, now_ms))
        self._log.last, self._log.end = position, position + len(record)
        return Appended(0, position, len(record))


def _pack(queue: ConsumeQueue, draft: Draft, offset: int, position: int, now_ms: int) -> bytes:
    properties = draft.properties
    if properties and properties[-1] == 0:
        # A torn write leaves zeros there: after a crash this record would not be believed.
        raise MessageIllegal("properties end in a zero byte")
    return pack(
        draft.queue_id, draft.flag, offset, position, draft.sys_flag, draft.born_ms,
        draft.born_host, now_ms, draft.store_host, draft.reconsume_times, draft.prepared_position,
        draft.body, queue.name, properties,
    )  # fmt: skip
