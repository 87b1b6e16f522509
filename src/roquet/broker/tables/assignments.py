"""AssignmentTable: how the broker divided the queues of groups (in memory only).

A snapshot names the members and queues that it holds for; while these stay the same, every request
gets the same snapshot. After a restart there are none.
"""

from collections.abc import Mapping, Sequence

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment


class AssignmentSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One decision: the queues of each member."""

    number: int = 0
    strategy: str
    members: tuple[str, ...]
    queues: tuple[MessageQueue, ...]
    shares: GroupAssignment
    decided_ms: int = 0
    """Monotonic ms when it was made or last confirmed."""

    @property
    def owners(self) -> dict[MessageQueue, str]:
        """Each queue's owner."""
        return {queue: member for member, share in self.shares.items() for queue in share}


class AssignmentTable:
    """The latest snapshot of each group and topic, and the strategy that each member asked for."""

    def __init__(self) -> None:
        self._snapshots: dict[str, dict[str, AssignmentSnapshot]] = {}
        self._strategies: dict[str, dict[str, str]] = {}
        self._worked_out: dict[str, dict[tuple[str, str], AssignmentSnapshot]] = {}

    def get(self, group: str, topic: str) -> AssignmentSnapshot | None:
        """The current snapshot of a group and topic; None without one."""
        return self._snapshots.get(group, {}).get(topic)

    def put(self, group: str, topic: str, snapshot: AssignmentSnapshot) -> None:
        """Store a decision."""
        self._snapshots.setdefault(group, {})[topic] = snapshot

    def worked_out(self, group: str, topic: str, strategy: str) -> AssignmentSnapshot | None:
        """The last result of a strategy that members could also compute themselves."""
        return self._worked_out.get(group, {}).get((topic, strategy))

    def work_out(self, group: str, topic: str, snapshot: AssignmentSnapshot) -> None:
        """Store such a result, for the other members that will ask."""
        self._worked_out.setdefault(group, {})[topic, snapshot.strategy] = snapshot

    def of(self, group: str) -> Mapping[str, AssignmentSnapshot]:
        """The snapshots of a group, by topic."""
        return self._snapshots.get(group, {})

    def note_strategy(self, group: str, member: str, strategy: str) -> None:
        """Note the strategy that a member asks for."""
        self._strategies.setdefault(group, {})[member] = strategy

    def strategies(self, group: str) -> Mapping[str, str]:
        """The strategies that members asked for; all should be the same."""
        return self._strategies.get(group, {})

    def left(self, group: str, member: str, rest: Sequence[str]) -> None:
        """Forget the strategy of a member that has left; forget everything with the last member."""
        if rest:
            self._strategies.get(group, {}).pop(member, None)
        else:
            self._strategies.pop(group, None)
            self._snapshots.pop(group, None)
            self._worked_out.pop(group, None)
