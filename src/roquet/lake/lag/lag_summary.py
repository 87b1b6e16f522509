"""Lag summary: a forecast for each group and topic, from a table of samples. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.lake.lag import trends
from roquet.lake.lag.trends import LagForecast, QueueProgressSamples

_KEYS: Final = ("group", "topic", "broker", "queue_id")


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast of a group in a topic, and its worst queue."""

    group: str
    topic: str
    queues: int
    outlook: LagForecast
    worst: str
    """The worst queue, as `broker-a:3`."""


class LagReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the lag job; the content of `standings.json`."""

    samples: int
    at_ms: int
    """The time of the last sample, in ms since 1970."""
    standings: tuple[GroupLag, ...]
    page: str
    namesrv: str = ""
    """The name servers of the cluster."""


def transform(
    rows: pa.Table, retention_s: Mapping[str, float], default_ms: int | None = None
) -> tuple[GroupLag, ...]:
    """Forecast each group in each topic, the worst first. Pure.

    `retention_s` are the seconds for which each broker keeps messages, and `default_ms` the
    milliseconds assumed for other brokers.
    """
    default_s = None if default_ms is None else default_ms / 1000
    forecasts: dict[tuple[str, str], dict[str, LagForecast]] = {}
    for (group, topic, broker, queue_id), samples in progress_by_queue(rows).items():
        forecast = trends.forecast(samples, retention_s.get(broker, default_s))
        forecasts.setdefault((group, topic), {})[f"{broker}:{queue_id}"] = forecast
    groups = [
        GroupLag(
            group=group,
            topic=topic,
            queues=len(by_queue),
            outlook=trends.merge_forecasts([*by_queue.values()]),
            worst=max(by_queue, key=lambda queue: (by_queue[queue].state, by_queue[queue].lag)),
        )
        for (group, topic), by_queue in forecasts.items()
    ]
    return tuple(sorted(groups, key=lambda g: (-g.outlook.state, -g.outlook.lag, g.group, g.topic)))


def progress_by_queue(rows: pa.Table) -> dict[tuple[str, str, str, int], QueueProgressSamples]:
    """Samples by (group, topic, broker, queue id), of those that the last sample still has."""
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([*((name, "ascending") for name in _KEYS), ("at", "ascending")])
    cuts = _cuts(rows)
    starts = rows.select(_KEYS).take(cuts[:-1]).to_pylist()
    numbers = {name: _numbers(rows[name]) for name in ("begin", "committed", "end")}
    at, consumed = _seconds(rows["at"]), _seconds(rows["consumed_at"])
    last = at.max()
    return {
        tuple(key.values()): QueueProgressSamples(
            at_s=at[start:end],
            consumed_s=consumed[start:end],
            **{name: values[start:end] for name, values in numbers.items()},
        )
        for key, start, end in zip(starts, cuts[:-1], cuts[1:], strict=True)
        if at[end - 1] == last
    }


def _cuts(rows: pa.Table) -> list[int]:
    """The indexes at which another group or queue begins in sorted rows, and their end."""
    is_cut = np.zeros(rows.num_rows - 1, np.bool_)
    for name in _KEYS:
        column = rows[name].combine_chunks()
        is_cut |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return [0, *(np.flatnonzero(is_cut) + 1).tolist(), rows.num_rows]


def _numbers(column: pa.ChunkedArray) -> trends.SampleArray:
    numbers: trends.SampleArray = column.to_numpy().astype(np.float64)
    return numbers


def _seconds(column: pa.ChunkedArray) -> trends.SampleArray:
    """Times as seconds since 1970; NaN for null."""
    ms = column.cast(pa.int64()).cast(pa.float64()).to_numpy()
    seconds: trends.SampleArray = ms / 1000
    return seconds
