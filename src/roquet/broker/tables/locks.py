"""Queue locks: which member of an ordered group handles a queue (never saved)."""

from collections.abc import Iterable
from typing import Final

from roquet.model.queue import MessageQueue

LIFETIME_MS: Final = 60_000
"""Clients renew every 20 s: a holder that missed three renewals has gone."""


class Locks:
    """One holder for each queue of a group, until it gives it back or stops renewing."""

    def __init__(self) -> None:
        self._held: dict[str, dict[MessageQueue, tuple[str, int]]] = {}
        """Group → queue → holder, and when its hold ends."""

    def lock(
        self, group: str, member: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Take or renew what is free or one's own; gives the queues that the member holds now."""
        held = self._held.setdefault(group, {})
        got = []
        for queue in queues:
            holder, until_ms = held.get(queue, (member, 0))
            if holder == member or until_ms <= now_ms:
                held[queue] = (member, now_ms + LIFETIME_MS)
                got.append(queue)
        return got

    def unlock(self, group: str, member: str, queues: Iterable[MessageQueue]) -> None:
        """Give back what the member holds; what others hold stays theirs."""
        held = self._held.get(group, {})
        for queue in queues:
            if held.get(queue, ("", 0))[0] == member:
                del held[queue]
        if not held:
            self._held.pop(group, None)

    def has_any(self, group: str, now_ms: int) -> bool:
        """Whether a member holds a queue of the group: then its messages are handled in order."""
        held = self._held.get(group, {})
        return any(until_ms > now_ms for _, until_ms in held.values())

    def release(self, group: str, member: str) -> None:
        """Give back all that a member holds: it has gone."""
        self.unlock(group, member, list(self._held.get(group, ())))

    def expire(self, now_ms: int) -> None:
        """Forget holds that have ended."""
        for group, held in list(self._held.items()):
            for queue in [q for q, (_, until_ms) in held.items() if until_ms <= now_ms]:
                del held[queue]
            if not held:
                del self._held[group]
