from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.fair_share import COMMON_SLOW_MS, PAUSE_MS_MAX, SLOW_MS, pause_end_ms

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
    assert now_ms <= end_ms <= now_ms + PAUSE_MS_MAX
