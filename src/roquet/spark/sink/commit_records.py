"""Commit records: which half messages a batch has, written down before the first is committed.

    QUERY.BATCH.open    decided: its half messages are being committed, or were when somebody died
    QUERY.BATCH.done    they all are: the batch is not written again

The first is the decision: the batch is committed from the moment that this file is there.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from roquet.log_records import logger
from roquet.model.errors import RecordError, StoreError, UsageError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.queue_offsets import OffsetsJson
from roquet.spark.sink.half_message_refs import SCHEMA, from_bytes, to_bytes

log = logger(__name__)

VERSION: Final = 1
DONE_RECORDS_MAX: Final = 100
"""Records of done batches of a query: Spark runs the last one again, if any."""

LOCK_PAUSE_MS: Final = 100

_NAME: Final = re.compile(r"(?P<query>.+)\.(?P<batch>\d{12})\.(?P<state>open|done)")
_DRAFT: Final = re.compile(r"\..+\.\d{12}\.(open|done)\.\d+")
_META: Final = b"roquet"


class CommitRecord(msgspec.Struct, frozen=True):
    """What a batch has decided."""

    query: str
    batch: int
    group: str
    namesrv: tuple[str, ...]
    ends: OffsetsJson
    """How far the queues reached where the batch is going to: {topic: {broker: {id: offset}}}."""
    halves: pa.Table

    @property
    def prefix(self) -> str:
        """What the keys of its messages begin with."""
        return f"{self.query}/{self.batch}/"


class CommitRecords:
    """The commit records of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def locked(self, timeout_ms: int, pause: Callable[[int], object]) -> Iterator[None]:
        """Nobody else commits meanwhile: a driver that was killed may have left a worker behind.

        The lock goes with the process that holds it, however that ends.
        """
        self._make()
        with (self._directory / "lock").open("a+b") as file:
            self._wait(file.fileno(), timeout_ms, pause)
            self._tidy()
            yield

    def batches(self) -> dict[str, frozenset[int]]:
        """The batches that are decided, by query."""
        found: dict[str, set[int]] = {}
        for name, batch, _ in self._found():
            found.setdefault(unquote(name), set()).add(batch)
        return {query: frozenset(batches) for query, batches in found.items()}

    def is_recorded(self, query: str, batch: int) -> bool:
        """Whether a batch is decided."""
        return any(self._path(query, batch, state).exists() for state in ("open", "done"))

    @property
    def is_any_open(self) -> bool:
        """Whether a batch may be decided and not done; who has not the lock can ask no more."""
        return any(state == "open" for _, _, state in self._found())

    def open(self) -> list[CommitRecord]:
        """What is decided and not done, in the order of the batches; with the lock."""
        paths = sorted(self._directory.glob("*.open")) if self._directory.is_dir() else []
        # One that died between the two marks has done all.
        return [_read_record(path) for path in paths if not path.with_suffix(".done").exists()]

    def write(self, record: CommitRecord) -> None:
        """Decide a batch; UsageError when it is decided already."""
        self._make()
        if self.is_recorded(record.query, record.batch):
            raise UsageError(f"batch {record.batch} of {record.query} is committed already")
        self._publish(self._path(record.query, record.batch, "open"), _encode(record))

    def done(self, record: CommitRecord, *, forget: bool = False) -> None:
        """All is committed; `forget` when no such batch can come again."""
        if not forget and not self._path(record.query, record.batch, "done").exists():
            done = json.dumps({"version": VERSION, "rows": record.halves.num_rows}).encode()
            self._publish(self._path(record.query, record.batch, "done"), done)
        self._path(record.query, record.batch, "open").unlink(missing_ok=True)
        self._prune(record.query)
        self._sync()

    def _tidy(self) -> None:
        """Remove what those have left who died: drafts, and first marks beside second ones.

        Such a first mark would count again as soon as the second one is pruned.
        """
        for path in list(self._directory.iterdir()):
            is_done = path.suffix == ".open" and path.with_suffix(".done").exists()
            if is_done or _DRAFT.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _prune(self, query: str) -> None:
        done = sorted(
            batch
            for name, batch, state in self._found()
            if (name, state) == (_file_name_part(query), "done")
        )
        for batch in done[:-DONE_RECORDS_MAX]:
            self._path(query, batch, "done").unlink(missing_ok=True)

    def _found(self) -> Iterator[tuple[str, int, str]]:
        if self._directory.is_dir():
            for path in self._directory.iterdir():
                if match := _NAME.fullmatch(path.name):
                    yield match["query"], int(match["batch"]), match["state"]

    def _path(self, query: str, batch: int, state: str) -> Path:
        return self._directory / f"{_file_name_part(query)}.{batch:012d}.{state}"

    def _make(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the commit records cannot be in {self._directory}: {error}"
            ) from None

    def _publish(self, path: Path, data: bytes) -> None:
        """A whole file, on the disk, or none."""
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
        """The directory's names are on the disk."""
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network file systems know no such thing
                os.fsync(handle)
        finally:
            os.close(handle)

    def _wait(self, handle: int, timeout_ms: int, pause: Callable[[int], object]) -> None:
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + timeout_ms
        is_told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                    raise StoreError(
                        f"another process is committing in {self._directory}: a query of the same "
                        "checkpoint runs, or one that was killed has left a worker behind"
                    ) from None
                if not is_told:
                    log.warning("another process is committing in %s: waiting", self._directory)
                    is_told = True
                pause(LOCK_PAUSE_MS)
            else:
                return


def _name_it(draft: Path, path: Path) -> None:
    """Give a finished file its name, which no other file may have yet."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links; the lock keeps others away
        draft.rename(path)


def _file_name_part(query: str) -> str:
    """The name of a query or job as a part of a file's name."""
    return quote(query, safe="").replace(".", "%2E")


def _encode(record: CommitRecord) -> bytes:
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


def _read_record(path: Path) -> CommitRecord:
    try:
        table = from_bytes(path.read_bytes())
        facts = _facts(table)
        return CommitRecord(
            facts["query"], facts["batch"], facts["group"], tuple(facts["namesrv"]), facts["ends"],
            table.replace_schema_metadata(None).cast(SCHEMA),
        )  # fmt: skip
    except (RecordError, KeyError, ValueError, TypeError) as error:
        raise RecordError(
            f"commit record {path} cannot be read ({error}): its batch may be committed in part. "
            "Restore the file; or remove it, and see which ROQUET_ROW keys its topic lacks"
        ) from error
