"""Commit records: files with the half messages of a batch, written before the first is committed.

    QUERY.BATCH.open    decided; the half messages are being committed, perhaps by a killed driver
    QUERY.BATCH.done    all are committed; the batch is not written again

The `open` file is the decision: the batch is committed from the moment that it exists.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from roquet.lake.queue_offsets import OffsetsJson
from roquet.log_records import logger
from roquet.model.errors import RecordError, StoreError, UsageError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.sink.half_message_refs import SCHEMA, from_bytes, to_bytes

log = logger(__name__)

VERSION: Final = 1
DONE_RECORDS_MAX: Final = 100
"""Most records of finished batches of a query: Spark runs at most the last one again."""

LOCK_PAUSE_MS: Final = 100

_NAME: Final = re.compile(r"(?P<query>.+)\.(?P<batch>\d{12})\.(?P<state>open|done)")
_DRAFT: Final = re.compile(r"\..+\.\d{12}\.(open|done)\.\d+")
_META: Final = b"roquet"


class CommitRecord(msgspec.Struct, frozen=True):
    """A decided batch and its half messages."""

    query: str
    batch: int
    group: str
    namesrv: tuple[str, ...]
    ends: OffsetsJson
    """Latest offsets of the destination before the decision: {topic: {broker: {id: offset}}}."""
    halves: pa.Table

    @property
    def prefix(self) -> str:
        """The prefix of the row keys of its messages."""
        return f"{self.query}/{self.batch}/"


class RecordName(NamedTuple):
    """The parts of a record's name."""

    query: str
    batch: int
    state: str
    """`open` or `done`."""

    def __str__(self) -> str:
        quoted = quote(self.query, safe="").replace(".", "%2E")
        return f"{quoted}.{self.batch:012d}.{self.state}"


class CommitRecordStore(Protocol):
    """Where the commit records of queries are."""

    def locked(
        self, timeout_ms: int, pause: Callable[[int], object]
    ) -> AbstractContextManager[None]:
        """Exclude other processes that commit; StoreError after the timeout."""

    def check_lock(self) -> None:
        """Raise RoquetError when another process may commit; call it before each commit."""

    def batches(self) -> dict[str, frozenset[int]]:
        """Numbers of the decided batches by query."""

    def is_recorded(self, query: str, batch: int) -> bool:
        """Whether a batch is decided."""

    @property
    def is_any_open(self) -> bool:
        """Whether a batch is decided and unfinished; without the lock this may change at once."""

    def open(self) -> list[CommitRecord]:
        """Decided, unfinished batches in order; call it with the lock."""

    def write(self, record: CommitRecord) -> None:
        """Decide a batch; UsageError when it is already decided."""

    def done(self, record: CommitRecord, *, forget: bool = False) -> None:
        """Mark a batch as finished; `forget` it when it cannot be run again."""


