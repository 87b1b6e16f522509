from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.line_limit import BURST, PAUSE_MS, LineLimit


def test_after_a_burst_a_place_writes_one_line_in_ten_seconds_with_the_number_left_out() -> None:
    limit = LineLimit()
    assert [limit.left_out_before("a", 5) for _ in range(BURST)] == [0] * BURST
    assert [limit.left_out_before("a", 5 + ms) for ms in (0, PAUSE_MS // 2)] == [None, None]
    assert limit.left_out_before("a", 5 + PAUSE_MS) == 2
    assert limit.left_out_before("a", 5 + PAUSE_MS) is None


def test_places_do_not_take_lines_from_each_other() -> None:
    limit = LineLimit()
    for _ in range(BURST + 1):
        limit.left_out_before("a", 0)
    assert limit.left_out_before("a", 0) is None
    assert limit.left_out_before("b", 0) == 0


def test_a_place_that_was_quiet_has_its_burst_again() -> None:
    limit = LineLimit()
    for now_ms in (0, BURST * PAUSE_MS):
        assert sum(limit.left_out_before("a", now_ms) is not None for _ in range(300)) == BURST


def test_a_clock_that_is_set_back_neither_adds_lines_nor_stops_them() -> None:
    limit = LineLimit()
    for _ in range(BURST + 1):
        limit.left_out_before("a", 10 * PAUSE_MS)
    assert limit.left_out_before("a", 0) is None
    assert limit.left_out_before("a", PAUSE_MS) == 2


@given(st.lists(st.integers(0, 3 * PAUSE_MS), max_size=300))
def test_whatever_comes_no_line_is_uncounted_and_no_more_than_the_limit_is_written(
    pauses: list[int],
) -> None:
    limit, now_ms, written, left_out, said = LineLimit(), 0, 0, 0, 0
    for pause in pauses:
        now_ms += pause // 20
        before = limit.left_out_before("a", now_ms)
        if before is None:
            left_out += 1
        else:
            written, said = written + 1, said + before
            assert said == left_out
    assert written <= BURST + now_ms / PAUSE_MS + 1e-6
