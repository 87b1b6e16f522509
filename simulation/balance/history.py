"""BalanceHistory: a history that also knows which consumer owned which queue, and when."""

from collections.abc import Callable, Sequence

import msgspec

from roquet.model.queue import MessageQueue
from simulation.history import History, short_name


class QueueOwnership(msgspec.Struct):
    """The time for which a consumer owned a queue."""

    consumer: str
    queue: MessageQueue
    since_ms: int
    until_ms: int | None = None
    """None while it owns the queue."""
    ended_by: str = ""
    """`revoked`, `left` or `killed`."""


class BalanceHistory(History):
    """The events of a balance workload."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.ownerships: list[QueueOwnership] = []

    def assign(self, consumer: str, queues: Sequence[MessageQueue]) -> None:
        """Note that queues were assigned to a consumer."""
        for queue in queues:
            self.ownerships.append(QueueOwnership(consumer, queue, self.now_ms()))
            self.say(f"{consumer} holds {short_name(queue)}")

    def release(self, consumer: str, queues: Sequence[MessageQueue] | None, cause: str) -> None:
        """Note that a consumer no longer owns these queues; None is all that it owned."""
        for ownership in self.ownerships:
            is_open = ownership.consumer == consumer and ownership.until_ms is None
            if is_open and (queues is None or ownership.queue in queues):
                ownership.until_ms, ownership.ended_by = self.now_ms(), cause
                self.say(f"{consumer} lets go {short_name(ownership.queue)}: {cause}")

    def consumer_left(self, consumer: str) -> None:
        """Note that a consumer has stopped, and owns nothing more."""
        self.release(consumer, None, "left")
        super().consumer_left(consumer)

    def consumer_killed(self, consumer: str) -> None:
        """Note that a consumer's process is gone, and owns nothing more."""
        super().consumer_killed(consumer)
        self.release(consumer, None, "killed")
