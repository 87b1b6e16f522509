import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.consumption import pull

OFFSETS = st.integers(-5, 1000)


@pytest.mark.parametrize(
    ("asked", "minimum", "maximum", "expected"),
    [
        (0, 0, 10, pull.FOUND),
        (9, 0, 10, pull.FOUND),
        (10, 0, 10, pull.AT_END),
        (0, 0, 0, pull.AT_END),
        (3, 0, 0, pull.OffsetCorrected(0, "NO_MESSAGE_IN_QUEUE")),
        (-1, 0, 0, pull.OffsetCorrected(0, "NO_MESSAGE_IN_QUEUE")),
        (4, 5, 10, pull.OffsetCorrected(5, "OFFSET_TOO_SMALL")),
        (-1, 0, 10, pull.OffsetCorrected(0, "OFFSET_TOO_SMALL")),
        (11, 5, 10, pull.OffsetCorrected(5, "OFFSET_OVERFLOW_BADLY")),
        (11, 0, 10, pull.OffsetCorrected(0, "OFFSET_OVERFLOW_BADLY")),
        (7, 7, 7, pull.AT_END),
        (6, 7, 7, pull.OffsetCorrected(7, "OFFSET_TOO_SMALL")),
    ],
)
def test_an_offset_is_held_awaited_or_corrected(
    asked: int, minimum: int, maximum: int, expected: pull.PullOutcome
) -> None:
    assert pull.pull_outcome(asked, minimum, maximum) == expected


@pytest.mark.parametrize(
    ("committed", "then"), [(None, 5), (4, 5), (5, 5), (8, 8), (10, 10), (11, 5), (12, 5)]
)
def test_a_reader_beyond_the_end_goes_on_at_its_groups_progress_or_at_the_beginning(
    committed: int | None, then: int
) -> None:
    assert pull.pull_outcome(12, 5, 10, committed) == pull.OffsetCorrected(
        then, "OFFSET_OVERFLOW_BADLY"
    )


@given(OFFSETS, st.integers(0, 500), st.integers(0, 500))
def test_a_corrected_offset_is_right_at_once(asked: int, minimum: int, length: int) -> None:
    maximum = minimum + length
    outcome = pull.pull_outcome(asked, minimum, maximum)
    if isinstance(outcome, pull.OffsetCorrected):
        assert outcome.offset != asked
        assert pull.pull_outcome(outcome.offset, minimum, maximum) in (pull.FOUND, pull.AT_END)


def test_a_client_that_names_no_size_gets_the_genuine_one() -> None:
    assert pull.reply_limits(32, None) == (32, pull.BYTES_DEFAULT)


def test_a_clients_wishes_are_granted_up_to_a_limit() -> None:
    assert pull.reply_limits(10_000, 4_000_000) == (10_000, 4_000_000)
    assert pull.reply_limits(10**9, 10**9) == (pull.COUNT_MAX, pull.BYTES_MAX)


def test_an_odd_wish_still_moves_on() -> None:
    assert pull.reply_limits(0, 0) == (1, pull.BYTES_DEFAULT)
    assert pull.reply_limits(-3, -1) == (1, pull.BYTES_DEFAULT)


def test_a_server_grants_what_it_transfers_at_once() -> None:
    assert pull.transfer_limits(32, 2**31 - 1, 20, 1_000) == (20, 1_000)
    assert pull.transfer_limits(8, 500, 20, 1_000) == (8, 500)
    assert pull.transfer_limits(8, None, 20, 1_000) == (8, 1_000)


def test_a_queue_waits_when_its_count_or_size_is_reached() -> None:
    limits = pull.FlowLimits(count=3, size=300)
    assert limits.are_reached(3, 0, 0)
    assert limits.are_reached(0, 300, 0)
    assert not limits.are_reached(2, 299, 0)


def test_a_queue_waits_when_its_span_is_exceeded() -> None:
    assert pull.FlowLimits(span=2_000).are_reached(2, 0, 2_001)
    assert not pull.FlowLimits(span=2_000).are_reached(2, 0, 2_000)
    assert not pull.FlowLimits(span=None).are_reached(2, 0, 1 << 40)


def test_the_limits_are_javas_by_default() -> None:
    limits = pull.FlowLimits()
    assert (limits.count, limits.size, limits.span) == (1_000, 100 * 1024 * 1024, 2_000)


def test_committed_progress_is_reported_whatever_the_queue_holds() -> None:
    assert pull.queried_progress(7, 100, zero_if_absent=True, is_in_page_cache=False) == 7


def test_a_group_without_progress_starts_a_recent_whole_queue_at_its_first_message() -> None:
    assert pull.queried_progress(None, 0, zero_if_absent=True, is_in_page_cache=True) == 0


def test_a_group_without_progress_has_none_in_an_old_queue() -> None:
    assert pull.queried_progress(None, 0, zero_if_absent=True, is_in_page_cache=False) is None
    assert pull.queried_progress(None, 5, zero_if_absent=True, is_in_page_cache=True) is None


def test_a_client_may_ask_not_to_be_given_a_zero() -> None:
    assert pull.queried_progress(None, 0, zero_if_absent=False, is_in_page_cache=True) is None


def test_the_end_of_the_log_is_recent() -> None:
    assert pull.is_in_page_cache(1_000, 1_400, 1_000)
    assert not pull.is_in_page_cache(1_000, 1_401, 1_000)


def window(*offsets: int, start: int = 0) -> pull.ConsumeWindow:
    made = pull.ConsumeWindow(start)
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
    w = pull.ConsumeWindow(0)
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
    pauses = [pull.retry_pause_ms(tries) for tries in (0, 1, 2, 3, 4, 5, 9_999)]
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
