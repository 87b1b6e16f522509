"""AVG, AVG_BY_CIRCLE, CONFIG, MACHINE_ROOM, MACHINE_ROOM_NEARBY: RocketMQ's own strategies."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

from roquet.model.errors import UsageError
from roquet.rules.allocate.assignment import (
    FixedAssignment,
    GroupAssignment,
    MessageQueues,
    Strategy,
    utf16,
)


def average(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """Consecutive queues to each member; shares differ by at most one, the first ones are larger.

    Eight queues, three members: 0 1 2 · 3 4 5 · 6 7.
    """
    size, larger = divmod(len(queues), len(members))
    shares: dict[str, MessageQueues] = {}
    start = 0
    for index, member in enumerate(members):
        end = start + size + (index < larger)
        # A member listed twice owns the share of its first index, as in Java.
        shares.setdefault(member, queues[start:end])
        start = end
    return shares


def circle(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """Queues dealt like cards; shares differ by at most one, the first ones are larger.

    Eight queues, three members: 0 3 6 · 1 4 7 · 2 5. So each member has queues of every broker.
    """
    shares: dict[str, MessageQueues] = {}
    for index, member in enumerate(members):
        shares.setdefault(member, queues[index :: len(members)])
    return shares


def from_config(queues: MessageQueues) -> Strategy:
    """CONFIG: a fixed list of queues for this member, whatever queues and members exist.

    Nothing is guaranteed: it is the operator's task to make the members' lists complete. That
    includes the queues of the group's retry topic (`%RETRY%` and the group: one on each broker): a
    failed message is retried only if some member's list names its queue, as in Java.
    """
    return ConfigStrategy(tuple(queues))


class ConfigStrategy:
    """CONFIG with its list of queues."""

    def __init__(self, queues: MessageQueues) -> None:
        self.queues = queues

    def __call__(self, _queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
        """The list of queues, for every member."""
        return FixedAssignment(self.queues, members)


def leaves_out(strategy: Strategy | None, topic: str) -> bool:
    """Whether a strategy is a fixed list without a queue of this topic."""
    return isinstance(strategy, ConfigStrategy) and all(q.topic != topic for q in strategy.queues)


RoomOf: TypeAlias = Callable[[str], str]
"""Function from the name of a broker or member to its room."""

Located = TypeVar("Located")


def machine_room(rooms: Collection[str]) -> Strategy:
    """MACHINE_ROOM: only queues of brokers named `room@broker`, for one of these rooms.

    They are assigned consecutively, and the remainder one by one: shares differ by at most one.
    Queues of other rooms have no owner. Seven queues, three members: 0 1 6 · 2 3 · 4 5. Without
    rooms all queues are left out, as in Java; our consumers refuse to start then.
    """
    return MachineRoomStrategy(frozenset(rooms))


class MachineRoomStrategy:
    """MACHINE_ROOM with its rooms."""

    def __init__(self, rooms: Collection[str]) -> None:
        self.rooms = rooms

    def __call__(self, queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
        """Assignment of the queues in these rooms."""
        near = [queue for queue in queues if _room_in(queue.broker_name) in self.rooms]
        size, left_over = divmod(len(near), len(members))
        dealt = len(near) - left_over
        shares: dict[str, MessageQueues] = {}
        for index, member in enumerate(members):
            extra = near[dealt + index : dealt + index + 1]
            shares.setdefault(member, near[size * index : size * (index + 1)] + extra)
        return shares


def _room_in(broker_name: str) -> str | None:
    # As Java's split("@") sees it: empty parts at the end do not count.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def nearby(inner: Strategy, room_of_broker: RoomOf, room_of_member: RoomOf) -> Strategy:
    """MACHINE_ROOM_NEARBY: the inner strategy within each room; rooms without members are for all.

    Every queue has exactly one owner if the inner strategy gives each of its queues one. It is as
    even as the inner strategy within a room, and as uneven as the rooms are.
    """

    def shared(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
        queues_in = _by_room(queues, [room_of_broker(queue.broker_name) for queue in queues])
        members_in = _by_room(members, [room_of_member(member) for member in members])
        shares: dict[str, MessageQueues] = dict.fromkeys(members, ())
        # A member's own room first and then the others by name: the order of Java's result.
        for room in sorted(queues_in, key=lambda room: (room not in members_in, utf16(room))):
            for member, share in inner(queues_in[room], members_in.get(room, members)).items():
                shares[member] = [*shares[member], *share]
        return shares

    return shared


def _by_room(things: Sequence[Located], rooms: Sequence[str]) -> dict[str, list[Located]]:
    by_room: defaultdict[str, list[Located]] = defaultdict(list)
    for thing, room in zip(things, rooms, strict=True):
        if not room:
            raise UsageError(f"{thing} is in no room: the resolver must name one for each")
        by_room[room].append(thing)
    return dict(by_room)
