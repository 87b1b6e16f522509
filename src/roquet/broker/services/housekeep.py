"""Housekeep: save tables, index, delete expired files, forget the silent; each a small step."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from roquet.broker.services.arrivals import Arrivals
from roquet.broker.tables.clients import Clients
from roquet.broker.tables.locks import Locks
from roquet.broker.tables.table import Table
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.store.store import Store

RETENTION_MS: Final = 10_000
SCAN_MS: Final = 10_000
"""How often the disk, and the silent, are looked at: as often as the genuine broker does."""

INDEX_MS: Final = 100
"""A message can be found by key so soon after it was stored, when there is time for it."""

INDEX_COUNT: Final = 128
"""Messages indexed in one step: less than a millisecond in which nothing else is served."""

SCRUB_MS: Final = 50
SCRUB_BYTES: Final = 512 * 1024
"""After a crash the older log is looked through in such pieces, a few percent of a core."""


class Housekeeping(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be done now and then."""

    clock: Clock
    store: Store
    tables: Sequence[Table[Any]]
    clients: Clients
    locks: Locks
    arrivals: Arrivals
    forget: Callable[[Peer], object]

    async def save(self, _now_ms: int = 0) -> None:
        """Write the tables that changed, in a thread."""
        for table in self.tables:
            if work := table.saving():
                try:
                    await asyncio.to_thread(work)
                except BaseException:
                    table.unsaved = True
                    raise

    def scan(self, _now_ms: int = 0) -> None:
        """Forget clients, locks and marks of those who have gone."""
        now_ms = self.clock.monotonic_ms()
        for peer in self.clients.silent(now_ms):
            self.forget(peer)
        self.locks.expire(now_ms)
        self.arrivals.sweep()

    def expire(self, now_ms: int) -> None:
        """Delete what retention lets go."""
        self.store.expire(now_ms)

    async def index(self, _now_ms: int = 0) -> None:
        """Index what was stored, a little at a time."""
        while self.store.dispatch(INDEX_COUNT):  # noqa: ASYNC110 - lets others go first
            await asyncio.sleep(0)

    async def scrub(self) -> None:
        """Look through the older log, once."""
        while self.store.scrub(SCRUB_BYTES):
            await self.clock.sleep(SCRUB_MS)
