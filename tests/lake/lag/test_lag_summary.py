"""Forecasts of groups from samples, the worst first."""

import numpy as np
import pyarrow as pa
import pytest

from roquet.lake.lag.lag_summary import progress_by_queue, transform
from roquet.lake.lag.sampling import SCHEMA
from roquet.lake.lag.trends import LagState

START = 1_769_860_800_000


def samples(
    group: str, committed: float, end: float, *, count: int = 20, queue_id: int = 0,
    lag0: int = 100, broker: str = "a", consumed: int | None = None,
) -> pa.Table:  # fmt: skip
    """A sample every ten seconds; rates a second."""
    rows = []
    for n in range(count):
        here, last = int(committed * n * 10), lag0 + int(end * n * 10)
        rows.append(
            {
                "at": START + n * 10_000, "group": group, "topic": "orders", "broker": broker,
                "queue_id": queue_id, "begin": 0, "committed": here, "end": last,
                "lag": last - here, "consumed_at": consumed,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, SCHEMA)


def test_the_worst_group_comes_first() -> None:
    rows = pa.concat_tables(
        [
            samples("fine", 5, 5, lag0=0),
            samples("slow", 2, 5),
            samples("stands", 0, 5, consumed=START - 3_600_000),
            samples("nearer", 6, 5, lag0=10_000),
        ]
    )
    summary = transform(rows, {"a": 2 * 3600.0})
    assert [(one.group, one.outlook.state) for one in summary] == [
        ("stands", LagState.STOPPED),
        ("slow", LagState.FALLING_BEHIND),
        ("nearer", LagState.CATCHING_UP),
        ("fine", LagState.CAUGHT_UP),
    ]
    assert summary[0].outlook.cut_off_s == pytest.approx(3600 - 190)
    assert summary[1].outlook.cut_off_s is None


def test_the_queues_of_a_topic_are_one_lag() -> None:
    rows = pa.concat_tables([samples("g", 5, 5, lag0=0), samples("g", 2, 5, queue_id=1)])
    [one] = transform(rows, {})
    assert (one.queues, one.worst, one.outlook.state) == (2, "a:1", LagState.FALLING_BEHIND)
    assert one.outlook.come == pytest.approx(10)


def test_the_retention_may_be_given_as_a_parameter() -> None:
    rows = samples("g", 0, 5, consumed=START)
    assert transform(rows, {})[0].outlook.cut_off_s is None
    assert transform(rows, {}, 600_000)[0].outlook.cut_off_s == pytest.approx(600 - 190)
    assert transform(rows, {"a": 700.0}, 600_000)[0].outlook.cut_off_s == pytest.approx(510)


def test_samples_in_any_order_are_courses() -> None:
    rows = pa.concat_tables(
        [samples("g", 1, 2), samples("h", 3, 4), samples("g", 5, 6, broker="b")]
    )
    mixed = rows.take(np.random.default_rng(1).permutation(rows.num_rows))
    summary = progress_by_queue(mixed)
    assert set(summary) == {
        ("g", "orders", "a", 0),
        ("h", "orders", "a", 0),
        ("g", "orders", "b", 0),
    }
    for course in summary.values():
        assert (np.diff(course.at_s) == 10).all()
        assert len(course.at_s) == 20
    assert summary["g", "orders", "b", 0].committed[-1] == 950
    assert np.isnan(summary["g", "orders", "a", 0].consumed_s).all()


def test_a_deleted_queue_is_not_judged() -> None:
    rows = pa.concat_tables([samples("g", 1, 2), samples("old", 1, 2, count=5)])
    assert [one.group for one in transform(rows, {})] == ["g"]
    assert transform(SCHEMA.empty_table(), {}) == ()
