"""Commit records: the half messages of a batch, written before the first of them is committed.

    QUERY.BATCH.open    decided; the half messages are being committed, perhaps by a killed driver
    QUERY.BATCH.done    all are committed; the batch is not written again

The `open` record is the decision: the batch is committed from the moment that it exists. Records
lie in a directory or in an object store. Their content is an Arrow table of references to half
messages, with everything that is needed to end these.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.lake.journal.journal import ExclusiveJournal
from roquet.lake.queue_offsets import OffsetsJson
from roquet.model.errors import RecordError, UsageError
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.wire.records.message_id import parse_offset_message_id

SCHEMA: Final = pa.schema(
    {
        "partition": pa.int32(),
        "row": pa.int64(),
        "topic": pa.string(),
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "half_offset": pa.int64(),
        "position": pa.int64(),
        "unique_key": pa.string(),
        "ordered": pa.bool_(),
    }
)
"""`half_offset` is the offset in the queue of half messages, `position` the one in the broker's log
in bytes; `queue_id` is the queue of the message after its commit."""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


def refs_of(sent: Sequence[DeliveredRequest], partition: int) -> pa.Table:
    """References to the half messages of one partition, in row order."""
    rows = sorted(sent, key=lambda delivered: delivered.request.row)
    columns = {
        "partition": [partition] * len(rows),
        "row": [delivered.request.row for delivered in rows],
        "topic": [delivered.request.topic for delivered in rows],
        "broker": [delivered.broker for delivered in rows],
        "queue_id": [delivered.reply.queue_id for delivered in rows],
        "half_offset": [delivered.reply.queue_offset for delivered in rows],
        "position": [parse_offset_message_id(delivered.reply.msg_id)[1] for delivered in rows],
        "unique_key": [delivered.reply.transaction_id or "" for delivered in rows],
        "ordered": [delivered.request.queue is not None for delivered in rows],
    }
    return pa.Table.from_pydict(columns, SCHEMA)


def to_bytes(table: pa.Table) -> bytes:
    """A table as compressed bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """The table in the bytes of `to_bytes`; RecordError when they do not decode."""
    try:
        return pa.ipc.open_stream(data).read_all()
    except pa.ArrowException as error:
        raise RecordError(f"no table of half messages: {error}") from error


def concat(tables: Iterable[pa.Table]) -> pa.Table:
    """The references of all partitions as one table."""
    return pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()


def row_codes(partitions: pa.Array, rows: pa.Array) -> NDArray[np.int64]:
    """A distinct number for each row of a batch, from its partition and row number."""
    high: NDArray[np.int64] = partitions.cast(pa.int64()).to_numpy() << PARTITION_SHIFT
    low: NDArray[np.int64] = rows.cast(pa.int64()).to_numpy()
    return high | low


PARTITION_SHIFT: Final = 40
"""Bits of a row number: a partition has at most 2**40 rows."""


VERSION: Final = 1
DONE_RECORDS_MAX: Final = 100
"""Most records of finished batches of a query: Spark runs at most the last one again."""

_NAME: Final = re.compile(r"(?P<query>.+)\.(?P<batch>\d{12})\.(?P<state>open|done)")
_DRAFT: Final = re.compile(r"\.?.+\.\d{12}\.(open|done)\.[0-9a-f]+")
"""A file that was not given its name yet; earlier versions wrote ones that begin with a dot."""

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

    def name(self, state: str) -> str:
        """The name of its `open` or `done` record."""
        return str(RecordName(self.query, self.batch, state))


class RecordName(NamedTuple):
    """The parts of a record's name."""

    query: str
    batch: int
    state: str
    """`open` or `done`."""

    def __str__(self) -> str:
        quoted = quote(self.query, safe="").replace(".", "%2E")
        return f"{quoted}.{self.batch:012d}.{self.state}"


class CommitRecords:
    """The commit records of queries, in a directory or in an object store."""

    def __init__(self, journal: ExclusiveJournal) -> None:
        self._journal = journal

    @contextmanager
    def locked(self, timeout_ms: int, pause: Callable[[int], object]) -> Iterator[None]:
        """Exclude other processes that commit; StoreError after the timeout."""
        with self._journal.locked(timeout_ms, pause):
            self._tidy()
            yield

    def check_lock(self) -> None:
        """Raise RoquetError when another process may commit; call it before each commit."""
        self._journal.check_lock()

    def batches(self) -> dict[str, frozenset[int]]:
        """Numbers of the decided batches by query."""
        by_query: dict[str, set[int]] = {}
        for name in self._names():
            by_query.setdefault(name.query, set()).add(name.batch)
        return {query: frozenset(batches) for query, batches in by_query.items()}

    def is_recorded(self, query: str, batch: int) -> bool:
        """Whether a batch is decided."""
        return any((name.query, name.batch) == (query, batch) for name in self._names())

    @property
    def is_any_open(self) -> bool:
        """Whether a batch is decided and unfinished; without the lock this may change at once."""
        return any(name.state == "open" for name in self._names())

    def open(self) -> list[CommitRecord]:
        """Decided, unfinished batches in order; call it with the lock."""
        names = self._names()
        finished = {name for name in names if _is_finished(name, names)}
        texts = [str(name) for name in names if name.state == "open" and name not in finished]
        return [
            _decode_record(self._journal.content(text), self._journal.address(text))
            for text in texts
        ]

    def write(self, record: CommitRecord) -> None:
        """Decide a batch; UsageError when it is already decided."""
        if self.is_recorded(record.query, record.batch):
            raise UsageError(f"batch {record.batch} of {record.query} is committed already")
        self._journal.check_lock()
        self._journal.change({record.name("open"): _encode_record(record)})

    def done(self, record: CommitRecord, *, forget: bool = False) -> None:
        """Mark a batch as finished; `forget` it when it cannot be run again."""
        content = json.dumps({"version": VERSION, "rows": record.halves.num_rows}).encode()
        done = {} if forget else {record.name("done"): content}
        old = _superseded(_parse_names([*self._journal.names(), *done]), record.query)
        self._journal.change(done, [record.name("open"), *map(str, old)])

    def _tidy(self) -> None:
        """Remove leftovers of killed processes: drafts, and `open` records of finished batches.

        Such an `open` record would count again after its `done` record is pruned.
        """
        texts = self._journal.names()
        names = _parse_names(texts)
        left = [str(name) for name in names if _is_finished(name, names)]
        left += filter(_DRAFT.fullmatch, texts)
        if left:
            self._journal.change({}, left)

    def _names(self) -> list[RecordName]:
        self._journal.read()
        return _parse_names(self._journal.names())


def _is_finished(name: RecordName, names: Collection[RecordName]) -> bool:
    """Whether this is the `open` record of a batch whose driver was killed once it was done."""
    return name.state == "open" and name._replace(state="done") in names


def _parse_names(names: Iterable[str]) -> list[RecordName]:
    """The names of records among other names, sorted."""
    found = filter(None, map(_NAME.fullmatch, names))
    return sorted(
        RecordName(unquote(match["query"]), int(match["batch"]), match["state"]) for match in found
    )


def _superseded(names: Iterable[RecordName], query: str) -> list[RecordName]:
    """The `done` records of a query that are older than its newest DONE_RECORDS_MAX."""
    done = sorted({name for name in names if (name.query, name.state) == (query, "done")})
    return done[:-DONE_RECORDS_MAX]


def _encode_record(record: CommitRecord) -> bytes:
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


def _decode_record(data: bytes, where: object) -> CommitRecord:
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
