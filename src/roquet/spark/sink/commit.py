"""Transaction commit on the driver: decides a batch, then makes each half message visible once.

The commit record decides a batch: until that file exists no row of the batch becomes visible, and
from then on every row does, however often drivers are killed.

    begin ──▶ commit half messages ──▶ all done? ──▶ finished
                 ▲                       │ no: some were refused, or not answered
                 │                       ▼
                 └── those not visible ◀── wait until no commit is in flight, then read

A broker may deliver a half message twice that is committed twice. So a half message that may have
been committed before is committed again only when its message is not visible.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roquet.client.connection.loop_thread import LoopThread
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.open_table import table_location
from roquet.lake.queue_offsets import OffsetsJson
from roquet.log_records import logger
from roquet.model.errors import CallTimeout, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import sleep_ms
from roquet.spark.sink.commit_half_messages import (
    CommitOutcome,
    HalfMessageCommitter,
    HalfMessageRef,
)
from roquet.spark.sink.commit_records import (
    CommitRecord,
    CommitRecords,
    concat,
    from_bytes,
    row_codes,
)
from roquet.spark.sink.locked_journals import LeasedJournal, LockedDirectory
from roquet.spark.sink.options import JOB_PREFIX, SinkOptions
from roquet.spark.sink.sender import open_connections
from roquet.spark.sink.visibility import VisibilityReader, VisibleRows

log = logger(__name__)

T = TypeVar("T")

QUIET_MS: Final = 5_000
"""The time after which a commit that was sent is done or never will be: brokers, Apache's and ours,
refuse calls that waited for 3 s in their queue."""


ROLL_BACK_TIMEOUT_MS: Final = 5_000
"""Timeout of rolling back one half message: brokers discard those that are not rolled back."""


def finish_batch(
    record: CommitRecord,
    commit: Callable[[Sequence[HalfMessageRef]], dict[int, CommitOutcome]],
    rows_since: Callable[[OffsetsJson, str], VisibleRows],
    pause: Callable[[int], object],
    timeout_ms: int,
    quiet_ms: int = QUIET_MS,
    *,
    fresh: bool,
) -> None:
    """Commit half messages until each row is visible. `fresh`: no commit of them was ever sent.

    `rows_since` reads rows with a prefix of their keys, as `VisibilityReader.since` does.
    """
    table = record.halves
    numbers = row_codes(table["partition"].combine_chunks(), table["row"].combine_chunks())
    open_, discarded = np.ones(len(numbers), np.bool_), np.zeros(len(numbers), np.bool_)
    ends, reads_first = record.ends, not fresh
    progress_ms = SYSTEM_CLOCK.monotonic_ms()
    while open_.any():
        if reads_first:
            pause(quiet_ms)
            rows = rows_since(ends, record.prefix)
            ends = rows.ends
            open_ &= ~np.isin(numbers, rows.visible)
            discarded |= np.isin(numbers, rows.discarded)
            log.info("%s: %d rows are not visible yet", record.prefix, int(open_.sum()))
        before, at = int(open_.sum()), np.flatnonzero(open_)
        outcomes = commit(refs_at(table, at.tolist(), discarded[at].tolist()))
        for number, outcome in outcomes.items():
            if outcome is CommitOutcome.DONE:
                open_[number] = False
            elif outcome is CommitOutcome.REFUSED:
                discarded[number] = True
        if int(open_.sum()) < before:
            progress_ms = SYSTEM_CLOCK.monotonic_ms()
        elif SYSTEM_CLOCK.monotonic_ms() - progress_ms > timeout_ms:
            raise CallTimeout(
                f"{before} rows of batch {record.batch} could not be made visible: they are in "
                "the batch's commit record, and a restart of the query continues with them"
            )
        reads_first = True


def refs_at(
    table: pa.Table, at: Sequence[int] | NDArray[np.int64], discarded: Sequence[bool] = ()
) -> list[HalfMessageRef]:
    """References to the half messages at these indices of a batch's table."""
    picked = table.take(pa.array(at, pa.int64()))
    names = ("topic", "broker", "queue_id", "half_offset", "position", "unique_key", "ordered")
    columns = [picked[name].to_pylist() for name in names]
    marks = list(discarded) or [False] * len(at)
    return [HalfMessageRef(*values) for values in zip(list(at), *columns, marks, strict=True)]


