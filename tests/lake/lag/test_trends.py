"""Rates that outliers do not distort, and forecasts of groups."""

from math import inf, isclose
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.lag.trends import (
    SAMPLES_MAX,
    LagForecast,
    LagState,
    QueueProgressSamples,
    forecast,
    merge_forecasts,
    slope,
)

HOUR = 3600.0


Line = float | tuple[float, float]
"""A constant, or the value at the start and the rate per second."""


def linear_samples(
    committed: Line, end: Line, *, begin: Line = 0, consumed: Line = np.nan, count: int = 20
) -> QueueProgressSamples:
    """Samples every ten seconds; a pair is the value at the start and its rate per second."""
    at: Any = np.arange(count) * 10.0

    def values(line: Line) -> Any:
        start, rate = line if isinstance(line, tuple) else (line, 0)
        return np.array(start + rate * at, float)

    return QueueProgressSamples(
        at_s=at + 1_000_000,
        begin=values(begin),
        committed=values(committed),
        end=values(end),
        consumed_s=values(consumed),
    )


@given(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3))
def test_a_straight_line_has_its_slope(start: float, rate: float) -> None:
    at = np.arange(20.0)
    fitted_rate = slope(at, start + rate * at)
    assert isclose(fitted_rate.value, rate, rel_tol=1e-6, abs_tol=1e-6)
    assert fitted_rate.low - 1e-6 <= rate <= fitted_rate.high + 1e-6


def test_outliers_do_not_change_the_slope() -> None:
    at = np.arange(30.0)
    values = 5 * at
    values[[3, 14, 25]] = [9_000, -9_000, 50_000]
    assert slope(at, values).value == 5


def test_noise_without_a_trend_has_none() -> None:
    rng = np.random.default_rng(1)
    rate = slope(np.arange(60.0), rng.normal(100, 10, 60))
    assert rate.low < 0 < rate.high


def test_few_points_promise_nothing() -> None:
    assert slope(np.arange(2.0), np.arange(2.0)).high == inf
    assert slope(np.arange(1.0), np.arange(1.0)).value == 0
    assert slope(np.zeros(9), np.arange(9.0)).value == 0, "all at once"


def test_unknown_points_do_not_count() -> None:
    values = np.arange(20.0)
    values[4:9] = np.nan
    assert slope(np.arange(20.0), values).value == 1
    assert slope(np.arange(5.0), np.full(5, np.nan)).value == 0


def test_very_many_points_are_thinned() -> None:
    count = SAMPLES_MAX * 20
    at: Any = np.arange(count) * 1.0
    assert slope(at, at * 2).value == 2


def test_a_group_that_is_at_the_end_is_caught_up() -> None:
    trend = forecast(linear_samples((0, 5), (0, 5)), HOUR)
    assert (trend.state, trend.lag, trend.caught_up_s) == (LagState.CAUGHT_UP, 0, 0.0)
    assert trend.will_catch_up
    assert trend.come == trend.handled == 5


def test_a_group_whose_lag_is_sometimes_zero_has_caught_up() -> None:
    at_work = linear_samples((0, 5), (0, 5))
    at_work.end[::2] += 40
    at_work.end[-1] += 40
    assert forecast(at_work, HOUR).state is LagState.CAUGHT_UP


def test_a_group_that_catches_up_has_a_time_of_arrival() -> None:
    trend = forecast(linear_samples((0, 15), (10_000, 5)), None)
    assert trend.state is LagState.CATCHING_UP
    assert trend.lag == 8_100
    assert trend.caught_up_s == pytest.approx(810)


def test_a_group_that_falls_behind_never_catches_up() -> None:
    trend = forecast(linear_samples((0, 5), (100, 9)), None)
    assert (trend.state, trend.caught_up_s, trend.cut_off_s) == (
        LagState.FALLING_BEHIND,
        None,
        None,
    )
    assert not trend.will_catch_up


def test_a_group_that_stands_is_cut_off_when_its_message_is_too_old() -> None:
    trend = forecast(linear_samples(50, (100, 9), consumed=1_000_000 - 600), HOUR)
    assert trend.state is LagState.STOPPED
    assert trend.cut_off_s == pytest.approx(HOUR - 600 - 190)


def test_a_group_at_half_the_pace_has_twice_as_long() -> None:
    trend = forecast(linear_samples((0, 5), (100, 10), consumed=(1_000_000, 0.5)), HOUR)
    assert trend.state is LagState.FALLING_BEHIND
    assert trend.cut_off_s == pytest.approx((HOUR - 95) / 0.5)


def test_a_group_whose_messages_get_no_older_is_not_cut_off() -> None:
    trend = forecast(linear_samples((0, 5), (100, 5), consumed=(999_000, 1.0)), HOUR)
    assert (trend.state, trend.cut_off_s) == (LagState.STEADY, None)


def test_a_group_that_is_there_in_time_is_not_cut_off() -> None:
    slow = linear_samples((0, 15), (10_000, 5), consumed=(1_000_000 - 3_000, 0.5))
    assert forecast(slow, HOUR).cut_off_s is None
    late = forecast(slow, 3_200)
    assert late.cut_off_s == pytest.approx((3_200 - 3_095) / 0.5)
    assert not late.will_catch_up


def test_one_that_is_due_may_go_now() -> None:
    assert forecast(linear_samples(50, (100, 9), consumed=1_000_000 - 9_000), HOUR).cut_off_s == 0


def test_a_beginning_that_moves_comes_nearer() -> None:
    trend = forecast(linear_samples((5_000, 1), (9_000, 9), begin=(0, 11)), None)
    assert trend.cut_off_s == pytest.approx((5_190 - 2_090) / 10)


def test_what_was_deleted_before_it_was_handled_is_lost() -> None:
    trend = forecast(linear_samples(100, (900, 1), begin=400), HOUR)
    assert (trend.state, trend.lost) == (LagState.CUT_OFF, 300)
    assert trend.lag == 690, "what is gone does not wait"


def test_a_few_samples_are_not_enough() -> None:
    trend = forecast(linear_samples((0, 5), (100, 9), consumed=999_000, count=2), HOUR)
    assert (trend.state, trend.cut_off_s) == (LagState.UNSURE, None)


def test_several_queues_are_as_good_as_the_worst() -> None:
    parts = [
        LagForecast(state=LagState.CATCHING_UP, lag=5, come=1, handled=3, caught_up_s=9.0),
        LagForecast(state=LagState.STOPPED, lag=7, come=2, handled=0, cut_off_s=60.0),
        LagForecast(state=LagState.CAUGHT_UP, lag=0, come=1, handled=1, caught_up_s=0.0),
    ]
    assert merge_forecasts(parts) == LagForecast(
        state=LagState.STOPPED, lag=12, come=4, handled=4, cut_off_s=60.0
    )
    assert merge_forecasts(parts[::2]).caught_up_s == 9.0


def test_a_state_has_words() -> None:
    assert LagState.FALLING_BEHIND.words == "falling behind"
