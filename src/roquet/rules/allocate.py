"""Queues to consumers: whose queue is whose, decided for the whole group at once.

Every member of a group asks with the same queues and members and so gets the same answer; its own
share is a look-up. A member that is not listed has no share.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue

Queues: TypeAlias = Sequence[MessageQueue]
Shares: TypeAlias = Mapping[str, Queues]
Strategy: TypeAlias = Callable[[Queues, Sequence[str]], Shares]
"""Sorted queues and sorted members to everybody's share; `allocate` has checked both."""


def average(queues: Queues, members: Sequence[str]) -> Shares:
    """Neighbouring queues to one member; shares differ by one at most, the first ones are larger.

    Eight queues, three members: 0 1 2 · 3 4 5 · 6 7.
    """
    size, larger = divmod(len(queues), len(members))
    shares: dict[str, Queues] = {}
    start = 0
    for place, member in enumerate(members):
        end = start + size + (place < larger)
        # A member listed twice owns what its first place gives, as in Java.
        shares.setdefault(member, queues[start:end])
        start = end
    return shares


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType({"AVG": average})
"""By the names that Java gives them: members of one group must all use the same."""


def allocate(
    queues: Sequence[MessageQueue], members: Sequence[str], strategy: Strategy = average
) -> Shares:
    """Everybody's share; the order in which queues and members are given does not matter."""
    if not queues:
        raise UsageError("there are no queues to share")
    if not members:
        raise UsageError("there are no members to share queues")
    return strategy(sorted(queues, key=_java_order), sorted(members, key=_utf16))


def share_of(member: str, shares: Shares) -> Queues:
    """One member's share: a look-up. Who is not listed has none."""
    if not member:
        raise UsageError("a member without an id has no share")
    return shares.get(member, ())


def _java_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return _utf16(queue.topic), _utf16(queue.broker_name), queue.queue_id


def _utf16(text: str) -> bytes:
    # Java compares UTF-16 units: beyond the basic plane that is another order than Python's.
    return text.encode("utf-16-be", "surrogatepass")
