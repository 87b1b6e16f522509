"""Replay plan: the parameters of a replay, the rows that are left to send, and a preview of them.

Nothing here sends anything, and nothing needs Spark.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow.compute as pc

from roquet.lake.intervals import OffsetSet
from roquet.lake.queue_offsets import QueueKey, QueueOffsets, queue_text, ranges
from roquet.lake.snapshot import TableSnapshot, read_snapshot
from roquet.model.errors import ConfigError
from roquet.model.names import can_clients_send_to, is_dlq, is_retry
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient, OffsetBounds
from roquet.spark.jobs.exactly_once_sender import read_originals, writable_queues
from roquet.spark.jobs.replay import origin_check
from roquet.spark.jobs.replay.archive_scan import QueueRows, RowFilter, read_rows, scan_files
from roquet.spark.jobs.send_plan import map_queues
from roquet.spark.offset_spec import TimeAgo, parse_time
from roquet.spark.options import SourceOptions, parse

OPTIONS: Final = ("namesrv", "timeout", "group")
"""Options of the source that apply to a destination, too."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a replay."""

    source: str
    """An archive of any kind, or a directory of Parquet files with the needed columns."""
    topic: str
    """The destination."""
    kind: str | None = None
    """Kind of the table; None detects it from the directory."""
    options: Mapping[str, str] = {}
    """Options of the destination: namesrv, timeout."""
    only_topic: str | None = None
    """The one topic to send, of a table with several."""
    begin: str | None = None
    until: str | None = None
    """Only messages stored within [begin, until)."""
    keys: tuple[str, ...] = ()
    """Only messages with at least one of these keys."""
    limit: int | None = None
    """Of the chosen messages so many, those that were stored first; None for all of them."""
    rate: float | None = None
    """Messages per second of all tasks together; None for no limit."""
    since: str | None = None
    """The earliest time at which the destination may have got copies; None reads all of it."""
    same_topic: bool = False
    """Send also to a topic that still holds the original messages."""
    tasks: int | None = None
    name: str = ""
    catalog: Mapping[str, str] = {}
    storage: Mapping[str, str] = {}
    """Options of the object store of `source`; the environment gives those that are not here."""
    master: str | None = None


class PlannedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one source queue, and the queue that they go to."""

    source: str
    """TOPIC/BROKER/QUEUE, as in ROQUET_FROM."""
    destination: str
    rows: int
    """Rows that a run would send now."""
    there: int
    """Chosen rows of which the destination has copies."""
    body_bytes: int
    """Bytes of the bodies of `rows`."""


class ReplayPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Preview of a replay: the rows that it would send now."""

    queues: tuple[PlannedQueue, ...]
    rate: float | None = None
    """Messages per second at most."""

    @property
    def rows(self) -> int:
        """Rows of all queues."""
        return sum(queue.rows for queue in self.queues)

    @property
    def there(self) -> int:
        """Copies that the destination has."""
        return sum(queue.there for queue in self.queues)

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies of all rows."""
        return sum(queue.body_bytes for queue in self.queues)

    @property
    def least_seconds(self) -> float | None:
        """How long the rows take at the rate; None without one."""
        return None if self.rate is None else self.rows / self.rate


class ReplayScan(NamedTuple):
    """Rows of a table that are to be sent, and those of which the destination has copies."""

    cluster: ClusterClient
    bounds: OffsetBounds
    row_filter: RowFilter
    already_sent: Mapping[QueueKey, OffsetSet]
    sources: Sequence[QueueRows]


def preview(params: Params) -> ReplayPreview:
    """Preview of a run, without Spark; reads the bodies of the chosen rows.

    Raises the errors that a run would.
    """
    settings, snapshot = destination_options(params), snapshot_of(params)
    scan = scan_table(params, settings, snapshot)
    if any(queue_rows.rows for queue_rows in scan.sources):
        check_origins(params, scan, snapshot)
    queue_map = map_to_destination(params, scan)
    queues = [
        PlannedQueue(
            source="/".join(map(str, queue_rows.source)),
            destination="/".join(map(str, queue_map[queue_rows.source])),
            rows=queue_rows.rows,
            there=queue_rows.already_sent,
            body_bytes=_body_bytes(queue_rows, scan),
        )
        for queue_rows in scan.sources
        if queue_rows.rows or queue_rows.already_sent
    ]
    return ReplayPreview(queues=tuple(queues), rate=params.rate)


def _body_bytes(queue_rows: QueueRows, scan: ReplayScan) -> int:
    already_sent = scan.already_sent.get(queue_rows.source, OffsetSet())
    batches = read_rows(queue_rows, scan.row_filter, already_sent) if queue_rows.rows else ()
    return sum(pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0 for batch in batches)


def snapshot_of(params: Params) -> TableSnapshot:
    """The table that the rows are in."""
    return read_snapshot(
        params.source,
        params.only_topic or "",
        kind=params.kind,
        name=params.name,
        catalog=params.catalog,
        storage=params.storage,
    )


def scan_table(params: Params, settings: SourceOptions, snapshot: TableSnapshot) -> ReplayScan:
    """Find the chosen rows, and those of them that the destination has copies of."""
    row_filter = row_filter_of(params)
    # A replica may lack copies that its master has, which would be sent twice.
    cluster = ClusterClient(settings, leaders_only=True)
    bounds = cluster.bounds()
    start = _scan_start(params, cluster, bounds)
    already_sent = read_originals(cluster, ranges(start, bounds.latest))
    sources = scan_files(
        *(snapshot.paths, snapshot.topic, row_filter, already_sent, snapshot.storage),
        limit=params.limit,
    )
    return ReplayScan(cluster, bounds, row_filter, already_sent, sources)


def check_origins(params: Params, scan: ReplayScan, snapshot: TableSnapshot) -> None:
    """Raise ConfigError where the destination still holds the messages that would be sent."""
    if params.same_topic:
        return
    may_hold = [
        each
        for each in scan.sources
        if origin_check.may_hold_originals(scan.bounds, each, snapshot)
    ]
    queue = origin_check.queue_with_originals(
        scan.cluster, scan.bounds, may_hold, scan.row_filter, scan.already_sent
    )
    if queue is not None:
        raise ConfigError(
            f"{queue_text(queue)} still holds the original messages of {params.source}, so "
            "each would be there twice: give another topic, or --same-topic to send them "
            "nevertheless"
        )


def destination_options(params: Params) -> SourceOptions:
    """The settings of the destination; ConfigError for parameters that no replay can have."""
    known = {name.lower() for name in OPTIONS}
    for name in params.options:
        if name.lower() not in known:
            raise ConfigError(f"option {name!r} is not for replays: they have {', '.join(OPTIONS)}")
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"a replay goes to exactly one topic, not to {params.topic!r}")
    if is_retry(params.topic) or is_dlq(params.topic) or not can_clients_send_to(params.topic):
        raise ConfigError(f"topic {params.topic} is internal to the broker: give another one")
    if params.limit is not None and params.limit < 1:
        raise ConfigError(f"--limit {params.limit}: at least one message")
    if params.rate is not None and not params.rate > 0:
        raise ConfigError(f"the rate has to be over 0, and is {params.rate:g} messages a second")
    return parse({**params.options, "topic": params.topic}, os.environ)


def row_filter_of(params: Params) -> RowFilter:
    """The conditions that choose the rows to send."""
    first = _ms(params.begin, "--from")
    end = _ms(params.until, "--until")
    if first is not None and end is not None and first >= end:
        raise ConfigError("--from is not before --until: no message would be chosen")
    return RowFilter(topic=params.only_topic, from_ms=first, until_ms=end, keys=params.keys)


def _ms(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    time = parse_time(text, name)
    return SYSTEM_CLOCK.now_ms() - time.ms if isinstance(time, TimeAgo) else time.ms


def _scan_start(params: Params, cluster: ClusterClient, bounds: OffsetBounds) -> QueueOffsets:
    """The offsets from which the destination is searched for copies.

    Raises ConfigError where the broker may have deleted copies of earlier runs.
    """
    since_ms = _ms(params.since, "--since")
    start = dict(bounds.earliest)
    for queue, first in sorted(bounds.earliest.items()):
        last = bounds.latest[queue]
        if since_ms is not None:
            start[queue] = cluster.first_since(queue, (first, last), since_ms)
        if first > 0 and start[queue] == first < last:
            raise ConfigError(
                f"{queue_text(queue)} has lost its messages before offset {first}, and with them "
                "any copies that earlier runs have sent: give --since, a time before the first "
                "run of this replay and after the oldest message in the topic"
            )
    return start


def map_to_destination(params: Params, scan: ReplayScan) -> dict[QueueKey, QueueKey]:
    """The destination queue of each source."""
    latest = scan.bounds.latest
    writable = writable_queues(scan.cluster, params.topic, latest)
    queues = [queue for queue in writable if queue in latest]
    return map_queues((queue_rows.source for queue_rows in scan.sources), queues)
