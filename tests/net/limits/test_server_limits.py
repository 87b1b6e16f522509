"""Limits of what all connections of a server hold together."""

import pytest

from roquet.net.limits import server_limits
from roquet.net.limits.server_limits import SETTLE_BYTES, LargeFrameBudget, ServerLimits


class RecordingConnection:
    def __init__(self, unsent: int = 0) -> None:
        self.unsent = unsent
        self.admitted = 0
        self.dropped: list[str] = []

    def admit(self) -> None:
        self.admitted += 1

    def drop(self, reason: str) -> None:
        self.dropped.append(reason)


def test_a_large_frame_holds_its_budget_until_it_is_complete() -> None:
    large_frames, connection = LargeFrameBudget(100), RecordingConnection()
    assert large_frames.take(connection, 60, 10)
    assert large_frames.take(connection, 60, 30)
    assert large_frames.size == 60
    large_frames.leave(connection)
    assert large_frames.size == 0


def test_the_next_large_frame_of_a_connection_takes_its_own_size() -> None:
    large_frames, connection = LargeFrameBudget(100), RecordingConnection()
    assert large_frames.take(connection, 60, 10)
    assert large_frames.take(connection, 90, 10)
    assert large_frames.size == 90


def test_frames_without_budget_wait_in_order_of_arrival() -> None:
    large_frames = LargeFrameBudget(100)
    first, large, small = RecordingConnection(), RecordingConnection(), RecordingConnection()
    assert large_frames.take(first, 60, 1)
    assert not large_frames.take(large, 80, 5)
    assert not large_frames.take(small, 20, 7)
    assert large_frames.has_waiting
    assert large_frames.queued == 12
    large_frames.leave(first)
    assert (large.admitted, small.admitted) == (1, 1)
    assert not large_frames.has_waiting
    assert (large_frames.size, large_frames.queued) == (100, 0)


def test_a_connection_that_leaves_the_queue_is_not_admitted() -> None:
    large_frames = LargeFrameBudget(100)
    first, gone, next_ = RecordingConnection(), RecordingConnection(), RecordingConnection()
    assert large_frames.take(first, 60, 1)
    assert not large_frames.take(gone, 80, 5)
    assert not large_frames.take(next_, 70, 5)
    large_frames.leave(gone)
    assert (next_.admitted, large_frames.queued) == (0, 5)
    large_frames.leave(first)
    assert (gone.admitted, next_.admitted, large_frames.size) == (0, 1, 70)


def test_a_full_queue_of_large_frames_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "QUEUED_TOTAL_MAX", 10)
    large_frames = LargeFrameBudget(100)
    first, waits, late = RecordingConnection(), RecordingConnection(), RecordingConnection()
    assert large_frames.take(first, 60, 1)
    assert not large_frames.take(waits, 80, 6)
    assert large_frames.take(late, 80, 6)
    assert late.dropped == ["1 large frames are under way, and more wait than may"]
    assert not waits.dropped


def test_over_the_unsent_limit_the_slowest_reader_is_dropped() -> None:
    quick, slow, slower = RecordingConnection(0), RecordingConnection(400), RecordingConnection(700)
    tally = ServerLimits([quick, slow, slower], untaken_max=1_000).tally
    tally.left = -1
    tally.settle()
    assert tally.left == SETTLE_BYTES
    assert slower.dropped == ["700 bytes wait for it, and more than 1000 for all clients"]
    assert not slow.dropped
    assert not quick.dropped
