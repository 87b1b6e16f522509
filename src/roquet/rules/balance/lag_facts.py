"""What waits for a group: what is believed of unknown queues, and when to divide anew."""

from collections.abc import Iterable, Mapping
from typing import Final

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment

QueueLag = Mapping[MessageQueue, int]
"""How many messages wait in a queue."""

GAIN_PERCENT: Final = 25
"""So much less must wait for the fullest member: each move stops a queue for a moment."""

GAIN_MESSAGES: Final = 1_000
"""Fewer are worked off sooner than queues have moved."""


def estimated_lag(queues: Iterable[MessageQueue], known: QueueLag) -> dict[MessageQueue, int]:
    """What waits in each queue; where that is unknown, the mean of the others.

    So an unknown queue neither draws members nor drives them away.
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
