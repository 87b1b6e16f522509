import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.dashboard.facts.trend import WINDOW_MS, lag_trend

TIMES = [0, 10_000, 20_000]


@pytest.mark.parametrize(
    ("lags", "per_s", "caught_up_ms", "text"),
    [
        ([], None, None, "not known yet"),
        ([5], None, None, "not known yet"),
        ([300, 200, 100], -10, 10_000, "shrinking"),
        ([100, 200, 300], 10, None, "growing"),
        ([7, 7, 7], 0, None, "steady"),
        ([20, 10, 0], -1, 0, "caught up"),
        ([200, -1, 100], -5, 20_000, "shrinking"),
        ([-1, -1, -1], None, None, "not known yet"),
        ([110, 100], -1, 100_000, "shrinking"),
    ],
)
def test_a_lag_has_a_direction_and_an_end(
    lags: list[int], per_s: float | None, caught_up_ms: int | None, text: str
) -> None:
    trend = lag_trend(TIMES, lags)
    assert trend.per_s == pytest.approx(per_s)
    assert (trend.caught_up_ms, trend.text) == (caught_up_ms, text)


def test_only_the_last_minutes_count() -> None:
    trend = lag_trend([0, WINDOW_MS * 2, WINDOW_MS * 2 + 1_000], [10**6, 100, 90])
    assert trend.per_s == pytest.approx(-10)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(-1, 2**40)), max_size=30))
def test_any_samples_have_a_trend(samples: list[tuple[int, int]]) -> None:
    times = sorted(time for time, _ in samples)
    trend = lag_trend(times, [lag for _, lag in samples])
    assert trend.caught_up_ms is None or trend.caught_up_ms >= 0
    assert trend.text
