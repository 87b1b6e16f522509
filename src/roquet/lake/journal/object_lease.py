"""Object lease: one process at a time works with a journal, until it has not renewed its lease.

    with ObjectLease(journal, "another repair") as lease:
        …
        lease.hold()   # before each step that two processes must not make at once

An object store has no lock that ends with its process. A lease ends by itself: its holder goes by
the time since its own last renewal, others by the age of the record on the store's clock, and the
difference, `grace_ms`, is for clocks that do not run alike and for a step that is on its way.
"""

from typing import Final, NamedTuple, Self

from roquet.lake.journal.object_journal import JournalConflict, ObjectJournal
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.net.clock import SYSTEM_CLOCK, Clock, boottime

log = logger(__name__)

LEASE: Final = "lease"
"""The name of its record."""


class LeaseTimes(NamedTuple):
    """How long a lease lasts, in ms."""

    lease_ms: int = 300_000
    """After a renewal the holder may work for this time."""
    renew_ms: int = 60_000
    """Age from which the lease is renewed."""
    grace_ms: int = 60_000
    """Time that others wait in addition."""


class LeaseHeld(RoquetError):
    """Another process works, or was killed a short time ago; the text says when to try again."""


class ObjectLease:
    """The lease of a journal, held until `close`."""

    def __init__(
        self,
        journal: ObjectJournal,
        holder: str,
        times: LeaseTimes | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Take the lease. `holder` names who else may have it, such as "another repair"."""
        self._journal, self._holder, self._times = journal, holder, times or LeaseTimes()
        self._elapsed_ms = boottime(clock)
        journal.read()
        self._revision = journal.revision(LEASE)
        if LEASE in journal.names():
            left_ms = self._times.lease_ms + self._times.grace_ms - journal.age_ms(LEASE)
            if left_ms > 0:
                raise LeaseHeld(
                    f"{holder} works here, or was killed a short time ago: start again when it has "
                    f"ended, or in {-(-left_ms // 1000)} s"
                )
            log.warning("%s did not end its work: going on with it", holder)
        self._renew()

    def check(self) -> None:
        """Raise LeaseHeld when the lease may have ended; asks the store for nothing."""
        age_ms = self._age_ms()
        if age_ms >= self._times.lease_ms:
            raise LeaseHeld(
                f"the lease was not renewed for {age_ms // 1000} s, and {self._holder} may work "
                "now: start again"
            )

    def hold(self) -> None:
        """Renew the lease when it is due; LeaseHeld when it may have ended."""
        self.check()
        if self._age_ms() >= self._times.renew_ms:
            self._renew()

    def close(self) -> None:
        """End the lease; where that fails it ends by itself."""
        if self._journal.revision(LEASE) != self._revision:
            return  # another process has it
        try:
            self._journal.change({}, [LEASE])
        except RoquetError as error:
            log.warning("the lease ends by itself: %s", error)

    def _age_ms(self) -> int:
        return self._elapsed_ms() - self._renewed_ms

    def _renew(self) -> None:
        begun_ms = self._elapsed_ms()
        text = f"{self._holder} has begun to work here, too: start again when it has ended"
        if self._journal.revision(LEASE) != self._revision:
            raise LeaseHeld(text)
        try:
            self._journal.change({LEASE: b"{}"})
        except JournalConflict as error:
            raise LeaseHeld(text) from error
        self._revision, self._renewed_ms = self._journal.revision(LEASE), begun_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
