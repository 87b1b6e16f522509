"""Listeners: what a query tells of its progress, as lag and rate by topic, or to a consumer group.

    spark.streams.addListener(ProgressListener())                     one log line a batch
    publish(spark, group="lake", namesrv="127.0.0.1:9876", topic="orders")   consumerProgress

The source's own `publishProgress` is one batch behind, since Spark tells a source late that a
batch is done; a listener hears it at once, and hears of the last one, too.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from roquet.log_records import logger
from roquet.spark import queue_offsets
from roquet.spark.cluster.progress_publisher import ProgressPublisher
from roquet.spark.options import parse
from roquet.spark.queue_offsets import QueueOffsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logger(__name__)


class QueryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a query is in one of its sources, after a batch."""

    query: str
    """Its name, or its id."""
    batch: int
    rows: int
    rows_per_second: float
    lag: Mapping[str, int]
    """By topic, messages that were there and not read yet; filters are not considered."""
    away: Mapping[str, int]
    """Brokers that do not answer, and for how many seconds; their part of the lag may be old."""

    def __str__(self) -> str:
        lag = ", ".join(f"{topic} {count:,}" for topic, count in self.lag.items())
        text = f"{self.query} batch {self.batch}: {self.rows:,} rows, {self.rows_per_second:,.0f}/s"
        away = ", ".join(f"{broker} for {seconds} s" for broker, seconds in self.away.items())
        return f"{text}, lag {lag}{'; away: ' + away if away else ''}"


def parse_progress(progress: Mapping[str, Any]) -> list[QueryProgress]:
    """What a query's progress (its JSON) tells of sources that are ours."""
    return [
        QueryProgress(
            query=progress.get("name") or progress["id"],
            batch=progress["batchId"],
            rows=source["numInputRows"],
            rows_per_second=_number(source.get("processedRowsPerSecond")),
            lag=_lag(ends, latest),
            away=away,
        )
        for source in progress["sources"]
        if (ends := end_offsets(source)) is not None
        for latest, away in [_latest(source)]
    ]


def end_offsets(source: Mapping[str, Any]) -> QueueOffsets | None:
    """Where a source's last batch ended; None when it is no source of ours."""
    kept = _parsed(source.get("endOffset"))
    return queue_offsets.from_json(kept) if kept and queue_offsets.is_offsets_json(kept) else None


def _latest(source: Mapping[str, Any]) -> tuple[QueueOffsets, Mapping[str, int]]:
    told = _parsed(source.get("latestOffset"))
    return queue_offsets.latest_from_json(told) if told else ({}, {})


def _lag(ends: QueueOffsets, latest: QueueOffsets) -> dict[str, int]:
    lag = {topic: 0 for topic, _, _ in sorted(ends)}
    for queue, last in latest.items():
        lag[queue[0]] = lag.get(queue[0], 0) + max(last - ends.get(queue, 0), 0)
    return lag


def _parsed(offset: Any) -> Any:
    """Spark gives an offset as JSON, or as what it read from it."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def log_progress(progress: QueryProgress) -> None:
    """One line; a warning while brokers are away."""
    log.log(logging.WARNING if progress.away else logging.INFO, "%s", progress)


class _Listener(StreamingQueryListener):
    """Wants to hear of progress alone."""

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        """A query began."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        """There was nothing new."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        """A query ended."""

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        """A batch is done; what goes wrong here is logged, the query goes on."""
        try:
            self.heard(json.loads(event.progress.json))
        except Exception:
            log.exception("what a query told of its progress was not used")

    def heard(self, progress: Mapping[str, Any]) -> None:
        """What the query told."""
        raise NotImplementedError


class ProgressListener(_Listener):
    """Tells lag and rate after each batch of every query that reads topics."""

    def __init__(self, tell: Callable[[QueryProgress], object] = log_progress) -> None:
        self._tell = tell

    def heard(self, progress: Mapping[str, Any]) -> None:
        """What the query told."""
        for one in parse_progress(progress):
            self._tell(one)


class PublishListener(_Listener):
    """Publishes where batches ended as the progress of a group."""

    def __init__(self, publisher: ProgressPublisher, query: str | None = None) -> None:
        self._publisher = publisher
        self._query = query

    def heard(self, progress: Mapping[str, Any]) -> None:
        """What the query told."""
        if self._query not in (None, progress.get("name"), progress["id"]):
            return
        for source in progress["sources"]:
            if (ends := end_offsets(source)) is not None:
                self._publisher.publish(ends)


def publish(
    spark: "SparkSession", *, group: str, query: str | None = None, **options: str
) -> PublishListener:
    """Have queries' progress published; of the one with this name or id, or of all.

    `options` are those of the source that say where: namesrv, and topic or topicPattern. The group
    must have no members (UsageError). `spark.streams.removeListener` ends it.
    """
    publisher = ProgressPublisher(parse(options, os.environ), group)
    publisher.check()
    listener = PublishListener(publisher, query)
    spark.streams.addListener(listener)
    return listener
