"""Requests that are accepted or refused as busy, and connections that the broker drops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.admission import (
    BURST_MIN,
    BYTES_MAX,
    CLOCK_CHECK_MS,
    COMMON_SLOW_MS,
    CONNECTION_PAUSE_MS_MAX,
    OVERLOAD,
    PAUSE_MS_MAX,
    SLOW_MS,
    AdmissionLimits,
    RequestLoad,
    is_near_limit,
    loop_lag_ms,
    pause_end_ms,
    refusal,
    slow_readers,
    waited_ms,
)

LIMITS = AdmissionLimits(count=100, size=1_000, wait_ms=200)


def load(count: int = 0, size: int = 0, of_peer: int = 0, waited_ms: int = 0) -> RequestLoad:
    return RequestLoad(count=count, size=size, of_peer=of_peer, waited_ms=waited_ms)


@pytest.mark.parametrize(
    "taken",
    [load(), load(count=99), load(size=999), load(count=99, of_peer=49), load(waited_ms=200)],
)
def test_below_every_limit_a_request_is_taken(taken: RequestLoad) -> None:
    assert refusal(LIMITS, taken) is None


@pytest.mark.parametrize(
    "refused", [load(count=100), load(count=101), load(size=1_000), load(count=60, of_peer=50)]
)
def test_without_a_place_it_is_refused_in_the_genuine_words(refused: RequestLoad) -> None:
    assert refusal(LIMITS, refused) == OVERLOAD


def test_a_late_request_is_refused_with_its_wait_and_queue_length() -> None:
    assert refusal(LIMITS, load(count=7, waited_ms=201)) == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        "period in queue: 201ms, size of queue: 7"
    )


def test_without_a_time_limit_no_request_waits_too_long() -> None:
    patient = AdmissionLimits(count=10)
    assert refusal(patient, load(waited_ms=10**9)) is None
    assert not is_near_limit(patient, load(waited_ms=10**9))
    assert patient.size == BYTES_MAX


def test_the_only_place_is_for_anybody() -> None:
    assert refusal(AdmissionLimits(count=1), load()) is None


@given(
    st.builds(
        AdmissionLimits,
        count=st.integers(1, 50),
        size=st.integers(1, 50),
        wait_ms=st.none() | st.integers(0, 50),
    ),
    st.builds(
        RequestLoad,
        count=st.integers(0, 60),
        size=st.integers(0, 60),
        of_peer=st.just(0),
        waited_ms=st.integers(0, 60),
    ),
    st.integers(0, 60),
)
def test_every_refused_request_was_near_a_limit(
    limits: AdmissionLimits, taken: RequestLoad, of_peer: int
) -> None:
    mine = load(taken.count, taken.size, min(of_peer, taken.count), taken.waited_ms)
    if refusal(limits, mine) is not None:
        assert is_near_limit(limits, taken)


def test_a_turn_ages_by_its_work_and_hardly_by_a_pause() -> None:
    age_ms = 0
    for _ in range(10):
        age_ms = loop_lag_ms(age_ms, CLOCK_CHECK_MS)
    assert age_ms == 10 * CLOCK_CHECK_MS
    assert loop_lag_ms(0, 10_000) == PAUSE_MS_MAX < 200


def test_only_in_a_crowd_does_it_matter_how_old_a_turn_is() -> None:
    assert waited_ms(500, BURST_MIN) == 500
    assert waited_ms(500, BURST_MIN - 1) == 0


def test_the_slowest_go_until_the_rest_is_bearable() -> None:
    assert slow_readers({"a": 10, "b": 60, "c": 50}, 60) == ["b"]
    assert slow_readers({"a": 10, "b": 60, "c": 50}, 59) == ["b", "c"]
    assert slow_readers({"a": 10, "b": 60}, 70) == []
    assert slow_readers({}, 0) == []


@given(st.dictionaries(st.text(max_size=2), st.integers(1, 100)), st.integers(0, 300))
def test_no_more_go_than_have_to(untaken: dict[str, int], limit: int) -> None:
    gone = slow_readers(untaken, limit)
    left = sum(untaken.values()) - sum(untaken[who] for who in gone)
    assert left <= limit
    assert not gone or left + untaken[gone[-1]] > limit


times = st.integers(0, 10_000)


def test_a_connection_pauses_as_long_as_it_held_the_loop() -> None:
    assert pause_end_ms(0, 1_000, 40, is_common=False) == 1_040


def test_ordinary_requests_go_on_at_once() -> None:
    assert pause_end_ms(0, 1_000, SLOW_MS - 1, is_common=False) == 1_000
    assert pause_end_ms(0, 1_000, COMMON_SLOW_MS - 1, is_common=True) == 1_000
    assert pause_end_ms(9_999, 1_000, 1, is_common=False) == 1_000


def test_a_large_batch_waits_for_what_it_took_too_long() -> None:
    assert pause_end_ms(0, 1_000, COMMON_SLOW_MS + 30, is_common=True) == 1_030


def test_several_wait_one_after_the_other() -> None:
    first = pause_end_ms(0, 1_000, 40, is_common=False)
    assert pause_end_ms(first, 1_010, 50, is_common=False) == 1_090


@given(times, times, times, st.booleans())
def test_no_request_waits_longer_than_half_a_second(
    free_ms: int, now_ms: int, held_ms: int, common: bool
) -> None:
    end_ms = pause_end_ms(free_ms, now_ms, held_ms, is_common=common)
    assert now_ms <= end_ms <= now_ms + CONNECTION_PAUSE_MS_MAX
