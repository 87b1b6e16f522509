"""Retention: deletes expired log files, then the queue and index files that lead only there.

Never behind the last checkpoint, from which a start after a crash reads the log. The log's new
begin is noted first, so that files deleted by others can be told from expired ones. Queues of
deleted topics go as well; a tombstone keeps recovery from making them again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from roquet.log_records import logger
from roquet.model.errors import StoreError, StoreFailed
from roquet.rules.recovery import LostMessages
from roquet.rules.retention import DiskUsage, FileAge, RetentionPolicy, deletable_files, is_pressing
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import QueueRebuilder
from roquet.store.consume_queue.topic_tombstones import TopicTombstones
from roquet.store.flush import Flusher
from roquet.store.key_index.index import KeyIndex

log = logger(__name__)


class UnreadMessages(Protocol):
    """Knows which messages nobody has read, as the store asks before it deletes files."""

    def first_position(self, file_end: int, usage: DiskUsage) -> int | None:
        """Position of the first message that somebody may still read; None without one.

        If that is in front of `file_end`, it keeps a file that a disk so full would delete.
        """

    def deleting(
        self, messages: Sequence[LostMessages], begin: int, forced_by: DiskUsage | None
    ) -> None:
        """Count unread ones of these messages, which lie in front of the log's new begin.

        Some of them are younger than retention if they are deleted because of a full disk.
        """


class ExpiredLog(NamedTuple):
    """The part of the log that may be deleted."""

    begin: int
    """Position at which the log begins then."""
    is_forced: bool
    """Whether a full disk asks for it, since a file is younger than retention."""


def expired_log(
    commit_log: CommitLog,
    flusher: Flusher,
    now_ms: int,
    usage: DiskUsage,
    policy: RetentionPolicy,
    unread: UnreadMessages | None,
) -> ExpiredLog | None:
    """The expired part of the log; None without one."""
    ages = _ages(commit_log, now_ms)
    read_to = None
    is_asked = unread is not None and not policy.force_unread
    if is_asked and len(ages) > 1 and is_pressing(usage, policy):
        assert unread is not None
        read_to = unread.first_position(ages[1].start, usage)
    going = deletable_files(ages, now_ms, local_hour(now_ms), usage, policy, read_to)
    stops = [file.start + commit_log.segments.file_size for file in going]
    begin = max((stop for stop in stops if stop <= flusher.checkpointed), default=0)
    is_forced = any(now_ms - file.last_ms < policy.reserved_ms for file in going)
    return ExpiredLog(begin, is_forced) if begin else None


def expire(
    begin: int, commit_log: CommitLog, queues: ConsumeQueues, index: KeyIndex, flusher: Flusher
) -> list[str]:
    """Delete files in front of the log's new begin; gives their paths."""
    flusher.note_begin(begin)
    deleted = [str(file.path) for file in commit_log.segments.drop_before(begin)]
    for topic, queue_id in queues.names():
        deleted += queues.drop_before(topic, queue_id, begin)
    deleted += index.drop_before(begin)
    log.info("retention deleted %d files; the log begins at %d", len(deleted), begin)
    return deleted


def messages_before(begin: int, commit_log: CommitLog, queues: ConsumeQueues) -> list[LostMessages]:
    """Messages of the queues between the log's begin and a new one."""
    messages = []
    for queue in queues.visit_all():
        first, stop = queue.min_offset(commit_log.begin), queue.offset_of(begin)
        if first < stop:
            messages.append(LostMessages(queue.topic, queue.queue_id, first, stop))
    return messages


def local_hour(now_ms: int) -> int:
    """The hour of the day, 0 to 23, in the machine's local time."""
    return datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone().hour


def expired_queues(
    queues: ConsumeQueues, begin: int, is_gone: Callable[[str, int], bool]
) -> list[tuple[str, int]]:
    """Queues without records that, as `is_gone` says, get no more."""
    return [name for name in queues.names() if is_gone(*name) and _is_empty(queues, *name, begin)]


def _is_empty(queues: ConsumeQueues, topic: str, queue_id: int, begin: int) -> bool:
    queue = queues.get(topic, queue_id)
    return queue is None or queue.min_offset(begin) >= queue.end


def _ages(commit_log: CommitLog, now_ms: int) -> list[FileAge]:
    """Age of the log's files up to the one that is written to.

    A file's last record is about as old as the first one of the next file, and no older than its
    own first one: the clock may have been set back for a moment when the next file began.
    """
    files = [file for file in commit_log.segments.files if file.start <= commit_log.end]
    ages = []
    for file, following in zip(files, [*files[1:], None], strict=False):
        times = [commit_log.stored_ms(each.start) for each in (file, following) if each]
        known = [stored_ms for stored_ms in times if stored_ms is not None]
        is_closed = following is not None and times[-1] is not None
        ages.append(FileAge(file.start, max(known) if is_closed else now_ms))
    return ages


class TopicRemoval:
    """Removes queues, by topic or one by one. A removal that fails is a failure of the store."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        tombstones: TopicTombstones,
        flusher: Flusher,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self._log = log
        self._queues = queues
        self._tombstones = tombstones
        self._flusher = flusher
        self._delay_levels_ms = delay_levels_ms

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic. Raises StoreFailed, for good."""
        if not self._queues.ids(topic):
            return
        self._write_tombstone(topic, self._log.dispatched)
        with self._removing(topic):
            self._queues.remove(topic)

    def delete_topic_before(self, topic: str, position: int) -> None:
        """Delete the part of a topic in front of a position; later records keep their entries.

        The position is a record's begin, or where a later record will begin. Raises StoreFailed,
        for good.
        """
        if position <= self._tombstones.position_of(topic):
            return
        self._write_tombstone(topic, position)
        if not self._queues.ids(topic):
            return
        has_more = self._has_entries_from(topic, position)
        with self._removing(topic):
            self._queues.remove(topic)
            if has_more:
                self._rebuild(topic, position)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Delete one queue. Raises StoreFailed, for good."""
        with self._removing(topic):
            self._queues.remove_one(topic, queue_id)

    def _write_tombstone(self, topic: str, position: int) -> None:
        # The log up to the tombstone must be durable: other messages must never get its place.
        self._flusher.flush_log()
        try:
            self._tombstones.add(topic, position)
        except StoreFailed as error:
            raise self._flusher.fail(str(error)) from error

    def _has_entries_from(self, topic: str, position: int) -> bool:
        """Whether any record of a topic begins at or behind a position.

        Without one the log need not be read, which takes a second for each gigabyte.
        """
        queues = [self._queues.get(topic, queue_id) for queue_id in self._queues.ids(topic)]
        return any(queue is not None and queue.offset_of(position) < queue.end for queue in queues)

    def _rebuild(self, topic: str, position: int) -> None:
        """Give the records of a topic from a position on their entries again."""
        rebuilder = QueueRebuilder(self._queues, self._delay_levels_ms, is_whole_log=True)
        name, end = topic.encode(), self._log.dispatched
        start = max(position, self._log.begin)
        for _, at, record in self._log.walk(start, end, end, check_crc=False):
            if record[5] == name:
                rebuilder.put(at, record)
        rebuilder.finish(())

    @contextmanager
    def _removing(self, topic: str) -> Iterator[None]:
        """Accept nothing more if queues cannot be removed: a successor would inherit them."""
        try:
            yield
        except (StoreError, OSError) as error:
            reason = f"the queues of topic {topic} could not be removed ({error})"
            raise self._flusher.fail(reason) from error
