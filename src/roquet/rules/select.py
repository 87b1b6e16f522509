"""Which queue to send to: in turn, or by key."""

from collections.abc import Sequence

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue


def by_hash(hashed: int, count: int) -> int:
    """The place among `count` queues of a key with this Java hash code.

    Java takes the remainder first and its absolute value after: so the least integer, which has no
    positive twin, is safe. Of absolute values the remainder is the same.
    """
    if not count:
        raise _nowhere()
    return abs(hashed) % count


def next_queue(
    queues: Sequence[MessageQueue], turn: int, *, avoid: str | None = None
) -> tuple[MessageQueue, int]:
    """The queue whose turn it is, and the turn after it.

    `avoid` names the broker that has just failed: its queues are passed over when another broker
    has any. The caller keeps the turn; nothing here is changed by a choice.
    """
    if not queues:
        raise _nowhere()
    count = len(queues)
    for step in range(count):
        queue = queues[(turn + step) % count]
        if queue.broker_name != avoid:
            return queue, turn + step + 1
    return queues[turn % count], turn + 1


def _nowhere() -> UsageError:
    return UsageError("there is no queue to send to")
