"""Commit records in an object store: the records of a directory as a journal, a lease for its lock.

The change that adds an `open` record decides the batch; one change replaces it by `done`. A killed
driver's lease ends by itself, and a driver that could not renew its lease commits nothing more.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.journal.object_lease import LeaseHeld, LeaseTimes, ObjectLease
from roquet.lake.objects.object_location import ObjectLocation
from roquet.log_records import logger
from roquet.model.errors import RoquetError, StoreError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.sink.commit_records import (
    CommitRecord,
    RecordName,
    already_decided,
    batches_by_query,
    decode_record,
    done_content,
    encode_record,
    parse_names,
    superseded,
)

log = logger(__name__)

LEASE_TIMES: Final = LeaseTimes(lease_ms=25_000, renew_ms=8_000, grace_ms=15_000)
"""Together they are shorter than a write waits by default: the driver after a killed one goes on.
The grace is longer than a commit is under way (QUIET_MS of finish_batch)."""

POLL_MS: Final = 2_000
"""Pause between two looks at whether another driver's lease has ended."""

KEEP_S: Final = 1.0
"""How often it is seen whether the own lease is due."""


class ObjectCommitRecords:
    """The commit records below a URL."""

    def __init__(self, location: ObjectLocation) -> None:
        self._location = location
        self._journal = ObjectJournal(location)
        self._turn = threading.Lock()
        self._lease: ObjectLease | None = None

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

    def batches(self) -> dict[str, frozenset[int]]:
        """Numbers of the decided batches by query."""
        return batches_by_query(self._names())

    def is_recorded(self, query: str, batch: int) -> bool:
        """Whether a batch is decided."""
        return any((name.query, name.batch) == (query, batch) for name in self._names())

    @property
    def is_any_open(self) -> bool:
        """Whether a batch is decided and unfinished; without the lease this may change at once."""
        return any(name.state == "open" for name in self._names())

    def open(self) -> list[CommitRecord]:
        """Decided, unfinished batches in order; call it with the lease."""
        names = sorted(name for name in self._names() if name.state == "open")
        with self._turn:
            return [
                decode_record(self._journal.content(str(name)), self._location.file(str(name)))
                for name in names
            ]

    def write(self, record: CommitRecord) -> None:
        """Decide a batch; UsageError when it is already decided."""
        if self.is_recorded(record.query, record.batch):
            raise already_decided(record)
        self.check_lock()
        with self._turn:
            self._journal.change({_name(record, "open"): encode_record(record)})

    def done(self, record: CommitRecord, *, forget: bool = False) -> None:
        """Mark a batch as finished; `forget` it when it cannot be run again."""
        done = {} if forget else {_name(record, "done"): done_content(record)}
        with self._turn:
            old = superseded(parse_names([*self._journal.names(), *done]), record.query)
            self._journal.change(done, [_name(record, "open"), *map(str, old)])

    def _names(self) -> list[RecordName]:
        with self._turn:
            self._journal.read()
            return parse_names(self._journal.names())

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


def _name(record: CommitRecord, state: str) -> str:
    return str(RecordName(record.query, record.batch, state))
