"""Consume queues: all queues of a directory, opened when they are first used, and their removal."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from roquet.model.errors import MessageIllegal, StoreError
from roquet.rules.recovery import LostMessages
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_ends import QueueEnd, QueueName, pack_end, pack_ends
from roquet.store.filesystem.files import Files
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.segments import Segments
from roquet.store.layout import ENTRY_SIZE, FILLER_SIZE


class CheckpointEnds:
    """The ends of queues with messages. The row of an unchanged queue is packed once."""

    def __init__(self) -> None:
        self.by_name: dict[QueueName, QueueEnd] = {}
        self.has_checkpoint = False
        """Whether the last checkpoint's ends were known when the store was opened."""
        self._rows: dict[QueueName, bytes] = {}

    def load(self, ends: Mapping[QueueName, QueueEnd]) -> None:
        """Begin with the ends that the last checkpoint recorded."""
        self.by_name, self.has_checkpoint = dict(ends), True

    def note(self, queue: ConsumeQueue) -> None:
        """Record where a queue ends now, for the next checkpoint."""
        name, end, begin = (queue.topic, queue.queue_id), queue.end, queue.begin
        known = self.by_name.get(name)
        if known is not None and known.end == end and known.begin == begin:
            return
        if end:
            last = queue.entry(end - 1)[0] if end > begin else -1
            self.by_name[name] = noted = QueueEnd(begin, end, last)
            self._rows[name] = pack_end(name, noted)
        else:
            self.forget(name)

    def forget(self, name: QueueName) -> None:
        """Drop the end of a queue that is removed or has no messages."""
        self.by_name.pop(name, None)
        self._rows.pop(name, None)

    def pack(self, log_begin: int, position: int) -> bytes:
        """The noted ends as a file, for a log from `log_begin` to `position`."""
        if len(self._rows) < len(self.by_name):
            self._rows = {name: pack_end(name, end) for name, end in self.by_name.items()}
        return pack_ends(log_begin, position, self._rows.values())


REMOVED_NAME: Final = "consumequeue-removed"
"""Holds the queues of deleted topics, beside the directory of queues, until their files are
deleted."""

DIRECTORY_NAME_SIZE_MAX: Final = 255
"""Bytes that file systems allow in a name: a topic is a directory."""


