"""CONSISTENT_HASH, RENDEZVOUS and BOUNDED_LOAD: a change of members moves few queues.

All three depend only on the names of queues and members, so members agree without communication.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate.assignment import GroupAssignment, MessageQueues, Strategy

Hasher: TypeAlias = Callable[[str], int]

VIRTUAL_NODES: Final = 10
"""Points of one member on the ring, as in Java: members of one group must all have the same."""

LOAD_PERCENT: Final = 125
"""A quarter above an even share: the paper's compromise between evenness and few moves."""

_PRIME: Final = (1 << 60) - 93
"""Products modulo a prime are universal hashes (Carter and Wegman 1979); this is the largest prime
below 2^60, and Python calculates with digits of 30 bits."""


def md5_high(text: str) -> int:
    """First four bytes of the MD5 as a number: the hash of Java's ring."""
    return int.from_bytes(_md5(text)[:4])


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES, hasher: Hasher = md5_high) -> Strategy:
    """CONSISTENT_HASH: a queue belongs to the member whose point on a ring comes next.

    A member that joins takes about 1/n of the queues and no others move; the queues of a member
    that leaves are taken over. Shares are uneven: with ten points per member, often twice the
    average. Source: Karger and others, "Consistent Hashing and Random Trees" (STOC 1997); the
    hashed texts are those of Apache RocketMQ's `AllocateMessageQueueConsistentHash`.
    """
    if virtual_nodes < 0:
        raise UsageError(f"a ring cannot hold {virtual_nodes} places of each member")

    def shared(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
        shares: dict[str, list[MessageQueue]] = {member: [] for member in members}
        ring, points = _ring(members, virtual_nodes, hasher)
        if not points:  # without points nobody has a queue, as in Java
            return shares
        for queue in queues:
            at = bisect_left(points, hasher(_text_of(queue)))
            shares[ring[points[at % len(points)]]].append(queue)
        return shares

    return shared


def bounded_load(
    percent: int = LOAD_PERCENT, virtual_nodes: int = VIRTUAL_NODES, hasher: Hasher = md5_high
) -> Strategy:
    """BOUNDED_LOAD: the ring, but a member with a full share is skipped.

    Nobody has more than `percent` of an even share, rounded up. A change moves more queues than on
    the plain ring, by a factor that depends on `percent` and not on the number of queues. Source:
    Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads" (SODA 2018).
    """
    if percent < 100:
        raise UsageError(f"{percent} % of an even share cannot hold every queue: 100 is the least")
    if virtual_nodes < 1:
        raise UsageError("a ring needs at least one place of each member")

    def shared(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
        shares: dict[str, list[MessageQueue]] = {member: [] for member in members}
        bound = -(-len(queues) * percent // (100 * len(shares)))
        ring, points = _ring(tuple(shares), virtual_nodes, hasher)
        owners = [shares[ring[point]] for point in points]
        for queue in queues:
            at = bisect_left(points, hasher(_text_of(queue)))
            while len(owners[at % len(owners)]) >= bound:
                at += 1
            owners[at % len(owners)].append(queue)
        return shares

    return shared


def rendezvous(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """RENDEZVOUS: every member scores every queue, and the highest score owns it.

    A member that joins takes about 1/n of each other's queues, and no others move; the queues of a
    member that leaves go to all others evenly. Shares are as uneven as chance: about the root of
    their size. Source: Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates"
    (IEEE/ACM Transactions on Networking 6(1), 1998).
    """
    shares: dict[str, list[MessageQueue]] = {member: [] for member in members}
    named = {_number(member): own for member, own in shares.items()}
    numbers = sorted(named)  # of equal scores the first wins, for every member
    for queue in queues:
        of_queue = _number(_text_of(queue))
        scores = [of_queue * number % _PRIME for number in numbers]
        named[numbers[scores.index(max(scores))]].append(queue)
    return shares


def _ring(
    members: Sequence[str], virtual_nodes: int, hasher: Hasher
) -> tuple[dict[int, str], list[int]]:
    """Owner of each point, and the sorted points; a point hashed twice has the later owner."""
    ring: dict[int, str] = {}
    seen: set[str] = set()
    for member in members:
        # A member listed twice has more points, with consecutive numbers, as in Java.
        first = sum(owner == member for owner in ring.values()) if member in seen else 0
        seen.add(member)
        for number in range(first, first + virtual_nodes):
            ring[hasher(f"{member}-{number}")] = member
    return ring, sorted(ring)


def _text_of(queue: MessageQueue) -> str:
    """Java's `MessageQueue.toString`."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _number(text: str) -> int:
    return int.from_bytes(_md5(text)[:8]) % _PRIME


def _md5(text: str) -> bytes:
    from hashlib import md5  # here: few groups use these strategies

    # A lone surrogate becomes a question mark, as in Java's getBytes.
    return md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
