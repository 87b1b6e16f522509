"""Handover: a member that takes over a queue waits for the commit of the member before it.

Activity of members is reported here; rules.balance.handover decides who waits, and how long.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from roquet.broker.tables.clients import Clients
from roquet.broker.tables.observed_owners import ObservedOwners, TopicQueue
from roquet.net.clock import Clock
from roquet.net.router import Peer


class QueueTakeover(msgspec.Struct, frozen=True):
    """A wait for the commit of a queue's former owner."""

    group: str
    queue: TopicQueue
    loser: str
    deadline_ms: int


class Handover:
    """Observes which member is active on which queue, and holds back its successor."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._holders = ObservedOwners()
        self._waiting: dict[asyncio.Event, QueueTakeover] = {}
        self._closed = False

    def seen(self, group: str, topic: str, queue_id: int, peer: Peer) -> None:
        """Somebody pulls from a queue."""
        if (member := self._clients.member(group, peer)) is not None:
            self._holders.seen(group, (topic, queue_id), member, self._clock.monotonic_ms())

    def committed(self, group: str, topic: str, queue_id: int, peer: Peer) -> None:
        """Somebody has saved progress in a queue."""
        if (member := self._clients.member(group, peer)) is None:
            return
        queue = (topic, queue_id)
        self._holders.committed(group, queue, member, self._clock.monotonic_ms())
        for event, taking in self._waiting.items():
            if (taking.group, taking.queue) == (group, queue):
                event.set()

    def taking(self, group: str, topic: str, queue_id: int, peer: Peer) -> QueueTakeover | None:
        """Somebody asks where to read on: what it has to wait for, if anything."""
        member = self._clients.member(group, peer)
        if member is None or self._closed:
            return None
        queue, now_ms = (topic, queue_id), self._clock.monotonic_ms()
        loser, wait_ms = self._holders.taken(group, queue, member, now_ms)
        if loser is None or wait_ms <= 0:
            return None
        return QueueTakeover(group, queue, loser, now_ms + wait_ms)

    async def wait(self, taking: QueueTakeover) -> None:
        """Return at the commit, when it can no longer come, or at the deadline."""
        event = asyncio.Event()
        self._waiting[event] = taking
        left_ms = taking.deadline_ms - self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(left_ms / 1000):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            del self._waiting[event]

    def changed(self, groups: Iterable[str]) -> None:
        """Note that members or subscriptions of groups changed: queues may change owners now."""
        now_ms = self._clock.monotonic_ms()
        for group in groups:
            self._holders.changed(group, now_ms)

    def queues_changed(self) -> None:
        """Note that a topic has other queues now: those of any group may change owners."""
        self.changed(self._holders.groups())

    def left(self, group: str, member: str) -> None:
        """Wake the waits for a member that has left: its commit will not come."""
        if self._clients.consumers(group) is None:
            self._holders.ended(group)
        else:
            self._holders.left(group, member)
        for event, taking in self._waiting.items():
            if (taking.group, taking.loser) == (group, member):
                event.set()

    def owners(self, group: str, topic: str, queue_id: int) -> list[str]:
        """The members observed on a queue."""
        return self._holders.owners(group, (topic, queue_id), self._clock.monotonic_ms())

    def close(self) -> None:
        """Wake all waits: the broker is stopping."""
        self._closed = True
        for event in self._waiting:
            event.set()
