"""Topic removal: queues of deleted topics go; a tombstone keeps recovery from making them again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from roquet.model.errors import StoreError, StoreFailed
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import QueueRebuilder
from roquet.store.consume_queue.topic_tombstones import TopicTombstones
from roquet.store.flush import Flusher


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
