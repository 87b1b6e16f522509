"""Standings: how each group does in each topic, out of a table of samples. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.spark.jobs.lag import trends
from roquet.spark.jobs.lag.trends import LagForecast, QueueProgressSamples

_KEYS: Final = ("group", "topic", "broker", "queue_id")


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """How a group does in a topic, and in which queue it is worst."""

    group: str
    topic: str
    queues: int
    outlook: LagForecast
    worst: str
    """Its worst queue, as `broker-a:3`."""


class LagReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen."""

    samples: int
    at_ms: int
    """The time of the last one."""
    standings: tuple[GroupLag, ...]
    page: str
    namesrv: str = ""
    """The name servers of the cluster."""


def transform(
    rows: pa.Table, retention_s: Mapping[str, float], otherwise_ms: int | None = None
) -> tuple[GroupLag, ...]:
    """What becomes of each group in each topic, the worst first. Pure."""
    default = None if otherwise_ms is None else otherwise_ms / 1000
    found: dict[tuple[str, str], list[tuple[str, LagForecast]]] = {}
    for (group, topic, broker, queue_id), course in progress_by_queue(rows).items():
        outlook = trends.forecast(course, retention_s.get(broker, default))
        found.setdefault((group, topic), []).append((f"{broker}:{queue_id}", outlook))
    standings = [
        GroupLag(
            group=group,
            topic=topic,
            queues=len(parts),
            outlook=trends.merge_forecasts([one for _, one in parts]),
            worst=max(parts, key=lambda part: (part[1].state, part[1].lag))[0],
        )
        for (group, topic), parts in found.items()
    ]
    return tuple(
        sorted(standings, key=lambda s: (-s.outlook.state, -s.outlook.lag, s.group, s.topic))
    )


def progress_by_queue(rows: pa.Table) -> dict[tuple[str, str, str, int], QueueProgressSamples]:
    """Each group in each queue, in the order of time; those that the last sample lacks are gone."""
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
    """Where in sorted rows another queue or another group begins, and their end."""
    is_cut = np.zeros(rows.num_rows - 1, np.bool_)
    for name in _KEYS:
        column = rows[name].combine_chunks()
        is_cut |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return [0, *(np.flatnonzero(is_cut) + 1).tolist(), rows.num_rows]


def _numbers(column: pa.ChunkedArray) -> trends.SampleArray:
    found: trends.SampleArray = column.to_numpy().astype(np.float64)
    return found


def _seconds(column: pa.ChunkedArray) -> trends.SampleArray:
    """Times as seconds since 1970; NaN for none."""
    ms = column.cast(pa.int64()).cast(pa.float64()).to_numpy()
    found: trends.SampleArray = ms / 1000
    return found
