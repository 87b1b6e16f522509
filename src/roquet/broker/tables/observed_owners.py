"""Holders: who was seen at which queue (never saved)."""

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
"""A topic of this broker, and the id of one of its queues."""


class _Group(msgspec.Struct):
    """What was seen of one group."""

    holds: dict[TopicQueue, dict[str, QueueActivity]] = msgspec.field(default_factory=dict)
    changed_ms: int = NEVER
    committed: set[TopicQueue] = msgspec.field(default_factory=set)
    """Queues of which progress was saved since the members changed."""
    first_asked_ms: dict[str, int] = msgspec.field(default_factory=dict)
    """When each taker asked first since then."""


class ObservedOwners:
    """Signs of work: saved progress, pulls that wait, and the question where to read on."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def seen(self, group: str, place: TopicQueue, member: str, now_ms: int) -> None:
        """A member pulls from a queue."""
        hold = self._last(group, place, member)
        if hold.begun_ms == NEVER:
            hold.begun_ms = now_ms
        hold.seen_ms = now_ms

    def committed(self, group: str, place: TopicQueue, member: str, now_ms: int) -> None:
        """A member saved its progress in a queue: perhaps the last thing that it does there."""
        known = self._groups.get(group)
        holds = known.holds.get(place, {}) if known else {}
        hold = holds.get(member)
        if hold is None or hold.begun_ms == NEVER or next(reversed(holds)) == member:
            self.seen(group, place, member, now_ms)
        else:  # another one took the queue: this must not look as if it came back
            hold.seen_ms = now_ms
        self._groups[group].committed.add(place)

    def taken(
        self, group: str, place: TopicQueue, member: str, now_ms: int
    ) -> tuple[str | None, int]:
        """A member asks where to read on: whose commit it waits for, and how long at most."""
        known = self._groups.get(group)
        before = known.holds.get(place, {}) if known else {}
        other = previous_owner(before, member)
        hold = self._last(group, place, member)
        if other is not None:
            hold.begun_ms = NEVER
        known = self._groups[group]
        if other is None or known.changed_ms == NEVER or place in known.committed:
            return None, 0
        first_ms = known.first_asked_ms.setdefault(member, now_ms)
        return other, handover_wait_ms(now_ms, known.changed_ms, first_ms)

    def changed(self, group: str, now_ms: int) -> None:
        """The members of a group, or the queues, have changed: queues may change hands now."""
        if (known := self._groups.get(group)) is not None:
            known.changed_ms = now_ms
            known.committed.clear()
            known.first_asked_ms.clear()

    def left(self, group: str, member: str) -> None:
        """A member has left its group, or died: it holds nothing."""
        if (known := self._groups.get(group)) is not None:
            known.first_asked_ms.pop(member, None)
            for place, holds in list(known.holds.items()):
                holds.pop(member, None)
                if not holds:
                    del known.holds[place]

    def ended(self, group: str) -> None:
        """A group has no members any more."""
        self._groups.pop(group, None)

    def groups(self) -> list[str]:
        """The groups of which somebody was seen."""
        return list(self._groups)

    def owners(self, group: str, place: TopicQueue, now_ms: int) -> list[str]:
        """Who works on a queue."""
        known = self._groups.get(group)
        return active_owners(known.holds.get(place, {}), now_ms) if known else []

    def _last(self, group: str, place: TopicQueue, member: str) -> QueueActivity:
        """What is known of a member, who is the last one at the queue now."""
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group()
        holds = known.holds.get(place)
        if holds is None:
            holds = known.holds[place] = {}
        hold = holds[member] = holds.pop(member, QueueActivity())
        return hold