class RemovedQueues:
    """Directories of deleted topics, moved away at once, deleted later, and numbered from 1.

    Deleting the files of many queues takes seconds; moving their directory takes one call.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._clearing = Lock()

    def move_in(self, path: Path) -> None:
        """Move a directory of queues away. Raises StoreError if it cannot be moved."""
        names = self._files.list(self._directory)
        number = len(names) + 1
        while str(number) in names:
            number += 1
        self._files.move(path, self._directory / str(number))

    def clear(self) -> None:
        """Delete what was moved in; may run in another thread."""
        with self._clearing:
            for number in self._files.list(self._directory):
                self._files.remove(self._directory / number)


class ConsumeQueues:
    """All queues of a directory; the files of a queue are opened when it is first used."""

    def __init__(self, pool: MapPool, directory: Path, entries: int, step: int) -> None:
        self._pool = pool
        self._step = step
        self.directory = directory
        self._removed = RemovedQueues(pool.files, directory.with_name(REMOVED_NAME))
        self._text = str(directory)
        self.file_size = entries * ENTRY_SIZE
        self._ids: dict[str, set[int]] = {}
        self.loaded: dict[tuple[str, int], ConsumeQueue] = {}
        self.listed: dict[tuple[str, int], Mapping[str, int | None]] = {}
        """Directory listings, while the store opens: reading one costs as much as everything else
        that is done with a queue then."""
        self.begins: dict[QueueName, int] = {}
        """First offsets that have a file, where that is not 0, while the store opens."""
        self.faults: dict[QueueName, str] = {}
        """Queues whose files are unusable, and why."""
        self.ends = CheckpointEnds()
        """Where queues ended at the last checkpoint, and end now as far as noted."""

    @property
    def files(self) -> Files:
        """The file system that holds the queues."""
        return self._pool.files

    def path(self, name: QueueName, start: int) -> Path:
        """The file of a queue that begins at byte `start`."""
        return Path(f"{self._text}/{name[0]}/{name[1]}/{start:020d}")

    def opened(self) -> None:
        """Drop what only opening a store needs."""
        self.listed.clear()
        self.begins.clear()
        self.faults.clear()

    def packed_ends(self, log_begin: int, position: int) -> bytes:
        """The ends of all queues as a file, for a log from `log_begin` to `position`."""
        for queue in self.loaded.values():
            self.ends.note(queue)
        return self.ends.pack(log_begin, position)

    def add(self, topic: str, queue_id: int) -> None:
        """Register a queue that has files."""
        self._ids.setdefault(topic, set()).add(queue_id)

    def topics(self) -> list[str]:
        """Topics that have a queue."""
        return sorted(self._ids)

    def ids(self, topic: str) -> list[int]:
        """The queue ids of a topic."""
        return sorted(self._ids.get(topic, ()))

    def names(self) -> list[tuple[str, int]]:
        """Topic and id of every queue."""
        return [(topic, queue_id) for topic in self.topics() for queue_id in self.ids(topic)]

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue; None if there is none."""
        queue = self.loaded.get((topic, queue_id))
        if queue is None and queue_id in self._ids.get(topic, ()):
            queue = self._load(topic, queue_id)
        return queue

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue, created if there is none. Raises MessageIllegal for an impossible name."""
        queue = self.get(topic, queue_id)
        if queue is None:
            _check_name(topic, queue_id)
            self.listed[topic, queue_id] = {}  # there is nothing to list
            queue = self._load(topic, queue_id)
            self.add(topic, queue_id)
        return queue

    def remove(self, topic: str) -> None:
        """Delete all queues of a topic: their files are moved away until `clear_removed`."""
        for queue_id in self.ids(topic):
            self._forget(topic, queue_id)
        self._ids.pop(topic, None)
        try:
            self._removed.move_in(self.directory / topic)
        except StoreError:  # deleting does as well, slowly when there are many
            self._pool.files.remove(self.directory / topic)
        self._pool.files.sync(self.directory)

    def clear_removed(self) -> None:
        """Delete the files of removed queues, which takes long if there were many.

        May run in another thread: nothing else uses these files any more.
        """
        self._removed.clear()

    def remove_one(self, topic: str, queue_id: int) -> None:
        """Delete one queue of a topic."""
        self._forget(topic, queue_id)
        self._ids[topic].discard(queue_id)
        if not self._ids[topic]:
            self.remove(topic)
        else:
            self._pool.files.remove(self.directory / topic / str(queue_id))

    def leave_out(self, name: QueueName) -> None:
        """Forget a queue; its files stay."""
        topic, queue_id = name
        self._forget(topic, queue_id)
        self._ids.get(topic, set[int]()).discard(queue_id)

    def clear(self, name: QueueName) -> None:
        """Delete the files of a queue that is about to be rebuilt."""
        topic, queue_id = name
        self.leave_out(name)
        self._pool.files.remove(self.directory / topic / str(queue_id))

    def _forget(self, topic: str, queue_id: int) -> None:
        self.listed.pop((topic, queue_id), None)
        self.ends.forget((topic, queue_id))
        if queue := self.loaded.get((topic, queue_id)):
            self._discard(queue)

    def drop_before(self, topic: str, queue_id: int, position: int) -> list[str]:
        """Delete the files of a queue whose records all lie in front of a position; gives paths."""
        with self.visiting(topic, queue_id) as queue:
            if queue is None or len(queue.segments.files) < 2:
                return []
            first_kept = queue.offset_of(position) * ENTRY_SIZE
            return [str(file.path) for file in queue.segments.drop_before(first_kept)]

    @contextmanager
    def visiting(self, topic: str, queue_id: int) -> Iterator[ConsumeQueue | None]:
        """A queue, which is unloaded afterwards unless it was in use before; None without one."""
        was_loaded = (topic, queue_id) in self.loaded
        queue = self.get(topic, queue_id)
        yield queue
        if queue is not None and not was_loaded:
            self.unload(queue)

    def visit_all(self) -> Iterator[ConsumeQueue]:
        """Every queue, each unloaded afterwards unless it was in use before."""
        for name in self.names():
            with self.visiting(*name) as queue:
                assert queue is not None
                yield queue

    def unload(self, queue: ConsumeQueue) -> None:
        """Drop the state of a queue until it is used again."""
        self.ends.note(queue)
        for file in queue.segments.files:
            if file.unwritten:
                file.view()  # writes the buffer
        self._discard(queue)

    def _discard(self, queue: ConsumeQueue) -> None:
        for file in queue.segments.files:
            self._pool.drop(file)
        self.loaded.pop((queue.topic, queue.queue_id), None)

    def last_record_end(self) -> int:
        """The position behind the last record that any queue leads to."""
        ends = [0]
        for topic, queue_id in self.names():
            queue = self.get(topic, queue_id)
            if queue is not None and queue.end > queue.begin:
                position, size, _ = queue.entry(queue.end - 1)
                ends.append(position if size == FILLER_SIZE else position + size)
        return max(ends)

    def lost_in(self, start: int, stop: int) -> tuple[LostMessages, ...]:
        """The messages whose records begin between two positions."""
        lost = []
        for topic, queue_id in self.names():
            queue = self.get(topic, queue_id)
            assert queue is not None
            first, behind = queue.offset_of(start), queue.offset_of(stop)
            if first < behind:
                lost.append(LostMessages(topic, queue_id, first, behind))
        return tuple(lost)

    def _load(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = self.directory / topic / str(queue_id)
        segments = Segments(self._pool, directory, self.file_size)
        listed = self.listed.pop((topic, queue_id), None)
        segments.load(self._pool.files.list(directory) if listed is None else listed)
        queue = ConsumeQueue(topic, queue_id, segments, self._step)
        queue.find_end(self.ends.by_name.get((topic, queue_id)))
        queue.checked_from = queue.end
        self.loaded[topic, queue_id] = queue
        return queue


def _check_name(topic: str, queue_id: int) -> None:
    is_path = "/" in topic or "\\" in topic or "\0" in topic or topic in ("", ".", "..")
    if is_path or queue_id < 0 or len(topic.encode()) > DIRECTORY_NAME_SIZE_MAX:
        raise MessageIllegal(f"{topic!r}, queue {queue_id}, cannot be the name of a directory")
