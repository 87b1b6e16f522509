"""Table lag: how far archives are behind their topics, and when retention overtakes them. Pure.

It needs the statuses that jobs leave beside their tables, and no broker.
"""

from typing import Final

import msgspec
import numpy as np

from roquet.lake.lag import trends
from roquet.lake.lag.trends import LagState, QueueProgressSamples, SampleArray
from roquet.lake.status import JobStatus

RETENTION_LEFT_MIN: Final = 0.25
"""Part of the retention time below which the next run of a job is late."""


class TableLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a table is behind its topic; times are ms since 1970."""

    table: str
    job: str
    topic: str
    number: int
    """The number of the last commit."""
    lag: int
    """Messages that were not in the table when the job last looked."""
    lag_s: float
    """The age of the first of them then, in seconds."""
    committed_ms: int
    at_ms: int
    """When the job last looked."""
    state: LagState
    overtaken_s: float | None = None
    """Seconds from now until retention may delete messages that are not in the table.

    It holds if nothing more is archived, or sooner if the job falls behind as it does; None when no
    broker says how long it keeps messages.
    """
    lost: int = 0
    """Messages that were deleted before they were in the table."""
    brokers_away: tuple[str, ...] = ()
    """Brokers that did not answer the job: what waits there is not counted."""
    alert: str = ""
    """Sentence about what is wrong and what to do; empty when nothing is."""


def table_lag(
    table: str, status: JobStatus, now_ms: int, default_retention_s: float | None = None
) -> TableLag:
    """The lag of a table now, from its job's status."""
    retention_s = default_retention_s if status.retention_s is None else status.retention_s
    forecast = trends.forecast(_samples(status), retention_s)
    overtaken_s = _overtaken_s(status, now_ms, retention_s, forecast.cut_off_s)
    return TableLag(
        table=table,
        job=status.job,
        topic=status.topic,
        number=status.number,
        lag=status.lag,
        lag_s=status.lag_s,
        committed_ms=status.committed_ms,
        at_ms=status.now.at_ms,
        state=forecast.state,
        overtaken_s=overtaken_s,
        lost=forecast.lost,
        brokers_away=status.brokers_away,
        alert=_alert(status, overtaken_s, retention_s, forecast),
    )


def _overtaken_s(
    status: JobStatus, now_ms: int, retention_s: float | None, cut_off_s: float | None
) -> float | None:
    """Seconds from now until retention reaches the first message that is not in the table."""
    if retention_s is None:
        return None
    # Without a message that waits, the next one comes at the time of the last look at the earliest.
    oldest_ms = status.now.at_ms if status.now.oldest_ms is None else status.now.oldest_ms
    left_s = retention_s - (now_ms - oldest_ms) / 1000
    if cut_off_s is not None:
        left_s = min(left_s, cut_off_s - (now_ms - status.now.at_ms) / 1000)
    return max(left_s, 0.0)


def _alert(
    status: JobStatus,
    overtaken_s: float | None,
    retention_s: float | None,
    forecast: trends.LagForecast,
) -> str:
    if forecast.lost:
        return "retention has overtaken it: messages are lost; an audit says which"
    if overtaken_s is None or retention_s is None:
        return ""
    if overtaken_s <= 0:
        return "retention may have overtaken it: run the job now, then an audit"
    if forecast.cut_off_s is not None:
        return (
            "retention will overtake it at this rate: give it more cores, or keep messages longer"
        )
    if overtaken_s < retention_s * RETENTION_LEFT_MIN:
        return f"retention will overtake it unless the {status.job} job runs"
    return ""


def _samples(status: JobStatus) -> QueueProgressSamples:
    """The points as samples of one queue, which begins where the table is unless some are lost."""
    points = status.points
    oldest = [point.at_ms if point.oldest_ms is None else point.oldest_ms for point in points]
    return QueueProgressSamples(
        at_s=_array([point.at_ms for point in points]) / 1000,
        begin=_array([point.committed + point.lost for point in points]),
        committed=_array([point.committed for point in points]),
        end=_array([point.committed + point.lost + point.waiting for point in points]),
        consumed_s=_array(oldest) / 1000,
    )


def _array(values: list[int]) -> SampleArray:
    return np.array(values, np.float64)
