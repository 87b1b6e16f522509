"""STICKY and LAG_WEIGHTED: strategies that know the previous owners, so that few queues move.

No RocketMQ message carries previous owners or the lag to members: the broker decides these two.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from roquet.model.queue import MessageQueue
from roquet.rules.allocate.assignment import (
    GroupAssignment,
    MessageQueues,
    QueueOwners,
    in_java_order,
)

LAG_UNIT: Final = 32
"""Messages, one pull's worth: a smaller difference is chance, and no reason to move a queue."""

TOLERANCE_PERCENT: Final = 10
"""A member with this much less than the fullest one is close enough: the lag changes all the
time."""


def sticky(queues: MessageQueues, members: Sequence[str], owners: QueueOwners) -> GroupAssignment:
    """Even shares with the fewest moves.

    Shares differ by at most one, and of all assignments with that property none moves fewer queues.
    Proof: a member can keep no more than its share; the larger shares go first to members with more
    than the smaller share, so each of them keeps one queue more. The idea is that of Kafka's sticky
    assignor (KIP-54), here for the queues of one topic.
    """
    queues, members = in_java_order(queues, members)
    held: dict[str | None, list[int]] = {member: [] for member in members}
    free: list[int] = []
    for index, queue in enumerate(queues):
        held.get(owners.get(queue), free).append(index)
    sizes = _sizes(held, len(queues))
    for member, own in held.items():
        free += own[sizes[member] :]
        del own[sizes[member] :]
    free.sort()
    start = 0
    for member, own in held.items():
        needed = sizes[member] - len(own)
        own += free[start : start + needed]
        start += needed
    return _assignment(queues, held)


def _sizes(held: Mapping[str | None, Sequence[int]], count: int) -> Mapping[str | None, int]:
    """Target size of each share: the larger ones go to members that already have as many."""
    size, larger = divmod(count, len(held))
    ranked = sorted(held, key=lambda member: -min(len(held[member]), size + 1))
    return {member: size + (rank < larger) for rank, member in enumerate(ranked)}


def _assignment(queues: MessageQueues, held: Mapping[str | None, list[int]]) -> GroupAssignment:
    return {str(member): [queues[index] for index in sorted(own)] for member, own in held.items()}


def lag_weighted(
    queues: MessageQueues,
    members: Sequence[str],
    owners: QueueOwners,
    lag: Mapping[MessageQueue, int],
    *,
    noise: int = LAG_UNIT,
) -> GroupAssignment:
    """Shares with about the same lag each, and few moves.

    A queue weighs one, and one more for every `noise` messages that wait in it: where nothing
    waits, queues are counted. Members keep what they had; queues without an owner go, the heaviest
    first, to the member with the least (Graham's LPT rule, 1969); then the fullest member hands
    over to the emptiest until it would not help. Afterwards the emptiest has at most a tenth less
    than any other, or at most a tenth of that one's load is in queues that fit into the difference;
    and nobody has two queues while another has none. Source of the last step: Aggarwal, Motwani,
    Zhu, "The Load Rebalancing Problem" (SPAA 2003).
    """
    queues, members = in_java_order(queues, members)
    held: dict[str | None, _WeightedQueues] = {member: [] for member in members}
    free: _WeightedQueues = []
    last = len(queues) - 1
    for index, queue in enumerate(queues):
        waiting = lag.get(queue, 0)
        weight = waiting // noise + 1 if waiting > 0 else 1
        held.get(owners.get(queue), free).append(weight << _BITS | last - index)
    shares = list(held.values())
    _assign_free(free, shares)
    _level(shares)
    return _assignment(
        queues, {name: [last - (code & _MASK) for code in share] for name, share in held.items()}
    )


_BITS: Final = 48
_MASK: Final = (1 << _BITS) - 1
"""The weight is in the upper bits, the queue's index in the lower: one number is sorted and added
faster than a pair, and there is room for the sum of the indexes of ten million queues."""

_WeightedQueues = list[int]
"""One member's queues: weights with indexes counted down, so that of equal ones the first is
larger."""


def _load(share: _WeightedQueues) -> int:
    return sum(share) >> _BITS


def _assign_free(free: _WeightedQueues, shares: Sequence[_WeightedQueues]) -> None:
    """Assign free queues, the heaviest first, each to the member with the least."""
    emptiest = [_load(share) << _BITS | number for number, share in enumerate(shares)]
    heapify(emptiest)
    for queue in sorted(free, reverse=True):
        least = emptiest[0]
        shares[least & _MASK].append(queue)
        heapreplace(emptiest, least + (queue & ~_MASK))


def _level(shares: Sequence[_WeightedQueues]) -> None:
    """Move queues from the fullest to the emptiest member until that makes nothing better.

    A member from which nothing can be taken is finished: the emptiest only gets fuller.
    """
    loads = [_load(share) for share in shares]
    fullest = [(-load, number) for number, load in enumerate(loads)]
    emptiest = [(load, number) for number, load in enumerate(loads)]
    heapify(fullest)
    heapify(emptiest)
    for share in shares:
        share.sort()
    while fullest:
        # A stale entry is of a member that took since: no fuller than the emptiest, it never gives.
        load, giver = heappop(fullest)
        while emptiest[0][0] != loads[emptiest[0][1]]:
            heappop(emptiest)
        least, taker = emptiest[0]
        gap = -load - least
        if gap * 100 <= -load * TOLERANCE_PERCENT:
            return
        taken = _fitting(shares[giver], -load, gap)
        if taken is None:
            continue
        queue = shares[giver].pop(taken)
        insort(shares[taker], queue)
        for number, change in ((giver, -(queue >> _BITS)), (taker, queue >> _BITS)):
            loads[number] += change
            heappush(fullest, (-loads[number], number))
            heappush(emptiest, (loads[number], number))


def _fitting(share: _WeightedQueues, load: int, gap: int) -> int | None:
    """Index of the queue closest to half the gap; None if all that fit would not matter."""
    too_heavy = bisect_left(share, gap << _BITS)
    fit = load - _load(share[too_heavy:])
    matters = 0 if gap == load else load * TOLERANCE_PERCENT  # the emptiest may have nothing
    if fit * 100 <= matters:
        return None
    above = bisect_left(share, gap // 2 + 1 << _BITS, hi=too_heavy)
    if above == too_heavy:
        return above - 1
    if above and gap - 2 * (share[above - 1] >> _BITS) <= 2 * (share[above] >> _BITS) - gap:
        return above - 1
    return above
