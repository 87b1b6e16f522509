"""Lag of a group: estimates for unknown queues, and whether a new assignment is worth its moves."""

from collections.abc import Iterable, Mapping
from typing import Final

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment

QueueLag = Mapping[MessageQueue, int]
"""Number of waiting messages, by queue."""

GAIN_PERCENT: Final = 25
"""Required reduction of the fullest member's lag: each move stops a queue for a moment."""

GAIN_MESSAGES: Final = 1_000
"""Smaller gains are worked off sooner than queues have moved."""


def estimated_lag(queues: Iterable[MessageQueue], known: QueueLag) -> dict[MessageQueue, int]:
    """Lag of each queue; for unknown queues, the mean of the others.

    So an unknown queue neither attracts members nor repels them.
    """
    wanted = list(queues)
    counts = [known[queue] for queue in wanted if queue in known]
    mean = sum(counts) // len(counts) if counts else 0
    return {queue: known.get(queue, mean) for queue in wanted}


def is_worth_moving(before: GroupAssignment, after: GroupAssignment, lag: QueueLag) -> bool:
    """Whether the fullest member would have much less to do."""
    old, new = _fullest(before, lag), _fullest(after, lag)
    return old - new >= GAIN_MESSAGES and (old - new) * 100 >= old * GAIN_PERCENT


def _fullest(shares: GroupAssignment, lag: QueueLag) -> int:
    return max((sum(lag.get(queue, 0) for queue in share) for share in shares.values()), default=0)
