"""The rate is kept, and lost time is not made up for."""

import pytest

from roquet.spark.jobs.rate_limit import RowRateLimit


class ManualClock:
    def __init__(self) -> None:
        self.ms = 0

    def now(self) -> int:
        return self.ms

    def pause(self, ms: int) -> None:
        self.ms += ms


@pytest.mark.parametrize(("rate", "count"), [(100.0, 10), (3.0, 1), (5000.0, 500)])
def test_messages_are_paced_at_the_rate(rate: float, count: int) -> None:
    time = ManualClock()
    rate_limit = RowRateLimit(rate, time.pause, time.now)
    for _ in range(50):
        rate_limit.wait(count)
    assert time.ms == pytest.approx(49 * count * 1000 / rate, rel=0.02)


def test_time_lost_in_a_stop_is_not_made_up_for() -> None:
    time = ManualClock()
    rate_limit = RowRateLimit(10.0, time.pause, time.now)
    rate_limit.wait(1)
    time.ms += 60_000
    for _ in range(11):
        rate_limit.wait(1)
    assert time.ms == 60_000 + 1_000


def test_without_a_rate_nothing_waits() -> None:
    time = ManualClock()
    rate_limit = RowRateLimit(None, time.pause, time.now)
    rate_limit.wait(10**9)
    assert (time.ms, rate_limit.step) == (0, None)


@pytest.mark.parametrize(("rate", "step"), [(0.5, 1), (10.0, 1), (1000.0, 100)])
def test_a_second_has_ten_steps_at_most(rate: float, step: int) -> None:
    assert RowRateLimit(rate, lambda _: None).step == step
