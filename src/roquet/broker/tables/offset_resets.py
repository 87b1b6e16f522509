"""Resets: offsets that an operator has set and the group has not gone on from yet (never saved).

The progress itself is set at once; here stands which queues' next pull or pop has to be told.
Until then no member may note progress there: what it is still at work on is from before.
"""

from collections.abc import Iterable


class OffsetResets:
    """By group, topic and queue: where to go on."""

    def __init__(self) -> None:
        self.pending: dict[tuple[str, str], dict[int, int]] = {}
        """By group and topic; mostly empty, so whoever is in a hurry looks here first."""

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The next pull or pop of a queue goes on there."""
        self.pending.setdefault((group, topic), {})[queue_id] = offset

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a queue is to go on, if nobody was told yet."""
        queues = self.pending.get((group, topic))
        return queues.get(queue_id) if queues else None

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """The same for who is told now: it is not told twice."""
        queues = self.pending.get((group, topic))
        if not queues:
            return None
        found = queues.pop(queue_id, None)
        if not queues:
            del self.pending[group, topic]
        return found

    def forget(self, *, topics: Iterable[str] = (), group: str | None = None) -> None:
        """Topics, or a group, are deleted."""
        gone = set(topics)
        for key in [k for k in self.pending if k[0] == group or k[1] in gone]:
            del self.pending[key]
