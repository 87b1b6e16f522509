import pytest

from roquet.rules.rate_limit import RateLimit


@pytest.mark.parametrize(("rate", "count"), [(100.0, 10), (3.0, 1), (5000.0, 500)])
def test_messages_are_paced_at_the_rate(rate: float, count: int) -> None:
    limit, now_ms = RateLimit(rate), 1_000_000
    for _ in range(50):
        now_ms += limit.delay_ms(count, now_ms)
    assert now_ms - 1_000_000 == pytest.approx(49 * count * 1000 / rate, rel=0.02)


def test_time_lost_in_a_stop_is_not_made_up_for() -> None:
    limit = RateLimit(10.0)
    assert [limit.delay_ms(1, 1_000), limit.delay_ms(1, 61_000)] == [0, 0]
    assert [limit.delay_ms(1, 61_000) for _ in range(3)] == [100, 200, 300]


def test_without_a_rate_nothing_waits() -> None:
    limit = RateLimit(None)
    assert (limit.delay_ms(10**9, 0), limit.delay_ms(1, 0), limit.step) == (0, 0, None)


@pytest.mark.parametrize(("rate", "step"), [(0.5, 1), (10.0, 1), (1000.0, 100)])
def test_a_second_has_ten_steps_at_most(rate: float, step: int) -> None:
    assert RateLimit(rate).step == step
