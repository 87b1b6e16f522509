"""Store: the facade of a data directory: append, read, search, flush, delete, close."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, ParamSpec, Self, TypeVar

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreError, StoreFailed, StoreFull
from roquet.model.printable_text import size_text
from roquet.rules.retention import (
    DiskUsage,
    RetentionPolicy,
    must_refuse_writes,
    required_free_bytes,
)
from roquet.store import retention
from roquet.store.config import StoreConfig
from roquet.store.consume_queue.queue_repair import QueueRepair
from roquet.store.consume_queue.queue_stats import ConsumeQueueStats
from roquet.store.filesystem.files import Files, RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.flush import FlushTask
from roquet.store.key_index.index_check import IndexCheck
from roquet.store.reading.reader import QueryResult, RecordBlock, RecordReader, Slice
from roquet.store.recovery.open_directory import OpenDirectory, open_directory
from roquet.store.recovery.scrub import Scrub
from roquet.store.replication.replicated_log import ReplicatedLog, replicated_log
from roquet.store.retention import TopicRemoval, UnreadMessages
from roquet.store.writer import (
    AppendBatchResult,
    AppendResult,
    Draft,
    RecordWriter,
    StoredBatch,
)
from roquet.wire.plain_send import PlainSend
from roquet.wire.records.plain_batch import BatchBody
from roquet.wire.records.record import BatchColumns

__all__ = [
    "AppendBatchResult",
    "AppendResult",
    "BatchBody",
    "BatchColumns",
    "Draft",
    "FlushTask",
    "QueryResult",
    "RecordBlock",
    "ReplicatedLog",
    "Slice",
    "Store",
    "StoreConfig",
    "StoredBatch",
]

log = logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

KEY_CHECK_BYTES: Final = 2 * 1024 * 1024
"""Bytes: a log up to this size has its keys compared with the index before their first use; the
scrub compares those of a larger one."""

INDEX_AT_CLOSE_COUNT: Final = 50_000
"""Records indexed before closing, in about half a second. The rest follows after the next
opening."""


class Store(RecordReader):
    """One data directory, held by this process alone; one thread appends and reads."""

    def __init__(self, opened: OpenDirectory, config: StoreConfig) -> None:
        repair = QueueRepair(opened.log, opened.queues, opened.tombstones, config.delay_levels_ms)
        super().__init__(opened.log, opened.queues, opened.index, repair)
        self._opened = opened
        self._config = config
        self._files = opened.pool.files
        self._dispatcher = opened.dispatcher
        self._flusher = opened.flusher
        self._flusher.on_failure = self._refuse
        self._writer = RecordWriter(opened.log, opened.queues, self._flusher.fail)
        self._write, self._write_batch = self._writer.append, self._writer.append_batch
        self._on_append: Callable[[], object] | None = None
        self._own_refusal: str | None = None
        self._scrub = Scrub(opened.log, repair, IndexCheck(opened.index, opened.dispatcher))
        self._keys_to_check = 0 < opened.log.end - opened.log.begin <= KEY_CHECK_BYTES
        self.queue_stats = ConsumeQueueStats(opened.log, opened.queues)
        """Ends, sizes and entries of the queues."""
        self._removal = TopicRemoval(
            opened.log, opened.queues, opened.tombstones, self._flusher, config.delay_levels_ms
        )
        self.raw = replicated_log(opened, config, self, self._scrub, lambda: self._refusal)
        """The log as bytes, for replication."""
        self.confirmed_at_open = min(opened.checkpoint.confirmed_position, opened.log.end)
        """Position up to which records were confirmed at the last checkpoint before the start."""
        self.unread: UnreadMessages | None = None
        """Asked before files are deleted; None deletes them without a question."""
        self._refusal: StoreError | None = None
        self._is_closed = False
        for hole in opened.damage:
            self.report(hole)

    @classmethod
    def open(
        cls,
        directory: Path | None,
        config: StoreConfig | None = None,
        *,
        files: Files | None = None,
        now_ms: int,
        pid: int = 0,
    ) -> Self:
        """Lock a directory and recover it; None as directory keeps everything in memory.

        Raises StoreLocked when another process holds it, StoreError if it cannot be used.
        """
        config = config or StoreConfig()
        if directory is None:
            directory, files = Path("/memory"), files or MemoryFiles()
        opened = open_directory(directory, config, files or RealFiles(), pid)
        store = cls(opened, config)
        store.watch_disk()
        log.info(
            "%s is open at %d ms: positions %d to %d, %d topics",
            directory, now_ms, store.begin_position, store.end_position, len(store.topics()),
        )  # fmt: skip
        return store

    # -- write -------------------------------------------------------------------------------

    def append(self, draft: Draft, now_ms: int) -> AppendResult:
        """Store one message.

        Raises StoreFull, StoreError (closed, or the disk failed) or MessageIllegal: then certainly
        nothing was stored.
        """
        if self._refusal is not None:
            raise self._refused()
        return self._write(draft, now_ms)

    def append_plain(
        self, send: PlainSend, sys_flag: int, born_host: bytes, store_host: bytes, tail: bytes,
        now_ms: int,
    ) -> AppendResult | None:  # fmt: skip
        """Store a plain send, whose properties `tail` ends, if there is room in memory for it.

        None, with nothing stored, if there is none, or where `append` would refuse it.
        """
        if self._refusal is not None or self._own_refusal is not None:
            return None
        stored = self._writer.append_plain(send, sys_flag, born_host, store_host, tail, now_ms)
        if stored is not None and self._on_append is not None:
            self._on_append()
        return stored

    def append_batch(self, draft: Draft, parts: BatchColumns, now_ms: int) -> AppendBatchResult:
        """Store messages adjacently in one file: all of them or, raising, none.

        Flag, body, properties and tag code are each message's own; the rest is the draft's.
        """
        if self._refusal is not None:
            raise self._refused()
        return self._write_batch(draft, parts, now_ms)

    def append_body(self, draft: Draft, body: BatchBody, now_ms: int) -> StoredBatch | None:
        """Store the messages of a plain batch; None, with nothing stored, for any other one.

        None as well where `append_batch` would refuse all batches.
        """
        if self._refusal is not None or self._own_refusal is not None:
            return None
        stored = self._writer.append_body(draft, body, now_ms)
        if stored is not None and self._on_append is not None:
            self._on_append()
        return stored

    def on_append(self, callback: Callable[[], object] | None) -> None:
        """Set the callback after each append; None: no longer, and appends pay nothing."""
        self._on_append = callback
        self._choose_writer()

    def refuse_appends(self, reason: str | None) -> None:
        """Raise StoreError with this reason for each append; None: no longer.

        The log belongs to another process, whose bytes `raw` appends.
        """
        self._own_refusal = reason
        self._choose_writer()

    def _choose_writer(self) -> None:
        if (reason := self._own_refusal) is not None:
            self._write = self._write_batch = partial(_refuse_append, reason)
            return
        self._write, self._write_batch = self._writer.append, self._writer.append_batch
        if (callback := self._on_append) is not None:
            self._write = _notifying(self._write, callback)
            self._write_batch = _notifying(self._write_batch, callback)

    def _refused(self) -> StoreError:
        assert self._refusal is not None
        refusal = type(self._refusal)(*self._refusal.args)
        refusal.definite = True  # a failed disk as well: this message was not begun
        return refusal

    # -- read --------------------------------------------------------------------------------

    def set_confirmed(self, position: int | None) -> None:
        """Hide records that end behind a position from reads and searches; None: hide none.

        Checkpoints note the position. Offsets of the next messages do not depend on it.
        """
        self.confirmed = self._flusher.confirmed = position

    @property
    def begin_position(self) -> int:
        """The first position that the log still holds."""
        return self._log.begin

    @property
    def end_position(self) -> int:
        """The position of the next record."""
        return self._log.end

    @property
    def flushed_position(self) -> int:
        """The log in front of this position is durable."""
        return self._flusher.position

    @property
    def indexed_position(self) -> int:
        """The key index covers the log in front of this position."""
        return self._dispatcher.position

    @property
    def mapped_count(self) -> int:
        """Held maps, each of which may cost a descriptor."""
        return len(self._opened.pool)

    def topics(self) -> list[str]:
        """Topics that have a queue."""
        return self._queues.topics()

    def queue_ids(self, topic: str) -> list[int]:
        """The ids of a topic's queues that have files."""
        return self._queues.ids(topic)

    def has_messages(self, topic: str) -> bool:
        """Whether a topic has a queue, and no records of a deleted predecessor in the log."""
        return bool(self.queue_ids(topic)) and not self.deleted_before(topic)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """The store time of a queue's first message; -1 if there is none."""
        return self.store_time_at(topic, queue_id, self.bounds(topic, queue_id)[0])

    def prepare_search(self) -> None:
        """Check the index of a small log before the first search."""
        if self._keys_to_check:
            self._keys_to_check = False
            IndexCheck(self._index, self._dispatcher).run(self._log)

    # -- durability --------------------------------------------------------------------------

    def flush_log(self) -> int:
        """Make the log durable; may run in another thread. Gives the position reached.

        Raises StoreFailed, for good: see `failure`.
        """
        return self._flusher.flush_log()

    @property
    def refusal(self) -> StoreError | None:
        """Why messages are refused now; None while they are accepted."""
        return self._refusal

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing more is accepted or called durable: the disk lost bytes."""
        return self._flusher.failure

    def fail(self, reason: str) -> None:
        """Accept nothing more: the disk lost files that belong to this directory."""
        self._flusher.fail(reason)

    def flush_task(self, now_ms: int) -> FlushTask:
        """The work of `flush_all`: call its `write` in this thread, then itself in any thread."""
        indexed = self._dispatcher.position
        return self._flusher.flush_task(self._queues, self._index, indexed, now_ms)

    def _refuse(self, failure: StoreFailed) -> None:
        self._refusal = failure
        log.critical("%s", failure)

    @property
    def dirty_files(self) -> int:
        """How many files a flush of everything would write, besides the log."""
        return len(self._opened.pool.dirty)

    def release_task(self) -> Callable[[], None]:
        """Work that releases written pages from memory; may run in another thread."""
        return self._flusher.release_task()

    def flush_all(self, now_ms: int) -> None:
        """Make log, queues and index durable, and note that in the checkpoint."""
        work = self.flush_task(now_ms)
        work.write()
        work()

    def dispatch(self, count_max: int = 1000) -> int:
        """Index up to `count_max` records of the log; gives how many there were."""
        return self._dispatcher.step(count_max)

    def on_unindexed(self, callback: Callable[[int, Exception], object]) -> None:
        """Set the callback for records that cannot be indexed, which are skipped."""
        self._dispatcher.on_failure = callback

    def reindex(self, position: int) -> None:
        """Index the record at a position again."""
        self._dispatcher.reindex(position)

    def scrub(self, budget_bytes: int) -> bool:
        """Check about `budget_bytes` of the older log for damage; True if more is left."""
        for hole in self._scrub.step(budget_bytes):
            self.report(hole)
        return not self._scrub.is_over

    def skip_scrub(self, budget_bytes: int) -> bool:
        """Pass over bytes that cannot be checked; True if more is left to check."""
        self._scrub.skip(budget_bytes)
        return not self._scrub.is_over

    # -- upkeep ------------------------------------------------------------------------------

    @property
    def disk(self) -> DiskUsage:
        """Size and free space of the directory's disk."""
        return self._files.usage(self._opened.directory)

    def watch_disk(self, usage: DiskUsage | None = None) -> bool:
        """Refuse writes while the disk is almost full; True if they are refused."""
        usage = usage or self._files.usage(self._opened.directory)
        is_full = must_refuse_writes(usage, self._config.retention)
        if is_full and self._refusal is None:
            policy = self._config.retention
            wanted = required_free_bytes(usage, policy)
            setting = "refuse_ratio" if policy.free_min is None else "free_min"
            refusal = StoreFull(
                f"{self._opened.directory} is on a disk with {size_text(usage.free)} of"
                f" {size_text(usage.total)} free, and {size_text(wanted)} are wanted ({setting}):"
                " writes are refused until there is room"
            )
            self._refusal = self.failure or refusal  # a flush in a thread may have failed just now
            log.error("%s", self._refusal)
        elif not is_full and isinstance(self._refusal, StoreFull):
            self._refusal = self.failure
            # At the level of the refusal, so that nobody reads of one alone.
            log.error("there is room on the disk again: writes are accepted")
        return is_full

    def expire(
        self, now_ms: int, usage: DiskUsage | None = None, *, at_once: bool = False
    ) -> list[str]:
        """Delete what retention lets expire; gives the paths of deleted files.

        With `at_once`, old files are deleted at any hour. Nothing is deleted once the disk has
        failed: the checkpoint stays where it is, and the next start reads the log from there.
        """
        if self.failure is not None:
            return []
        usage = usage or self._files.usage(self._opened.directory)
        policy = self._config.retention
        if at_once:
            policy = msgspec.structs.replace(policy, delete_hour=retention.local_hour(now_ms))
        expired = retention.expired_log(
            self._log, self._flusher, now_ms, usage, policy, self.unread
        )
        if expired is None:
            self.watch_disk(usage)
            return []
        if self.unread is not None:
            messages = retention.messages_before(expired.begin, self._log, self._queues)
            self.unread.deleting(messages, expired.begin, usage if expired.is_forced else None)
        deleted = retention.expire(
            expired.begin, self._log, self._queues, self._index, self._flusher
        )
        self._opened.tombstones.forget_before(self._log.begin)
        self.watch_disk()
        return deleted

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic; its records stay in the log until they expire.

        A recovery that finds these records gives them no entries again.
        """
        self._removal.delete_topic(topic)

    def delete_topic_before(self, topic: str, position: int) -> None:
        """Delete the part of a topic in front of a position, as the master of a replica did.

        Records of the topic that come there later get no entries. Records behind it belong to a
        topic made anew, and are read again for their entries.
        """
        self._removal.delete_topic_before(topic, position)

    @property
    def deleted_topics(self) -> Mapping[str, int]:
        """Topics that were deleted, and the position in front of which their records are."""
        positions = self._opened.tombstones.positions
        return {topic.decode(): position for topic, position in positions.items()}

    def clear_removed(self) -> None:
        """Delete the files of deleted topics' queues; may run in another thread."""
        self._queues.clear_removed()

    def deleted_before(self, topic: str) -> int:
        """Records of a topic in front of this position were deleted with it; 0 for none."""
        return self._opened.tombstones.position_of(topic)

    def expired_queues(self, is_gone: Callable[[str, int], bool]) -> list[tuple[str, int]]:
        """Queues without records, which `is_gone` says get no more.

        Other empty queues keep the number of their next message, else groups that were further on
        would have to begin again.
        """
        return retention.expired_queues(self._queues, self._log.begin, is_gone)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Delete an expired queue, of which no progress is kept."""
        self._removal.remove_queue(topic, queue_id)

    def trim_queue(self, topic: str, queue_id: int) -> None:
        """Delete a queue's files whose records are all deleted."""
        self._queues.drop_before(topic, queue_id, self._log.begin)

    @property
    def retention(self) -> RetentionPolicy:
        """The retention policy in use."""
        return self._config.retention

    def set_retention(self, policy: RetentionPolicy) -> None:
        """Replace the retention policy."""
        self._config = msgspec.structs.replace(self._config, retention=policy)

    def close(self, now_ms: int) -> None:
        """Make everything durable and release the directory; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._flusher.failure is None:
                self._index_last()
                self.flush_all(now_ms)
                self._opened.mark_closed()
        finally:
            self._refusal = StoreError(f"{self._opened.directory} is closed")
            self._opened.release()

    def _index_last(self) -> None:
        try:
            for _ in range(0, INDEX_AT_CLOSE_COUNT, 1000):
                self.dispatch(1000)
        except StoreError as error:
            log.warning("the key index goes on after the next start: %s", error)


def _refuse_append(reason: str, *_: object) -> NoReturn:
    raise StoreError(reason)


def _notifying(write: Callable[P, R], callback: Callable[[], object]) -> Callable[P, R]:
    """A writer that calls back after each append."""

    def notify(*arguments: P.args, **keywords: P.kwargs) -> R:
        result = write(*arguments, **keywords)
        callback()
        return result

    return notify
