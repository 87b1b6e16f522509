"""How far archives are behind, and when retention overtakes them, from their statuses alone."""

from typing import Any

import pytest

from roquet.lake.lag.table_lag import TableLag, table_lag
from roquet.lake.lag.trends import LagState
from roquet.lake.status import JobStatus, LagPoint

HOUR_MS = 3_600_000
NOW_MS = 1_769_860_860_000


def status(*points: LagPoint, hours: float | None = 10) -> JobStatus:
    return JobStatus(
        job="archive",
        topic="orders",
        number=7,
        committed_ms=NOW_MS,
        offsets={},
        points=points,
        retention_s=None if hours is None else hours * 3600,
    )


def point(at_h: float = 0, **offsets: Any) -> LagPoint:
    """A point so many hours from now; nothing waits unless it is said."""
    return LagPoint(at_ms=NOW_MS + int(at_h * HOUR_MS), **{"committed": 9, **offsets})


def lag_of(*points: LagPoint, hours: float | None = 10) -> TableLag:
    return table_lag("lake/orders", status(*points, hours=hours), NOW_MS)


def test_an_archive_at_the_end_is_overtaken_a_retention_after_its_last_look() -> None:
    lag = lag_of(point(-1))
    assert (lag.lag, lag.lag_s, lag.state) == (0, 0, LagState.CAUGHT_UP)
    assert lag.overtaken_s == pytest.approx(9 * 3600)
    assert lag.alert == ""


def test_an_archive_that_does_not_run_any_more_has_an_alert_before_it_is_too_late() -> None:
    lag = lag_of(point(-8))
    assert lag.overtaken_s == pytest.approx(2 * 3600)
    assert lag.alert == "retention will overtake it unless the archive job runs"
    assert "may have overtaken" in lag_of(point(-11)).alert
    assert lag_of(point(-11)).overtaken_s == 0


def test_waiting_messages_count_from_when_they_were_stored() -> None:
    lag = lag_of(point(waiting=11, oldest_ms=NOW_MS - 4 * HOUR_MS))
    assert (lag.lag, lag.lag_s) == (11, 4 * 3600)
    assert lag.overtaken_s == pytest.approx(6 * 3600)


def test_an_archive_that_falls_behind_has_an_alert_with_the_time() -> None:
    # In each hour it archives what came in half an hour: the oldest waiting message ages.
    points = [
        point(
            at_h,
            committed=1000 + 50 * at_h,
            waiting=1000 + 50 * at_h,
            oldest_ms=int(NOW_MS + (at_h / 2 - 5) * HOUR_MS),
        )
        for at_h in range(-6, 1)
    ]
    lag = lag_of(*points)
    assert lag.state is LagState.FALLING_BEHIND
    assert lag.overtaken_s == pytest.approx(5 * 3600, rel=0.01), "without any further run"
    assert "at this rate" in lag.alert


def test_messages_that_are_gone_are_an_alert() -> None:
    lag = lag_of(point(lost=3, waiting=8))
    assert lag.lost == 3
    assert "messages are lost" in lag.alert


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_was_an_hour_off_is_no_alert(hours: float) -> None:
    lag = lag_of(point(-2 + hours, waiting=4, oldest_ms=NOW_MS), point(-1), point(hours))
    assert (lag.lag, lag.lag_s, lag.state, lag.alert) == (0, 0, LagState.CAUGHT_UP, "")


def test_without_a_known_retention_nothing_is_forecast() -> None:
    lag = lag_of(point(-1000), hours=None)
    assert (lag.overtaken_s, lag.alert) == (None, "")
    assert table_lag("t", status(point(-20), hours=None), NOW_MS, 3600).alert
