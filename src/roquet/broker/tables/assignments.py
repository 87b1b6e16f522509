"""Assignments: how the broker divided the queues of groups (never saved).

A snapshot says for which members and queues it holds; whoever asks while these are the same gets
the same one. After a restart there are none.
"""

from collections.abc import Mapping, Sequence

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment


class AssignmentSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One decision: whose queue is whose."""

    number: int = 0
    strategy: str
    members: tuple[str, ...]
    queues: tuple[MessageQueue, ...]
    shares: GroupAssignment
    decided_ms: int = 0
    """When it was made, or last found to be good still."""

    @property
    def owners(self) -> dict[MessageQueue, str]:
        """Each queue's owner."""
        return {queue: member for member, share in self.shares.items() for queue in share}


class AssignmentTable:
    """The latest snapshot of each group and topic, and which strategy each member asked for."""

    def __init__(self) -> None:
        self._snapshots: dict[str, dict[str, AssignmentSnapshot]] = {}
        self._asked: dict[str, dict[str, str]] = {}
        self._worked_out: dict[str, dict[tuple[str, str], AssignmentSnapshot]] = {}

    def get(self, group: str, topic: str) -> AssignmentSnapshot | None:
        """How a topic is divided now."""
        return self._snapshots.get(group, {}).get(topic)

    def put(self, group: str, topic: str, snapshot: AssignmentSnapshot) -> None:
        """Note a decision."""
        self._snapshots.setdefault(group, {})[topic] = snapshot

    def worked_out(self, group: str, topic: str, strategy: str) -> AssignmentSnapshot | None:
        """What a rule that members could follow themselves gave last."""
        return self._worked_out.get(group, {}).get((topic, strategy))

    def work_out(self, group: str, topic: str, snapshot: AssignmentSnapshot) -> None:
        """Note that, for the others who will ask."""
        self._worked_out.setdefault(group, {})[topic, snapshot.strategy] = snapshot

    def of(self, group: str) -> Mapping[str, AssignmentSnapshot]:
        """How a group's topics are divided."""
        return self._snapshots.get(group, {})

    def asked(self, group: str, member: str, strategy: str) -> None:
        """Note what a member asks for."""
        self._asked.setdefault(group, {})[member] = strategy

    def strategies(self, group: str) -> Mapping[str, str]:
        """What the members asked for: all should want the same."""
        return self._asked.get(group, {})

    def left(self, group: str, member: str, rest: Sequence[str]) -> None:
        """Forget what a member asked for that has gone, and all when it was the last one."""
        if rest:
            self._asked.get(group, {}).pop(member, None)
        else:
            self._asked.pop(group, None)
            self._snapshots.pop(group, None)
            self._worked_out.pop(group, None)
