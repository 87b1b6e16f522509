"""Assignments: their types, the order that all members agree on, and faults of a result."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, TypeAlias

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue

MessageQueues: TypeAlias = Sequence[MessageQueue]
GroupAssignment: TypeAlias = Mapping[str, MessageQueues]
Strategy: TypeAlias = Callable[[MessageQueues, Sequence[str]], GroupAssignment]
"""Function from sorted queues and sorted members to an assignment; `allocate` checks both."""

QueueOwners: TypeAlias = Mapping[MessageQueue, str]
"""Previous owner by queue; queues without one are left out."""


class FixedAssignment(GroupAssignment):
    """An equal list of queues for every member, where no member knows the others' lists."""

    def __init__(self, queues: MessageQueues, members: Sequence[str]) -> None:
        self.queues = queues
        self._members = dict.fromkeys(members)

    def __getitem__(self, member: str) -> MessageQueues:
        return self.queues

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def in_java_order(
    queues: MessageQueues, members: Sequence[str]
) -> tuple[MessageQueues, Sequence[str]]:
    """Queues and members in Java's order, which every member of the group sees."""
    if not queues:
        raise UsageError("there are no queues to share")
    if not members:
        raise UsageError("there are no members to share queues")
    return sorted_queues(queues), sorted(members, key=utf16)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues by topic, broker and id, as Java's `MessageQueue.compareTo`.

    Names are compared once for each broker, not for each pair of queues: ten thousand queues take 4
    ms that way, and 20 ms with a key for each.
    """
    by_broker: defaultdict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        by_broker[queue.topic, queue.broker_name].append(queue)
    ordered: list[MessageQueue] = []
    for broker in sorted(by_broker, key=lambda names: [utf16(name) for name in names]):
        ordered += sorted(by_broker[broker], key=_QUEUE_ID)
    return ordered


_QUEUE_ID = attrgetter("queue_id")


def utf16(text: str) -> bytes:
    """Java's sort key of a text: UTF-16 units; the order differs beyond the basic plane."""
    return text.encode("utf-16-be", "surrogatepass")


FAULTS_MAX: Final = 5
"""Number of reported faults: enough to find a mistake, few enough for one line of a log."""


def validated_assignment(
    queues: MessageQueues, members: Sequence[str], strategy: Strategy
) -> GroupAssignment:
    """Assignment by a user's strategy; raises UsageError that describes a wrong result.

    A caller that then keeps its old assignment does no harm: others see the same mistake.
    """
    queues, members = in_java_order(queues, members)
    try:
        shares = _materialized(strategy(queues, members))
        wrong = faults(shares, queues, members)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"the strategy failed: {error!r}") from error
    if wrong:
        raise UsageError(f"the strategy's answer is wrong: {'; '.join(wrong)}")
    assert isinstance(shares, Mapping)
    return shares


def _materialized(shares: object) -> object:
    """The result with shares that can be read twice; a generator would be empty the second time."""
    if not isinstance(shares, Mapping) or isinstance(shares, FixedAssignment):
        return shares
    return {member: _materialized_share(share) for member, share in shares.items()}


def _materialized_share(share: object) -> object:
    if isinstance(share, (Sequence, str)) or not isinstance(share, Iterable):
        return share
    return tuple(share)


def faults(shares: object, queues: MessageQueues, members: Sequence[str]) -> Sequence[str]:
    """Describe the first few faults of an assignment; empty if it can be used.

    A queue without an owner is not a fault: MACHINE_ROOM leaves out those of other rooms. `unowned`
    lists such queues, for the caller to judge. CONFIG's list is the operator's responsibility and
    only checked for queues that it names twice.
    """
    if not isinstance(shares, Mapping):
        return (f"{_repr(shares)} is not a mapping of members to queues",)
    if isinstance(shares, FixedAssignment):
        twice = [queue for queue, times in Counter(shares.queues).items() if times > 1]
        return [f"{queue} is in the list twice" for queue in twice[:FAULTS_MAX]]
    return list(islice(_faults(shares, queues, members), FAULTS_MAX))


def unowned(shares: GroupAssignment, queues: MessageQueues) -> MessageQueues:
    """Queues without an owner, in order: their messages wait until somebody owns them."""
    owned = {queue for share in shares.values() for queue in share}
    return [queue for queue in queues if queue not in owned]


def _faults(
    shares: Mapping[object, object], queues: MessageQueues, members: Sequence[str]
) -> Iterator[str]:
    known, listed = set(queues), set(members)
    owner_of: dict[MessageQueue, object] = {}
    for member, share in shares.items():
        if member not in listed:
            yield f"{_repr(member)} has a share and is not a member"
        if not isinstance(share, Sequence) or isinstance(share, str):
            yield f"the share of {_repr(member)} is {_repr(share)}, not queues"
            continue
        for queue in share:
            if not isinstance(queue, MessageQueue):
                yield f"the share of {_repr(member)} has {_repr(queue)} in it, not a queue"
            elif queue not in known:
                yield f"{queue} is not one of the {len(known)} queues"
            elif queue in owner_of:
                yield f"{queue} is given to {_repr(owner_of[queue])} and to {_repr(member)}"
            else:
                owner_of[queue] = member


def _repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
