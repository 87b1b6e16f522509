"""When a consumer stops to pull."""

from roquet.rules.flow import Limits


def test_a_queue_waits_when_its_count_or_size_is_reached() -> None:
    limits = Limits(count=3, size=300)
    assert limits.are_reached(3, 0, 0)
    assert limits.are_reached(0, 300, 0)
    assert not limits.are_reached(2, 299, 0)


def test_a_queue_waits_when_its_span_is_exceeded() -> None:
    assert Limits(span=2_000).are_reached(2, 0, 2_001)
    assert not Limits(span=2_000).are_reached(2, 0, 2_000)
    assert not Limits(span=None).are_reached(2, 0, 1 << 40)


def test_the_limits_are_javas_by_default() -> None:
    limits = Limits()
    assert (limits.count, limits.size, limits.span) == (1_000, 100 * 1024 * 1024, 2_000)
