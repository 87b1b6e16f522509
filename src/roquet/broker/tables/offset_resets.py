"""OffsetResets: offsets set by an operator that a group's readers do not know yet (in memory only).

The progress itself is set at once. The next pull or pop of each of these queues is sent to the new
offset; until then no member may commit there, since it still handles messages from before.
"""

from collections.abc import Iterable


class OffsetResets:
    """Pending offsets by group, topic and queue."""

    def __init__(self) -> None:
        self.pending: dict[tuple[str, str], dict[int, int]] = {}
        """By group and topic; mostly empty, so hot paths check it first."""

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Send the next pull or pop of a queue to an offset."""
        self.pending.setdefault((group, topic), {})[queue_id] = offset

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending offset of a queue; None without one."""
        queues = self.pending.get((group, topic))
        return queues.get(queue_id) if queues else None

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove and return the pending offset of a queue; None without one."""
        queues = self.pending.get((group, topic))
        if not queues:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self.pending[group, topic]
        return offset

    def forget(self, *, topics: Iterable[str] = (), group: str | None = None) -> None:
        """Remove the pending offsets of deleted topics, or of a deleted group."""
        gone = set(topics)
        for key in [k for k in self.pending if k[0] == group or k[1] in gone]:
            del self.pending[key]
