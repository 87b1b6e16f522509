"""Types of an assignment: queues, shares, owners; and the order that all members agree on."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

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
