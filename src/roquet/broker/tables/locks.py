"""Locks: the member of an ordered group that holds each queue (in memory only)."""

from collections.abc import Iterable
from typing import Final

from roquet.model.queue import MessageQueue

LIFETIME_MS: Final = 60_000
"""Ms that a lock is valid. Clients renew every 20 s: after three missed renewals it is free."""


class Locks:
    """One holder for each queue of a group, until it unlocks or stops renewing."""

    def __init__(self) -> None:
        self._held: dict[str, dict[MessageQueue, tuple[str, int]]] = {}
        """Group → queue → holder, and the monotonic ms at which its lock ends."""

    def lock(
        self, group: str, member: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[MessageQueue]:
        """Lock or renew queues that are free or the member's own.

        Returns those that it holds now.
        """
        held = self._held.setdefault(group, {})
        got = []
        for queue in queues:
            holder, until_ms = held.get(queue, (member, 0))
            if holder == member or until_ms <= now_ms:
                held[queue] = (member, now_ms + LIFETIME_MS)
                got.append(queue)
        return got

    def unlock(self, group: str, member: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock the queues that the member holds; those of others stay locked."""
        held = self._held.get(group, {})
        for queue in queues:
            if held.get(queue, ("", 0))[0] == member:
                del held[queue]
        if not held:
            self._held.pop(group, None)

    def has_any(self, group: str, now_ms: int) -> bool:
        """Whether a queue of the group is locked: then its messages are consumed in order."""
        held = self._held.get(group, {})
        return any(until_ms > now_ms for _, until_ms in held.values())

    def release(self, group: str, member: str) -> None:
        """Unlock all queues of a member that has gone."""
        self.unlock(group, member, list(self._held.get(group, ())))

    def clear(self) -> None:
        """Unlock everything: another broker grants locks from now on."""
        self._held.clear()

    def expire(self, now_ms: int) -> None:
        """Remove locks that have expired."""
        for group, held in list(self._held.items()):
            for queue in [q for q, (_, until_ms) in held.items() if until_ms <= now_ms]:
                del held[queue]
            if not held:
                del self._held[group]
