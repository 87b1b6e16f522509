"""Topic removal: queues of deleted topics go; a tombstone keeps recovery from making them again."""

from collections.abc import Iterator
from contextlib import contextmanager

from roquet.model.errors import StoreError, StoreFailed
from roquet.store.commit_log.log import CommitLog
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.topic_tombstones import TopicTombstones
from roquet.store.flush import Flusher


class TopicRemoval:
    """Removes queues, by topic or one by one. A removal that fails is a failure of the store."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, tombstones: TopicTombstones, flusher: Flusher
    ) -> None:
        self._log = log
        self._queues = queues
        self._tombstones = tombstones
        self._flusher = flusher

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic. Raises StoreFailed, for good."""
        if not self._queues.ids(topic):
            return
        # The log up to the tombstone must be durable: other messages must never get its place.
        self._flusher.flush_log()
        try:
            self._tombstones.add(topic, self._log.dispatched)
        except StoreFailed as error:
            raise self._flusher.fail(str(error)) from error
        with self._removing(topic):
            self._queues.remove(topic)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Delete one queue. Raises StoreFailed, for good."""
        with self._removing(topic):
            self._queues.remove_one(topic, queue_id)

    @contextmanager
    def _removing(self, topic: str) -> Iterator[None]:
        """Accept nothing more if queues cannot be removed: a successor would inherit them."""
        try:
            yield
        except (StoreError, OSError) as error:
            reason = f"the queues of topic {topic} could not be removed ({error})"
            raise self._flusher.fail(reason) from error
