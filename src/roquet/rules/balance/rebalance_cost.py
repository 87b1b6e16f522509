"""Rebalance cost: how even an assignment is, which queues move, and whether that is worth it."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.allocate.assignment import GroupAssignment, MessageQueues, QueueOwners


class ShareSpread(msgspec.Struct, frozen=True):
    """Smallest and largest share, in queues or in waiting messages."""

    least: int
    most: int

    @property
    def is_even(self) -> bool:
        """Whether shares differ by at most one."""
        return self.most - self.least <= 1


def owner_map(shares: GroupAssignment) -> QueueOwners:
    """Owner of each queue."""
    return {queue: member for member, share in shares.items() for queue in share}


def queue_spread(shares: GroupAssignment) -> ShareSpread:
    """Smallest and largest number of queues of a member."""
    return _spread([len(share) for share in shares.values()])


def lag_spread(shares: GroupAssignment, lag: Mapping[MessageQueue, int]) -> ShareSpread:
    """Smallest and largest number of messages that wait for a member."""
    return _spread([sum(lag.get(queue, 0) for queue in share) for share in shares.values()])


def _spread(numbers: Collection[int]) -> ShareSpread:
    return ShareSpread(min(numbers, default=0), max(numbers, default=0))


def moved_queues(before: GroupAssignment, after: GroupAssignment) -> MessageQueues:
    """Queues that had an owner and now have another one or none, in their old order."""
    now = owner_map(after)
    return [queue for queue, member in owner_map(before).items() if now.get(queue) != member]


def fewest_moves(
    before: GroupAssignment, queues: Collection[MessageQueue], members: Collection[str]
) -> int:
    """Smallest number of moves after which these members have even shares.

    No member keeps more than its share, and the larger shares are of most use to members with more
    than the smaller share. A queue without a previous owner does not count as a move.
    """
    present = frozenset(queues)
    had = [sum(queue in present for queue in before.get(member, ())) for member in {*members}]
    size, larger = divmod(len(present), len(had))
    kept = sum(min(size, count) for count in had)
    kept += min(larger, sum(count > size for count in had))
    return sum(queue in present for queue in owner_map(before)) - kept


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
