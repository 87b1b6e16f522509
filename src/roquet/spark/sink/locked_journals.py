"""Locked journals: where commit records are, and what keeps other drivers away meanwhile.

A directory has a lock, which ends with the process that holds it. An object store has a lease: that
of a killed driver ends by itself, and a driver that could not renew its own commits nothing more.
"""

import fcntl
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from roquet.lake.journal.journal import DirectoryJournal
from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.journal.object_lease import LeaseHeld, LeaseTimes, ObjectLease
from roquet.lake.objects.object_location import ObjectLocation
from roquet.log_records import logger
from roquet.model.errors import RoquetError, StoreError
from roquet.net.clock import SYSTEM_CLOCK

log = logger(__name__)

LOCK_PAUSE_MS: Final = 100
"""Pause between two tries to lock a directory."""

LEASE_TIMES: Final = LeaseTimes(lease_ms=25_000, renew_ms=8_000, grace_ms=15_000)
"""Together they are shorter than a write waits by default: the driver after a killed one goes on.
The grace is longer than a commit is under way (QUIET_MS of commit)."""

POLL_MS: Final = 2_000
"""Pause between two looks at whether another driver's lease has ended."""

KEEP_S: Final = 1.0
"""How often it is seen whether the own lease is due."""


class LockedDirectory(DirectoryJournal):
    """Records in a directory, which one process at a time locks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "commit record")

    @contextmanager
    def locked(self, timeout_ms: int, pause: Callable[[int], object]) -> Iterator[None]:
        """Hold the directory's lock: a killed driver may have left a worker that still commits.

        The lock ends with the process that holds it. Raises StoreError after the timeout.
        """
        self.make()
        with (self.directory / "lock").open("a+b") as file:
            self._wait(file.fileno(), timeout_ms, pause)
            yield

    def check_lock(self) -> None:
        """Do nothing: the lock stays until its process has ended."""

    def _wait(self, handle: int, timeout_ms: int, pause: Callable[[int], object]) -> None:
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + timeout_ms
        is_logged = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                    raise StoreError(
                        f"another process is committing in {self.directory}: a query of the same "
                        "checkpoint runs, or one that was killed has left a worker behind"
                    ) from None
                if not is_logged:
                    log.warning("another process is committing in %s: waiting", self.directory)
                    is_logged = True
                pause(LOCK_PAUSE_MS)
            else:
                return


class LeasedJournal:
    """Records in an object store, with a lease that a thread renews."""

    def __init__(self, location: ObjectLocation) -> None:
        self._location = location
        self._journal = ObjectJournal(location)
        self._turn = threading.Lock()
        self._lease: ObjectLease | None = None

    def read(self) -> None:
        """Take in what other processes have changed."""
        with self._turn:
            self._journal.read()

    def names(self) -> list[str]:
        """The sorted names, as of the last `read` or `change`; that of the lease is among them."""
        with self._turn:
            return self._journal.names()

    def content(self, name: str) -> bytes:
        """The content of a record."""
        with self._turn:
            return self._journal.content(name)

    def address(self, name: str) -> str:
        """The URL of a record, for users."""
        return self._journal.address(name)

    def change(self, added: Mapping[str, bytes], removed: Collection[str] = ()) -> None:
        """Add records and remove others, all at once; JournalConflict after another's change."""
        with self._turn:
            self._journal.change(added, removed)

    @contextmanager
    def locked(self, timeout_ms: int, pause: Callable[[int], object]) -> Iterator[None]:
        """Hold the lease, which a thread renews. Raises StoreError after the timeout."""
        self._lease = lease = self._taken(timeout_ms, pause)
        is_over = threading.Event()
        keeper = threading.Thread(
            target=self._keep, args=(lease, is_over), name="roquet-commit-lease", daemon=True
        )
        keeper.start()
        try:
            yield
        finally:
            is_over.set()
            keeper.join()
            self._lease = None
            lease.close()

    def check_lock(self) -> None:
        """Raise LeaseHeld when another driver may commit."""
        assert self._lease is not None, "commits are sent with the lease"
        self._lease.check()

    def _taken(self, timeout_ms: int, pause: Callable[[int], object]) -> ObjectLease:
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + timeout_ms
        while True:
            try:
                return ObjectLease(self._journal, "another driver", LEASE_TIMES)
            except LeaseHeld as error:
                if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                    raise StoreError(
                        f"another process is committing in {self._location}: a query of the same "
                        f"checkpoint runs, or one was killed a short time ago ({error})"
                    ) from None
                log.warning("another process is committing in %s: waiting", self._location)
            pause(POLL_MS)

    def _keep(self, lease: ObjectLease, is_over: threading.Event) -> None:
        while not is_over.wait(KEEP_S):
            try:
                with self._turn:
                    lease.hold()
            except LeaseHeld:
                return  # the next commit says so
            except RoquetError as error:
                log.warning("the lease could not be renewed: %s", error)
