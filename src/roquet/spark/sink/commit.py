"""Commit: what the driver does with a transaction's half messages.

A batch is decided by its commit record, and not before: until that file is there nobody will see
anything of it, and from then on everybody will see all of it, however often drivers are killed.
"""

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from roquet.client.loop_thread import LoopThread
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.queue_offsets import Nested
from roquet.spark.sink.ending import Ending, Half, Outcome
from roquet.spark.sink.halves import together, unpacked
from roquet.spark.sink.options import JOB_PREFIX, SinkOptions
from roquet.spark.sink.records import Record, Records
from roquet.spark.sink.sender import connections
from roquet.spark.sink.settle import SETTLED_MS, Settler, halves_at
from roquet.spark.sink.visible import Watch

log = logger(__name__)

T = TypeVar("T")

ABANDON_MS: Final = 5_000
"""For rolling back one half message: if its broker does not hear it, it gives it up by itself."""

Pause = Callable[[int], object]


def _sleep(pause_ms: int) -> None:
    time.sleep(pause_ms / 1_000)


def resolve(options: SinkOptions, pause: Pause = _sleep, settled_ms: int = SETTLED_MS) -> None:
    """Finish what a driver that died had decided and not done."""
    records = _records(options)
    if not records.is_any_open:
        return
    with records.locked(options.timeout_ms, pause):
        _finish(records, options, pause, settled_ms)


def commit(
    options: SinkOptions,
    query: str,
    batch: int,
    halves: Sequence[bytes],
    pause: Pause = _sleep,
    settled_ms: int = SETTLED_MS,
) -> None:
    """Decide a batch and make its rows visible; one that is decided already is only finished."""
    records, table = _records(options), together(map(unpacked, halves))
    with records.locked(options.timeout_ms, pause):
        _finish(records, options, pause, settled_ms)
        if records.is_recorded(query, batch):
            log.info("batch %d of %s is committed already", batch, query)
            abandon(options, table)
            return
        record = _record(options, query, batch, table)
        records.write(record)
        _settle(records, record, options, pause, settled_ms, fresh=True)


def abort(
    options: SinkOptions, query: str, batch: int, halves: Sequence[bytes], pause: Pause = _sleep
) -> None:
    """Roll back a batch that was not decided; Spark asks for it as well when a commit failed."""
    records = _records(options)
    with records.locked(options.timeout_ms, pause):
        if not records.is_recorded(query, batch):
            abandon(options, together(map(unpacked, halves)))


def recorded(options: SinkOptions) -> dict[str, frozenset[int]]:
    """The batches that are decided, by query."""
    return _records(options).batches()


def abandon(options: SinkOptions, table: pa.Table) -> None:
    """Roll half messages back, as far as their brokers can be reached."""
    if table.num_rows:
        halves = halves_at(table, range(table.num_rows))
        with _ending(options, options.group, ABANDON_MS) as (wait, ending):
            wait(ending.abandon(halves))


def _records(options: SinkOptions) -> Records:
    assert options.commits is not None, "a transaction has a directory for its records"
    return Records(Path(options.commits))


def _record(options: SinkOptions, query: str, batch: int, table: pa.Table) -> Record:
    ends: Nested = {}
    if table.num_rows:
        watch = Watch(options.namesrv, table["topic"].unique().to_pylist(), options.timeout_ms)
        ends = watch.ends(table["broker"].unique().to_pylist())
    return Record(query, batch, options.group, options.namesrv, ends, table)


def _finish(records: Records, options: SinkOptions, pause: Pause, settled_ms: int) -> None:
    for record in records.open():
        log.warning(
            "batch %d of %s was decided and not finished: finishing it", record.batch, record.query
        )
        _settle(records, record, options, pause, settled_ms, fresh=False)


def _settle(
    records: Records,
    record: Record,
    options: SinkOptions,
    pause: Pause,
    settled_ms: int,
    *,
    fresh: bool,
) -> None:
    topics = record.halves["topic"].unique().to_pylist()
    watch = Watch(options.namesrv, topics, options.timeout_ms)
    with _ending(options, record.group, options.timeout_ms) as (wait, ending):

        def end(halves: Sequence[Half]) -> dict[int, Outcome]:
            return wait(ending.all(halves))

        Settler(end, watch, pause, options.timeout_ms, settled_ms).settle(record, fresh=fresh)
    records.done(record, forget=record.query.startswith(JOB_PREFIX))


@contextmanager
def _ending(
    options: SinkOptions, group: str, timeout_ms: int
) -> Iterator[tuple[Callable[[Coroutine[Any, Any, T]], T], Ending]]:
    """Who ends half messages, and how to wait for what he does."""
    thread = LoopThread.shared()

    async def opened() -> tuple[Any, Ending]:
        pool, routes = connections(options)
        return pool, Ending(pool, routes, group, timeout_ms, SYSTEM_CLOCK)

    pool, ending = thread.wait(opened())
    try:
        yield thread.wait, ending
    finally:
        try:
            thread.wait(pool.close())
        except RoquetError as error:
            log.debug("connections did not close well: %s", error)
