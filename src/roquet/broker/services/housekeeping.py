"""Housekeep: save tables, index, delete expired files, forget the silent; each a small step."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from roquet.broker.log.long_polling import LongPolling
from roquet.broker.tables.clients import Clients
from roquet.broker.tables.locks import Locks
from roquet.broker.tables.saved_table import SavedTable
from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.rules.retention import RetentionClock
from roquet.store.store import Store

log = logger(__name__)

RETENTION_MS: Final = 10_000
"""How often the disk is looked at: as often as the genuine broker does."""

SCAN_MS: Final = 1_000
"""How often the silent are looked for: ten times as often, since their queues wait so long."""

INDEX_MS: Final = 100
"""A message can be found by key so soon after it was stored, when there is time for it."""

INDEX_COUNT: Final = 128
"""Messages indexed in one step: less than a millisecond in which nothing else is served."""

INDEX_MANY: Final = 256
INDEX_SOON_MS: Final = 5
"""When there were so many, the next look is soon: what waits is in memory as long as it is not too
much, and is indexed from there in a fraction of the time that reading it again takes."""

SCRUB_MS: Final = 50
SCRUB_BYTES: Final = 512 * 1024
"""The older log is looked through in such pieces, a few percent of a core."""

SCRUB_LATE_MS: Final = 2
"""A pause that lasted so much longer than it was to: others have work, and go first."""

SCRUB_PAUSES_MAX: Final = 10
"""Pauses between two pieces at most: however busy the broker is, a megabyte a second is done."""


class Housekeeping(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be done now and then."""

    clock: Clock
    store: Store
    tables: Sequence[SavedTable[Any]]
    clients: Clients
    locks: Locks
    arrivals: LongPolling
    forget: Callable[[Peer], object]
    age_clock: RetentionClock = msgspec.field(default_factory=RetentionClock)

    async def save(self, _now_ms: int = 0) -> None:
        """Write the tables that changed, in a thread; what fails is tried again the next time.

        One that cannot be written does not keep the others from it. Raises the last error.
        """
        failure: Exception | None = None
        for table in self.tables:
            try:
                # Progress that outlived the note of who was given a message would lose the message.
                await table.saved(self.store.flush_log)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure

    def scan(self, _now_ms: int = 0) -> None:
        """Forget clients, locks and marks of those who have gone."""
        now_ms = self.clock.monotonic_ms()
        for peer in self.clients.silent(now_ms):
            try:
                self.forget(peer)
            except Exception:  # the others must not be remembered for it
                log.exception("the silent client at %s cannot be forgotten", peer.address)
                self.clients.drop(peer)
        self.locks.expire(now_ms)
        self.arrivals.sweep()

    def expire(self, now_ms: int) -> None:
        """Delete what retention lets go; by a clock that has jumped nothing is too old at once."""
        self.store.expire(self.age_clock.believed_ms(now_ms, self.clock.monotonic_ms()))

    async def index(self, _now_ms: int = 0) -> None:
        """Index what was stored, a little at a time; while it is much, every few milliseconds."""
        count = INDEX_MANY
        while count >= INDEX_MANY:
            count = 0
            while taken := self.store.dispatch(INDEX_COUNT):
                count += taken
                await asyncio.sleep(0)  # lets others go first
            if count >= INDEX_MANY:
                await self.clock.sleep(INDEX_SOON_MS)

    def _scrub_piece(self) -> bool:
        """Look at a piece; whether there is more. One that cannot be looked at is passed over."""
        try:
            return self.store.scrub(SCRUB_BYTES)
        except StoreError as error:  # what is to be set right there cannot be
            log.warning("the older log is looked at after the next start: %s", error)
            return False
        except Exception:
            log.exception("a piece of the log cannot be looked at; going on behind it")
            return self.store.skip_scrub(SCRUB_BYTES)

    async def scrub(self) -> None:
        """Look through the older log, once, slowly while the broker is busy."""
        while self._scrub_piece():
            for _ in range(SCRUB_PAUSES_MAX):
                began_ms = self.clock.monotonic_ms()
                await self.clock.sleep(SCRUB_MS)
                if self.clock.monotonic_ms() - began_ms < SCRUB_MS + SCRUB_LATE_MS:
                    break
