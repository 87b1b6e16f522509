"""Situation: queues, members, rooms, lag and a member change, as input for every strategy."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest

TOPIC: Final = "Orders"
"""The topic's name, which strategies that hash names see."""


class MemberChange(Enum):
    """A change of the members."""

    JOIN = "join"
    LEAVE = "leave"
    KILL = "kill"


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The input of every strategy."""

    queues: Sequence[MessageQueue]
    members: Sequence[str]
    rooms: Sequence[str]
    lag: Mapping[MessageQueue, int]
    then: MemberChange | None = None
    changed_member: str = ""
    """The member that joins, leaves or is killed."""

    @property
    def all_members(self) -> Sequence[str]:
        """Members before or after the change."""
        return (
            [*self.members, self.changed_member] if self.then is MemberChange.JOIN else self.members
        )

    @property
    def remaining(self) -> Sequence[str]:
        """Members after the change."""
        if self.then is MemberChange.JOIN:
            return self.all_members
        return [member for member in self.members if member != self.changed_member]

    def room_of_member(self, member: str) -> str:
        """A member's room: members are in the rooms in turn."""
        return self.rooms[self.all_members.index(member) % len(self.rooms)]

    def label(self, queue: MessageQueue) -> str:
        """A short label of a queue: its id, and its broker's letter if there are several."""
        brokers = {queue.broker_name for queue in self.queues}
        letter = queue.broker_name[-1] if len(brokers) > 1 else ""
        return f"{letter}{queue.queue_id}"

    def summary(self) -> str:
        """The situation in one line."""
        brokers = len({queue.broker_name for queue in self.queues})
        what = {
            None: "",
            MemberChange.JOIN: f"; then {self.changed_member} joins",
            MemberChange.LEAVE: f"; then {self.changed_member} leaves",
            MemberChange.KILL: f"; then {self.changed_member} is killed",
        }[self.then]
        rooms = f" in {len(self.rooms)} rooms" if len(self.rooms) > 1 else ""
        return (
            f"{_number(len(self.queues), 'queue')} on {_number(brokers, 'broker')}, "
            f"{_number(len(self.members), 'member')}{rooms}{what}"
        )


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def build_situation(
    *,
    queues: int = 8,
    brokers: int = 1,
    members: int = 3,
    rooms: int | None = None,
    lag: str = "",
    then: MemberChange | None = None,
    who: str | None = None,
) -> Situation:
    """Make a situation from a command's options. Raises UsageError for impossible numbers."""
    if queues < brokers:
        raise UsageError(f"{queues} queues are too few for {brokers} brokers to have one each")
    room_names = [f"room{n + 1}" for n in range(rooms or min(brokers, 2))]
    made = _queues(queues, brokers, room_names)
    names = [f"c{n:0{len(str(members + 1))}}" for n in range(1, members + 2)]
    present = names[:-1]
    return Situation(
        queues=made,
        members=present,
        rooms=room_names,
        lag=dict(zip(made, _lags(lag, queues), strict=True)) if lag else {},
        then=then,
        changed_member=_changed_member(then, who, present, names[-1]),
    )


def _queues(count: int, brokers: int, rooms: Sequence[str]) -> Sequence[MessageQueue]:
    """Queues in order of brokers, which are named as MACHINE_ROOM expects: `room1@broker-a`."""
    size, larger = divmod(count, brokers)
    made: list[MessageQueue] = []
    for broker in range(brokers):
        name = f"{rooms[broker % len(rooms)]}@broker-{chr(ord('a') + broker)}"
        made += [MessageQueue(TOPIC, name, n) for n in range(size + (broker < larger))]
    return made


def _lags(text: str, queues: int) -> Sequence[int]:
    try:
        lags = [int(number) for number in text.split(",")]
    except ValueError:
        raise UsageError(f"--lag: {text!r} is not a list of numbers such as 5,0,9") from None
    if min(lags) < 0:
        raise UsageError(f"--lag: {min(lags)} messages cannot wait")
    if len(lags) != queues:
        raise UsageError(f"--lag has {len(lags)} numbers: one for each of {queues} queues is due")
    return lags


def _changed_member(
    then: MemberChange | None, named_member: str | None, members: Sequence[str], newcomer: str
) -> str:
    if then not in (MemberChange.LEAVE, MemberChange.KILL):
        if named_member is not None:
            raise UsageError("--who says who leaves or is killed: use it with --then leave or kill")
        return newcomer if then else ""
    if len(members) == 1:
        raise UsageError("nobody would be left: --then leave and kill need two members")
    who = members[-1] if named_member is None else named_member
    if who not in members:
        raise UsageError(f"--who: there is no member {who!r}{suggest(who, members)}")
    return who