def finish_decided(options: SinkOptions, quiet_ms: int = QUIET_MS) -> None:
    """Finish the batches that an earlier driver decided and did not finish."""
    records = _records(options)
    if not records.is_any_open:
        return
    with records.locked(options.timeout_ms, sleep_ms):
        _finish_all(records, options, quiet_ms)


def commit(
    options: SinkOptions, query: str, batch: int, halves: Sequence[bytes], quiet_ms: int = QUIET_MS
) -> None:
    """Decide a batch and make its rows visible.

    For a batch that was decided before, the new half messages are rolled back instead.
    """
    records, table = _records(options), concat(map(from_bytes, halves))
    with records.locked(options.timeout_ms, sleep_ms):
        _finish_all(records, options, quiet_ms)
        if records.is_recorded(query, batch):
            log.info("batch %d of %s is committed already", batch, query)
            roll_back(options, table)
            return
        record = commit_record(options, query, batch, table)
        records.write(record)
        _finish_one(records, record, options, quiet_ms, fresh=True)


def abort(options: SinkOptions, query: str, batch: int, halves: Sequence[bytes]) -> None:
    """Roll back an undecided batch; Spark calls it after a failed commit, too."""
    records = _records(options)
    with records.locked(options.timeout_ms, sleep_ms):
        if not records.is_recorded(query, batch):
            roll_back(options, concat(map(from_bytes, halves)))


def decided_batches(options: SinkOptions) -> dict[str, frozenset[int]]:
    """Numbers of the decided batches by query."""
    return _records(options).batches()


def roll_back(options: SinkOptions, table: pa.Table) -> None:
    """Roll back half messages where their brokers can be reached."""
    if table.num_rows:
        halves = refs_at(table, range(table.num_rows))
        with open_committer(options, options.group, ROLL_BACK_TIMEOUT_MS) as (wait, committer):
            wait(committer.roll_back(halves))


def _records(options: SinkOptions) -> CommitRecords:
    assert options.commits is not None, "a transaction has a directory for its records"
    where = table_location(options.commits)
    if isinstance(where, ObjectLocation):
        return CommitRecords(LeasedJournal(where))
    return CommitRecords(LockedDirectory(where))


def commit_record(options: SinkOptions, query: str, batch: int, table: pa.Table) -> CommitRecord:
    """The record that decides a batch with this table of half messages, and the latest offsets."""
    ends: OffsetsJson = {}
    if table.num_rows:
        reader = VisibilityReader(options, table["topic"].unique().to_pylist())
        ends = reader.ends(table["broker"].unique().to_pylist())
    return CommitRecord(query, batch, options.group, options.namesrv, ends, table)


def _finish_all(records: CommitRecords, options: SinkOptions, quiet_ms: int) -> None:
    for record in records.open():
        log.warning(
            "batch %d of %s was decided and not finished: finishing it", record.batch, record.query
        )
        _finish_one(records, record, options, quiet_ms, fresh=False)


def _finish_one(
    records: CommitRecords,
    record: CommitRecord,
    options: SinkOptions,
    quiet_ms: int,
    *,
    fresh: bool,
) -> None:
    reader = VisibilityReader(options, record.halves["topic"].unique().to_pylist())
    lock = records.check_lock
    with open_committer(options, record.group, options.timeout_ms, lock) as (wait, committer):
        finish_batch(
            record,
            lambda halves: wait(committer.commit(halves)),
            reader.since,
            sleep_ms,
            options.timeout_ms,
            quiet_ms,
            fresh=fresh,
        )
    records.done(record, forget=record.query.startswith(JOB_PREFIX))


@contextmanager
def open_committer(
    options: SinkOptions,
    group: str,
    timeout_ms: int,
    check_lock: Callable[[], object] = lambda: None,
) -> Iterator[tuple[Callable[[Coroutine[Any, Any, T]], T], HalfMessageCommitter]]:
    """A function that waits for the committer's coroutines, and a committer on the shared loop.

    `check_lock` is called before each commit, and raises when another process may commit.
    """
    thread = LoopThread.shared()

    async def opened() -> tuple[Any, HalfMessageCommitter]:
        pool, routes = open_connections(options)
        return pool, HalfMessageCommitter(pool, routes, group, timeout_ms, SYSTEM_CLOCK, check_lock)

    pool, committer = thread.wait(opened())
    try:
        yield thread.wait, committer
    finally:
        try:
            thread.wait(pool.close())
        except RoquetError as error:
            log.debug("connections did not close well: %s", error)
