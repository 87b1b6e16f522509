"""Validation of a strategy's result: foreign queues, duplicates, unknown members."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate.assignment import (
    FixedAssignment,
    GroupAssignment,
    MessageQueues,
    Strategy,
    in_java_order,
)

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
