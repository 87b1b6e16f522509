"""Replica copies: replicas that wait for changes of the tables, and what they have copied.

    topic made ─▶ saved ─▶ each replica of ours has saved it, or a second has passed ─▶ answered

A replica that asks for changes says what it has copied. So whoever is told that a topic exists
finds it at the next master, too. Replicas of Apache's say nothing, and nobody waits for them. All
of it is in memory only.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from roquet.net.clock import Clock
from roquet.net.router import Peer

WAITERS_MAX: Final = 32
"""Requests that may wait: each looks at the tables every few milliseconds. More than a group has
replicas, and few enough that nobody stops the broker with such requests."""


WAIT_MS: Final = 1_000
"""Longest wait in ms: copies take about a tenth of that."""

SILENCE_MS: Final = 3_000
"""Ms since its last answer after which a replica that asks no more is not waited for: its process
hangs, or it has another master. It asks again within 50 ms otherwise."""


class ChangeWaiters:
    """Counts the requests that wait for a change of the tables."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def place(self) -> Iterator[bool]:
        """A place for one request while the block lasts; False when all are taken."""
        is_free = self.count < WAITERS_MAX
        self.count += is_free
        try:
            yield is_free
        finally:
            self.count -= is_free


class ReplicaCopy(msgspec.Struct):
    """One replica that asks for changes."""

    topics: int
    groups: int
    """Editions that it has copied."""
    answered_ms: int | None = None
    """Monotonic ms of the answer to its last question; None: it waits for one."""

    def is_silent(self, now_ms: int) -> bool:
        """Whether it has not asked for long since its last answer."""
        return self.answered_ms is not None and now_ms - self.answered_ms >= SILENCE_MS


class ReplicaCopies:
    """Copies of the topics and groups at replicas, by their connections."""

    def __init__(self) -> None:
        self._replicas: dict[Peer, ReplicaCopy] = {}
        self._asked = asyncio.Event()
        self.unknown: dict[str, int] = {}
        """Topics that a send has made, and that a replica may lack: the edition that has each."""

    def __len__(self) -> int:
        return len(self._replicas)

    def asks(self, peer: Peer, *, topics: int, groups: int) -> None:
        """Note a replica's question for changes, and the editions that it has copied.

        Nobody waits for more replicas than may wait for changes at once.
        """
        if peer not in self._replicas:
            if len(self._replicas) >= WAITERS_MAX:
                return
            peer.on_close(self.forget)
        self._replicas[peer] = ReplicaCopy(topics, groups)
        self._drop_known()
        self._wake()

    def answered(self, peer: Peer, now_ms: int) -> None:
        """Note that a replica is answered at a monotonic time: it will ask again.

        Those that have not done so for long are forgotten.
        """
        if (copy := self._replicas.get(peer)) is not None:
            copy.answered_ms = now_ms
        for other in [peer for peer, copy in self._replicas.items() if copy.is_silent(now_ms)]:
            self.forget(other)

    def forget(self, peer: Peer) -> None:
        """Forget a replica whose connection has ended."""
        self._replicas.pop(peer, None)
        self._drop_known()
        self._wake()

    def note_made(self, topic: str, edition: int) -> None:
        """Note a topic that a send has made."""
        if self._replicas:
            self.unknown[topic] = edition

    async def reach(self, clock: Clock, *, topics: int = 0, groups: int = 0) -> None:
        """Wait until replicas have copied these editions, `WAIT_MS` at most."""
        deadline_ms = clock.monotonic_ms() + WAIT_MS
        while self._is_behind(now_ms := clock.monotonic_ms(), topics, groups):
            if now_ms >= deadline_ms:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout((deadline_ms - now_ms) / 1_000):
                    await self._asked.wait()

    async def reach_made(self, clock: Clock, topic: str) -> None:
        """Wait until replicas have copied a topic that a send has made, `WAIT_MS` at most."""
        await self.reach(clock, topics=self.unknown.get(topic, 0))
        self.unknown.pop(topic, None)

    def _is_behind(self, now_ms: int, topics: int, groups: int) -> bool:
        return any(
            (copy.topics < topics or copy.groups < groups) and not copy.is_silent(now_ms)
            for copy in self._replicas.values()
        )

    def _drop_known(self) -> None:
        """Drop the topics that all replicas have copied; without replicas these are all."""
        if not self.unknown:
            return
        known = min((copy.topics for copy in self._replicas.values()), default=None)
        self.unknown = {
            topic: edition
            for topic, edition in self.unknown.items()
            if known is not None and edition > known
        }

    def _wake(self) -> None:
        self._asked.set()
        self._asked = asyncio.Event()
