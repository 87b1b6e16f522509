"""The consume window."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.consumption.progress import ConsumeWindow, retry_pause_ms


def window(*offsets: int, start: int = 0) -> ConsumeWindow:
    made = ConsumeWindow(start)
    made.take([(offset, 100) for offset in offsets], offsets[-1] + 1 if offsets else start)
    return made


def test_an_empty_window_commits_where_it_will_read() -> None:
    assert window(start=7).committable == 7


def test_the_lowest_in_flight_holds_progress_back() -> None:
    w = window(10, 11, 12)
    w.finish(11)
    w.finish(12)
    assert (w.committable, w.count) == (10, 1)
    w.finish(10)
    assert (w.committable, w.count) == (13, 0)


def test_messages_that_did_not_match_are_passed() -> None:
    w = ConsumeWindow(0)
    w.take([(3, 10), (7, 10)], 20)
    w.finish(3)
    assert w.committable == 7
    w.finish(7)
    assert w.committable == 20


def test_finishing_twice_or_something_unknown_changes_nothing() -> None:
    w = window(1, 2)
    w.finish(1)
    w.finish(1)
    w.finish(99)
    assert (w.committable, w.count, w.size) == (2, 1, 100)


def test_a_move_forward_waits_for_what_is_in_flight() -> None:
    w = window(1, 2)
    w.move(50)
    assert (w.next_offset, w.committable) == (50, 1)
    w.finish(1)
    w.finish(2)
    assert w.committable == 50


def test_a_move_back_forgets_what_will_be_read_again() -> None:
    w = window(5, 6, start=5)
    w.move(2)
    assert (w.next_offset, w.committable, w.count, w.size) == (2, 2, 0, 0)
    w.finish(5)
    assert w.committable == 2


def test_the_span_reaches_from_the_lowest_to_the_highest_in_flight() -> None:
    w = window(10, 11, 40)
    assert w.span == 30
    w.finish(40)
    assert w.span == 1
    w.finish(10)
    assert (w.span, w.committable) == (0, 11)
    w.finish(11)
    assert (w.span, w.committable) == (0, 41)


@given(st.sets(st.integers(0, 500), min_size=1), st.data())
def test_looking_at_the_span_changes_no_progress(offsets: set[int], data: st.DataObject) -> None:
    w = window(*sorted(offsets))
    left = set(offsets)
    for offset in data.draw(st.permutations(sorted(offsets))):
        w.finish(offset)
        left.discard(offset)
        assert w.span == (max(left) - min(left) if left else 0)
        assert w.committable == min(left, default=max(offsets) + 1)


@given(st.sets(st.integers(0, 500), min_size=1), st.data())
def test_nothing_unfinished_is_ever_behind_the_committed(
    offsets: set[int], data: st.DataObject
) -> None:
    w = window(*sorted(offsets))
    left = set(offsets)
    for offset in data.draw(st.permutations(sorted(offsets))):
        w.finish(offset)
        left.discard(offset)
        assert w.committable == min(left, default=max(offsets) + 1)
        assert (w.count, w.size) == (len(left), 100 * len(left))


def test_the_pause_before_another_try_grows_up_to_half_a_minute() -> None:
    pauses = [retry_pause_ms(tries) for tries in (0, 1, 2, 3, 4, 5, 9_999)]
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