class CommitRecords:
    """The commit records in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def locked(self, timeout_ms: int, pause: Callable[[int], object]) -> Iterator[None]:
        """Hold the directory's lock: a killed driver may have left a worker that still commits.

        The lock ends with the process that holds it. Raises StoreError after the timeout.
        """
        self._make()
        with (self._directory / "lock").open("a+b") as file:
            self._wait(file.fileno(), timeout_ms, pause)
            self._tidy()
            yield

    def check_lock(self) -> None:
        """Do nothing: the lock stays until its process has ended."""

    def batches(self) -> dict[str, frozenset[int]]:
        """Numbers of the decided batches by query."""
        return batches_by_query(self._files())

    def is_recorded(self, query: str, batch: int) -> bool:
        """Whether a batch is decided."""
        return any(self._path(query, batch, state).exists() for state in ("open", "done"))

    @property
    def is_any_open(self) -> bool:
        """Whether a batch is decided and unfinished; without the lock this may change at once."""
        return any(file.state == "open" for file in self._files())

    def open(self) -> list[CommitRecord]:
        """Decided, unfinished batches in order; call it with the lock."""
        paths = sorted(self._directory.glob("*.open")) if self._directory.is_dir() else []
        # With both files the driver was killed after it had finished the batch.
        paths = [path for path in paths if not path.with_suffix(".done").exists()]
        return [decode_record(path.read_bytes(), path) for path in paths]

    def write(self, record: CommitRecord) -> None:
        """Decide a batch; UsageError when it is already decided."""
        self._make()
        if self.is_recorded(record.query, record.batch):
            raise already_decided(record)
        self._publish(self._path(record.query, record.batch, "open"), encode_record(record))

    def done(self, record: CommitRecord, *, forget: bool = False) -> None:
        """Mark a batch as finished; `forget` it when it cannot be run again."""
        if not forget and not self._path(record.query, record.batch, "done").exists():
            self._publish(self._path(record.query, record.batch, "done"), done_content(record))
        self._path(record.query, record.batch, "open").unlink(missing_ok=True)
        self._prune(record.query)
        self._sync()

    def _tidy(self) -> None:
        """Remove leftovers of killed processes: drafts, and `open` files of finished batches.

        Such an `open` file would count again after its `done` file is pruned.
        """
        for path in list(self._directory.iterdir()):
            is_done = path.suffix == ".open" and path.with_suffix(".done").exists()
            if is_done or _DRAFT.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _prune(self, query: str) -> None:
        for name in superseded(self._files(), query):
            (self._directory / str(name)).unlink(missing_ok=True)

    def _files(self) -> list[RecordName]:
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        return parse_names(path.name for path in paths)

    def _path(self, query: str, batch: int, state: str) -> Path:
        return self._directory / str(RecordName(query, batch, state))

    def _make(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the commit records cannot be in {self._directory}: {error}"
            ) from None

    def _publish(self, path: Path, data: bytes) -> None:
        """Write a file durably, completely or not at all."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _name_it(draft, path)
        except OSError as error:
            raise StoreError(f"a commit record cannot be written to {path}: {error}") from error
        finally:
            draft.unlink(missing_ok=True)
        self._sync()

    def _sync(self) -> None:
        """Make the directory's entries durable."""
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network file systems do not support it
                os.fsync(handle)
        finally:
            os.close(handle)

    def _wait(self, handle: int, timeout_ms: int, pause: Callable[[int], object]) -> None:
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + timeout_ms
        is_logged = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                    raise StoreError(
                        f"another process is committing in {self._directory}: a query of the same "
                        "checkpoint runs, or one that was killed has left a worker behind"
                    ) from None
                if not is_logged:
                    log.warning("another process is committing in %s: waiting", self._directory)
                    is_logged = True
                pause(LOCK_PAUSE_MS)
            else:
                return


def _name_it(draft: Path, path: Path) -> None:
    """Give a complete file its final name; FileExistsError when that is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links; the lock excludes other writers
        draft.rename(path)


def parse_names(names: Iterable[str]) -> list[RecordName]:
    """The names of records among other names."""
    found = filter(None, map(_NAME.fullmatch, names))
    return [
        RecordName(unquote(match["query"]), int(match["batch"]), match["state"]) for match in found
    ]


def batches_by_query(names: Iterable[RecordName]) -> dict[str, frozenset[int]]:
    """Numbers of batches by query."""
    by_query: dict[str, set[int]] = {}
    for name in names:
        by_query.setdefault(name.query, set()).add(name.batch)
    return {query: frozenset(batches) for query, batches in by_query.items()}


def superseded(names: Iterable[RecordName], query: str) -> list[RecordName]:
    """The `done` records of a query that are older than its newest DONE_RECORDS_MAX."""
    done = sorted(name for name in names if (name.query, name.state) == (query, "done"))
    return done[:-DONE_RECORDS_MAX]


def already_decided(record: CommitRecord) -> UsageError:
    """The error for a batch that is decided twice."""
    return UsageError(f"batch {record.batch} of {record.query} is committed already")


def done_content(record: CommitRecord) -> bytes:
    """The content of a `done` record."""
    return json.dumps({"version": VERSION, "rows": record.halves.num_rows}).encode()


def encode_record(record: CommitRecord) -> bytes:
    """The content of an `open` record."""
    facts = {
        "version": VERSION,
        "query": record.query,
        "batch": record.batch,
        "group": record.group,
        "namesrv": list(record.namesrv),
        "ends": record.ends,
    }
    return to_bytes(record.halves.replace_schema_metadata({_META: json.dumps(facts).encode()}))


def _facts(table: pa.Table) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((table.schema.metadata or {})[_META])
    if facts["version"] != VERSION:
        raise RecordError(f"version {facts['version']}, {VERSION} is known here")
    return facts


def decode_record(data: bytes, where: object) -> CommitRecord:
    """The record with this content; RecordError, which says where it lies, for another one."""
    try:
        table = from_bytes(data)
        facts = _facts(table)
        return CommitRecord(
            facts["query"], facts["batch"], facts["group"], tuple(facts["namesrv"]), facts["ends"],
            table.replace_schema_metadata(None).cast(SCHEMA),
        )  # fmt: skip
    except (RecordError, KeyError, ValueError, TypeError) as error:
        raise RecordError(
            f"commit record {where} cannot be read ({error}): its batch may be partly committed. "
            "Restore the file; or remove it, and look for missing ROQUET_ROW keys in the topic"
        ) from error
