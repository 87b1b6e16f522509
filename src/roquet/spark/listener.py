"""Query listeners: lag and rate of streams by topic, and their offsets as a group's progress.

    spark.streams.addListener(ProgressListener())                     one log line a batch
    publish(spark, group="lake", namesrv="127.0.0.1:9876", topic="orders")   consumerProgress

The source's own `publishProgress` is one batch behind, since Spark tells a source late that a
batch is done. A listener is told at once, also after the last batch.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from roquet.lake import queue_offsets
from roquet.lake.queue_offsets import QueueOffsets, unread
from roquet.log_records import logger
from roquet.spark.cluster.progress_publisher import ProgressPublisher
from roquet.spark.options import parse
from roquet.spark.worker_process import log_as_spark

log = logger(__name__)


class QueryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a query in one of its sources, after a batch."""

    query: str
    """The query's name; its id when it has none."""
    batch: int
    rows: int
    rows_per_second: float
    lag: Mapping[str, int]
    """Unread messages by topic; messages that a filter would drop count as well."""
    away: Mapping[str, int]
    """Seconds without an answer, by broker; the lag of these brokers may be outdated."""

    def __str__(self) -> str:
        lag = ", ".join(f"{topic} {count:,}" for topic, count in self.lag.items())
        text = f"{self.query} batch {self.batch}: {self.rows:,} rows, {self.rows_per_second:,.0f}/s"
        away = ", ".join(f"{broker} for {seconds} s" for broker, seconds in self.away.items())
        return f"{text}, lag {lag}{'; away: ' + away if away else ''}"


def parse_progress(progress: Mapping[str, Any]) -> list[QueryProgress]:
    """The progress of each Roquet source in a query's progress JSON."""
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
    """The end offsets of a source's last batch; None for sources other than Roquet."""
    offsets = _parsed(source.get("endOffset"))
    if offsets and queue_offsets.is_offsets_json(offsets):
        return queue_offsets.from_json(offsets)
    return None


def _latest(source: Mapping[str, Any]) -> tuple[QueueOffsets, Mapping[str, int]]:
    report = _parsed(source.get("latestOffset"))
    return queue_offsets.latest_from_json(report) if report else ({}, {})


def _lag(ends: QueueOffsets, latest: QueueOffsets) -> dict[str, int]:
    lag = {topic: 0 for topic, _, _ in sorted(ends)}
    for queue, last in latest.items():
        lag[queue[0]] = lag.get(queue[0], 0) + unread(ends.get(queue, 0), last)
    return lag


def _parsed(offset: Any) -> Any:
    """An offset as a JSON value: Spark passes it as text or already parsed."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def log_progress(progress: QueryProgress) -> None:
    """Log one line; at level WARNING while brokers are away."""
    log.log(logging.WARNING if progress.away else logging.INFO, "%s", progress)


class _Listener(StreamingQueryListener):
    """A listener for progress events alone."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Ignored."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Ignored."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Ignored."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Handle the progress of a batch; errors are logged and do not stop the query."""
        try:
            self.on_progress(json.loads(event.progress.json))
        except Exception:
            log.exception("a query's progress was not handled")

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Handle a query's progress JSON."""
        raise NotImplementedError


class ProgressListener(_Listener):
    """Reports lag and rate after each batch of every query that reads topics."""

    def __init__(self, tell: Callable[[QueryProgress], object] = log_progress) -> None:
        if tell is log_progress:
            log_as_spark()
        self._tell = tell

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Report each of the query's sources."""
        for source_progress in parse_progress(progress):
            self._tell(source_progress)


class PublishListener(_Listener):
    """Publishes the end offsets of batches as the progress of a group."""

    def __init__(self, publisher: ProgressPublisher, query: str | None = None) -> None:
        self._publisher = publisher
        self._query = query

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Publish the end offsets of the query's sources."""
        if self._query not in (None, progress.get("name"), progress["id"]):
            return
        for source in progress["sources"]:
            if (ends := end_offsets(source)) is not None:
                self._publisher.publish(ends)


def publish(
    spark: SparkSession, *, group: str, query: str | None = None, **options: str
) -> PublishListener:
    """Publish the progress of the query with this name or id, or of all queries, as a group's.

    `options` are the source's namesrv, and topic or topicPattern. Raises UsageError when the group
    has members. `spark.streams.removeListener` stops it.
    """
    publisher = ProgressPublisher(parse(options, os.environ), group)
    publisher.check()
    listener = PublishListener(publisher, query)
    spark.streams.addListener(listener)
    return listener
