"""Places for requests that wait, and how old a turn of the loop is."""

import asyncio

import pytest

from roquet.net.limits.request_limits import NEVER_MS, LoopLag, ReadBurst, RequestLimit
from roquet.rules.admission import BURST_MIN, CLOCK_CHECK_MS, OVERLOAD, AdmissionLimits

pytestmark = pytest.mark.virtual_time


def test_a_limit_counts_waiting_requests_until_they_leave() -> None:
    gate = RequestLimit(AdmissionLimits(count=4))
    for size in (10, 20):
        gate.enter("a", size)
    gate.enter("b", 5)
    assert (gate.count, gate.size) == (3, 35)
    gate.leave("a", 10)
    gate.leave("b", 5)
    gate.leave("a", 20)
    assert (gate.count, gate.size, gate.is_tight) == (0, 0, False)
    assert gate.refusal("a") is None


def test_peers_are_not_limited_below_half_of_the_limit() -> None:
    gate = RequestLimit(AdmissionLimits(count=9))
    for number in range(3):
        gate.enter(number, 1)
        assert not gate.is_tight
    gate.enter("next", 1)
    assert gate.is_tight
    assert gate.refusal("other") is None


def test_a_full_limit_refuses_all_until_a_request_leaves() -> None:
    gate = RequestLimit(AdmissionLimits(count=2))
    gate.enter("a", 1)
    gate.enter("b", 1)
    assert gate.is_tight
    assert gate.refusal("c") == OVERLOAD
    gate.leave("a", 1)
    assert gate.refusal("c") is None


def test_one_peer_has_at_most_half_of_the_limit() -> None:
    gate = RequestLimit(AdmissionLimits(count=6))
    for _ in range(3):
        gate.enter("greedy", 1)
    assert gate.is_tight
    assert gate.refusal("greedy") == OVERLOAD
    assert gate.refusal("other") is None


def test_bytes_are_a_limit_too() -> None:
    gate = RequestLimit(AdmissionLimits(count=100, size=1_000))
    gate.enter("a", 400)
    assert not gate.is_tight
    gate.enter("b", 700)
    assert gate.is_tight
    assert gate.refusal("c") == OVERLOAD


def test_limits_can_be_changed_while_requests_wait() -> None:
    gate = RequestLimit(AdmissionLimits(count=100))
    for _ in range(10):
        gate.enter("a", 1)
    gate.change(AdmissionLimits(count=10))
    assert gate.limits.count == 10
    assert gate.refusal("b") == OVERLOAD
    gate.change(AdmissionLimits(count=100))
    assert not gate.is_tight


def test_a_request_that_comes_late_is_refused_only_where_that_is_too_late() -> None:
    quick, slow = (
        RequestLimit(AdmissionLimits(count=10, wait_ms=200)),
        RequestLimit(AdmissionLimits(count=10, wait_ms=5_000)),
    )
    for gate in (quick, slow):
        gate.late(250)
    assert quick.is_tight
    assert "period in queue: 250ms" in (quick.refusal("a") or "")
    assert not slow.is_tight
    quick.late(0)
    assert not quick.is_tight


async def test_a_turn_that_works_on_and_on_makes_its_requests_late_until_it_ends() -> None:
    gate = RequestLimit(AdmissionLimits(count=10, wait_ms=200))
    turn = LoopLag([gate])
    assert turn.check_ms == 0
    turn.look(900)
    turn.count = BURST_MIN
    for now_ms in range(900 + CLOCK_CHECK_MS, 900 + 11 * CLOCK_CHECK_MS, CLOCK_CHECK_MS):
        turn.look(now_ms)
    assert not gate.is_tight
    turn.look(now_ms + CLOCK_CHECK_MS)
    assert gate.is_tight
    await asyncio.sleep(0)
    assert (gate.is_tight, gate.waited_ms) == (False, 0)


async def test_a_few_slow_requests_do_not_make_each_other_late() -> None:
    gate = RequestLimit(AdmissionLimits(count=10, wait_ms=200))
    turn = LoopLag([gate])
    for now_ms in range(0, 1_000, CLOCK_CHECK_MS):
        turn.look(now_ms)
        turn.count += 1
    assert not gate.is_tight


async def test_an_iteration_that_has_served_a_burst_is_crowded_until_it_ends() -> None:
    turn = LoopLag([RequestLimit(AdmissionLimits(count=10, wait_ms=200))])
    numbers = []
    for now_ms in range(900, 900 + 6 * CLOCK_CHECK_MS, 3 * CLOCK_CHECK_MS):
        turn.look(now_ms)
        turn.count += BURST_MIN - 1
        turn.look(now_ms + CLOCK_CHECK_MS)
        assert not turn.crowded
        assert turn.check_ms == now_ms + 2 * CLOCK_CHECK_MS
        turn.count += 1
        turn.look(turn.check_ms)
        numbers.append(turn.crowded)
        await asyncio.sleep(0)
        assert not turn.crowded
    assert 0 < numbers[0] < numbers[1], "each has a number of its own"


async def test_what_waits_for_the_end_of_an_iteration_is_called_once_whatever_else_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn, ended = LoopLag([RequestLimit(AdmissionLimits(count=10))]), list[int]()
    turn.look(0)
    turn.at_end += [lambda: ended.append(1), lambda: 1 // 0, lambda: ended.append(2)]
    assert ended == []
    await asyncio.sleep(0)
    assert ended == [1, 2]
    assert "ZeroDivisionError" in caplog.text
    turn.look(100)
    await asyncio.sleep(0)
    assert ended == [1, 2]


async def test_a_pause_makes_no_request_late_and_restarts_the_lag() -> None:
    gate = RequestLimit(AdmissionLimits(count=10, wait_ms=200))
    turn = LoopLag([gate])
    turn.look(0)
    turn.count = BURST_MIN
    turn.look(10_000)
    assert not gate.is_tight
    await asyncio.sleep(0)
    turn.look(20_000)
    assert gate.waited_ms == 0


def test_without_limits_the_clock_is_not_read() -> None:
    assert LoopLag().check_ms == NEVER_MS


def test_what_a_burst_waits_while_its_peer_holds_it_up_does_not_count() -> None:
    burst = ReadBurst(0)
    burst.count = BURST_MIN
    assert burst.waited_ms(10) == 10
    burst.resume(5_000)
    assert burst.waited_ms(5_003) == 3
