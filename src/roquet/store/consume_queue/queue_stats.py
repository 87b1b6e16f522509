"""Queue statistics: ends, sizes and entries of consume queues."""

from collections.abc import Iterator
from typing import NamedTuple

from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.entries import ConsumeQueueEntry
from roquet.store.consume_queue.queues import ConsumeQueues


class QueueNextOffset(NamedTuple):
    """A queue, and the offset of its next message."""

    topic: str
    queue_id: int
    next_offset: int


class ConsumeQueueStats:
    """Facts about consume queues for statistics and inspection; reads no record."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues) -> None:
        self._log = commit_log
        self._queues = queues

    def ends(self) -> Iterator[QueueNextOffset]:
        """The next offset of each queue used since the store was opened."""
        for queue in list(self._queues.loaded.values()):
            yield QueueNextOffset(queue.topic, queue.queue_id, queue.end)

    def has(self, topic: str, queue_id: int) -> bool:
        """Whether a queue exists, even an empty one."""
        return self._queues.get(topic, queue_id) is not None

    def offset_since(self, topic: str, queue_id: int, position: int) -> int:
        """The first offset whose record lies at or behind a position of the log."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.offset_of(position)

    def size(self, topic: str, queue_id: int, start: int, stop: int) -> int:
        """Bytes of the records in [start, stop), as far as the queue has them."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        begin = queue.min_offset(self._log.begin)
        return queue.records_size(max(start, begin), min(stop, queue.end))

    def entries(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[ConsumeQueueEntry]:
        """Up to `count` entries from an offset on; none from an offset that does not exist."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or offset < queue.min_offset(self._log.begin):
            return []
        entries: list[ConsumeQueueEntry] = []
        stop = min(offset + count, queue.end)
        while offset < stop:
            part = list(queue.entries(offset, stop - offset))
            entries += part
            offset += len(part)
        return entries
