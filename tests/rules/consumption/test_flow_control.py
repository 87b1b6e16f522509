"""Limits at which a consumer stops pulling."""

from roquet.rules.consumption.flow_control import FlowLimits


def test_a_queue_waits_when_its_count_or_size_is_reached() -> None:
    limits = FlowLimits(count=3, size=300)
    assert limits.are_reached(3, 0, 0)
    assert limits.are_reached(0, 300, 0)
    assert not limits.are_reached(2, 299, 0)


def test_a_queue_waits_when_its_span_is_exceeded() -> None:
    assert FlowLimits(span=2_000).are_reached(2, 0, 2_001)
    assert not FlowLimits(span=2_000).are_reached(2, 0, 2_000)
    assert not FlowLimits(span=None).are_reached(2, 0, 1 << 40)


def test_the_limits_are_javas_by_default() -> None:
    limits = FlowLimits()
    assert (limits.count, limits.size, limits.span) == (1_000, 100 * 1024 * 1024, 2_000)
