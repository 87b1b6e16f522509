"""Moves: how even an assignment is, which queues change hands, and the fewest that would do."""

from collections.abc import Collection, Mapping

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.allocate.assignment import GroupAssignment, MessageQueues, QueueOwners


class ShareSpread(msgspec.Struct, frozen=True):
    """The smallest and the largest share, in queues or in messages that wait."""

    least: int
    most: int

    @property
    def is_even(self) -> bool:
        """Whether shares differ by one at most."""
        return self.most - self.least <= 1


def owner_map(shares: GroupAssignment) -> QueueOwners:
    """Who has which queue."""
    return {queue: member for member, share in shares.items() for queue in share}


def queue_spread(shares: GroupAssignment) -> ShareSpread:
    """How many queues the members have."""
    return _spread([len(share) for share in shares.values()])


def lag_spread(shares: GroupAssignment, lag: Mapping[MessageQueue, int]) -> ShareSpread:
    """How many messages wait for the members."""
    return _spread([sum(lag.get(queue, 0) for queue in share) for share in shares.values()])


def _spread(numbers: Collection[int]) -> ShareSpread:
    return ShareSpread(min(numbers, default=0), max(numbers, default=0))


def moved_queues(before: GroupAssignment, after: GroupAssignment) -> MessageQueues:
    """The queues that somebody had and somebody else has now, or nobody; in their old order."""
    now = owner_map(after)
    return [queue for queue, member in owner_map(before).items() if now.get(queue) != member]


def fewest_moves(
    before: GroupAssignment, queues: Collection[MessageQueue], members: Collection[str]
) -> int:
    """How many queues have to move, at the least, so that these members have even shares.

    Nobody keeps more than its share, and the larger shares are of most use to those who have more
    than the smaller one. A queue that is new, or that nobody had, moves from nobody: not counted.
    """
    present = frozenset(queues)
    had = [sum(queue in present for queue in before.get(member, ())) for member in {*members}]
    size, larger = divmod(len(present), len(had))
    kept = sum(min(size, count) for count in had)
    kept += min(larger, sum(count > size for count in had))
    return sum(queue in present for queue in owner_map(before)) - kept
