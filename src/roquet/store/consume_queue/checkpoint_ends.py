"""Checkpoint ends: where queues ended at the last checkpoint, and what the next one records."""

from collections.abc import Mapping

from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queue_ends import QueueEnd, QueueName, pack_end, pack_ends


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
