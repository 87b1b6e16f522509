"""Housekeeping: saves tables, indexes, expires files, forgets silent clients, scrubs the log."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from roquet.broker.log.message_log import MessageLog
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.rules.retention import RetentionClock

log = logger(__name__)

RETENTION_MS: Final = 10_000
"""Ms between two checks of the retention, as in the genuine broker."""

SCAN_MS: Final = 1_000
"""Ms between two checks for silent clients: often, since their queues wait meanwhile."""

INDEX_MS: Final = 100
"""Ms between two steps of the key index: a message can be found by its key after about so long."""

INDEX_COUNT: Final = 128
"""Messages indexed in one step: less than a millisecond in which nothing else is served."""

INDEX_MANY: Final = 256
INDEX_SOON_MS: Final = 5
"""After this many messages the next step follows soon: recent messages are in memory, and are
indexed from there in a fraction of the time that reading them again takes."""

SCRUB_MS: Final = 50
SCRUB_BYTES: Final = 512 * 1024
"""Bytes of the older log that are scrubbed in one step, or 256 records: a few percent of a core."""

SCRUB_LATE_MS: Final = 2
"""A pause that lasts this many ms longer than asked for shows that others have work: they go
first."""

SCRUB_PAUSES_MAX: Final = 10
"""Most pauses between two steps: a busy broker still scrubs two steps a second."""


class Housekeeping(msgspec.Struct, frozen=True, kw_only=True):
    """The periodic work of a broker."""

    message_log: MessageLog
    tables: BrokerTables
    forget: Callable[[Peer], object]
    clock: Clock
    age_clock: RetentionClock = msgspec.field(default_factory=RetentionClock)
    owns_progress: Callable[[], bool] = lambda: True
    """Whether groups commit here, and not at a master whose progress is copied."""

    async def save(self, now_ms: int = 0) -> None:
        """Save the changed tables in a thread; a failed one is tried again the next time.

        All tables are tried. Raises the last error.
        """
        failure: Exception | None = None
        if self.tables.offsets.unsaved and self.owns_progress():  # commits keep the version
            offsets = self.tables.offsets
            offsets.version = offsets.version.next(now_ms)
        for table in self.tables.saved_at_intervals:
            try:
                # Progress that outlived the note of who was given a message would lose the message.
                await table.saved(self.message_log.store.flush_log)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure

    def scan(self, _now_ms: int = 0) -> None:
        """Forget silent clients, expired locks and watermarks without waiters."""
        now_ms = self.clock.monotonic_ms()
        for peer in self.tables.clients.silent(now_ms):
            try:
                self.forget(peer)
            except Exception:  # the others are forgotten all the same
                log.exception("the silent client at %s cannot be forgotten", peer.address)
                self.tables.clients.drop(peer)
        self.tables.locks.expire(now_ms)
        self.message_log.arrivals.sweep()

    def expire(self, now_ms: int) -> None:
        """Delete expired files; a jump of the clock makes nothing too old at once."""
        self.message_log.store.expire(self.age_clock.believed_ms(now_ms, self.clock.monotonic_ms()))

    async def index(self, _now_ms: int = 0) -> None:
        """Index stored messages, some at a time; every few ms while there are many."""
        count = INDEX_MANY
        while count >= INDEX_MANY:
            count = 0
            while taken := self.message_log.store.dispatch(INDEX_COUNT):
                count += taken
                await asyncio.sleep(0)  # lets others go first
            if count >= INDEX_MANY:
                await self.clock.sleep(INDEX_SOON_MS)

    def _scrub_piece(self) -> bool:
        """Scrub some bytes; whether there are more. Bytes that cannot be scrubbed are skipped."""
        try:
            return self.message_log.store.scrub(SCRUB_BYTES)
        except StoreError as error:  # what is to be set right there cannot be
            log.warning("the older log is looked at after the next start: %s", error)
            return False
        except Exception:
            log.exception("a piece of the log cannot be looked at; going on behind it")
            return self.message_log.store.skip_scrub(SCRUB_BYTES)

    async def scrub(self) -> None:
        """Scrub the older log once, slowly while the broker is busy."""
        while self._scrub_piece():
            for _ in range(SCRUB_PAUSES_MAX):
                began_ms = self.clock.monotonic_ms()
                await self.clock.sleep(SCRUB_MS)
                if self.clock.monotonic_ms() - began_ms < SCRUB_MS + SCRUB_LATE_MS:
                    break
