"""ObservedOwners: which member was last active on which queue (in memory only)."""

from typing import TypeAlias

import msgspec

from roquet.rules.balance.handover import (
    NEVER,
    QueueActivity,
    active_owners,
    handover_wait_ms,
    previous_owner,
)

TopicQueue: TypeAlias = tuple[str, int]
"""A topic of this broker and the id of one of its queues."""


class _Group(msgspec.Struct):
    """Observations of one group."""

    holds: dict[TopicQueue, dict[str, QueueActivity]] = msgspec.field(default_factory=dict)
    changed_ms: int = NEVER
    committed: set[TopicQueue] = msgspec.field(default_factory=set)
    """Queues with a commit since the members changed."""
    first_asked_ms: dict[str, int] = msgspec.field(default_factory=dict)
    """Monotonic ms when each member first queried an offset since then."""


class ObservedOwners:
    """Activity of members: commits, pulls, and queries of a group's offset."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def seen(self, group: str, queue: TopicQueue, member: str, now_ms: int) -> None:
        """Note that a member pulls from a queue."""
        hold = self._last(group, queue, member)
        if hold.begun_ms == NEVER:
            hold.begun_ms = now_ms
        hold.seen_ms = now_ms

    def committed(self, group: str, queue: TopicQueue, member: str, now_ms: int) -> None:
        """Note a commit of a member, perhaps the last one before another member takes over."""
        known = self._groups.get(group)
        holds = known.holds.get(queue, {}) if known else {}
        hold = holds.get(member)
        if hold is None or hold.begun_ms == NEVER or next(reversed(holds)) == member:
            self.seen(group, queue, member, now_ms)
        else:  # another member has taken over: this commit must not look like a return
            hold.seen_ms = now_ms
        self._groups[group].committed.add(queue)

    def taken(
        self, group: str, queue: TopicQueue, member: str, now_ms: int
    ) -> tuple[str | None, int]:
        """Note that a member queries an offset.

        The member whose commit it waits for, and the ms.
        """
        known = self._groups.get(group)
        before = known.holds.get(queue, {}) if known else {}
        other = previous_owner(before, member)
        hold = self._last(group, queue, member)
        if other is not None:
            hold.begun_ms = NEVER
        known = self._groups[group]
        if other is None or known.changed_ms == NEVER or queue in known.committed:
            return None, 0
        first_ms = known.first_asked_ms.setdefault(member, now_ms)
        return other, handover_wait_ms(now_ms, known.changed_ms, first_ms)

    def changed(self, group: str, now_ms: int) -> None:
        """Note that members or queues of a group have changed: queues may change owners now."""
        if (known := self._groups.get(group)) is not None:
            known.changed_ms = now_ms
            known.committed.clear()
            known.first_asked_ms.clear()

    def left(self, group: str, member: str) -> None:
        """Remove a member that has left its group or died."""
        if (known := self._groups.get(group)) is not None:
            known.first_asked_ms.pop(member, None)
            for queue, holds in list(known.holds.items()):
                holds.pop(member, None)
                if not holds:
                    del known.holds[queue]

    def ended(self, group: str) -> None:
        """Forget a group without members."""
        self._groups.pop(group, None)

    def groups(self) -> list[str]:
        """The groups with observations."""
        return list(self._groups)

    def owners(self, group: str, queue: TopicQueue, now_ms: int) -> list[str]:
        """The members that are active on a queue."""
        known = self._groups.get(group)
        return active_owners(known.holds.get(queue, {}), now_ms) if known else []

    def _last(self, group: str, queue: TopicQueue, member: str) -> QueueActivity:
        """The activity of a member on a queue, moved to the end as the latest one."""
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group()
        holds = known.holds.get(queue)
        if holds is None:
            holds = known.holds[queue] = {}
        hold = holds.pop(member, None) or QueueActivity()
        holds[member] = hold
        return hold
