import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.lateness import (
    LAST_TRY,
    Backlog,
    Event,
    Happening,
    clock_skew_ms,
    gaps,
    in_order,
    is_finished,
    span_text,
)

EMPTY = Backlog(queue_id=3)

events = st.lists(
    st.builds(
        Event,
        at_ms=st.integers(0, 10**6),
        kind=st.sampled_from(Happening),
        text=st.text(max_size=3),
        tries=st.integers(0, 3),
    ),
    max_size=12,
)
backlogs = st.builds(
    Backlog,
    queue_id=st.integers(0, 9),
    ahead=st.none() | st.integers(0, 10**6),
    rate=st.none() | st.floats(0, 1e6),
    members=st.none() | st.integers(0, 3),
)


def event(kind: Happening, at_ms: int, tries: int = 0) -> Event:
    return Event(at_ms, kind, kind.name.lower(), tries)


def causes(*given_events: Event, backlog: Backlog = EMPTY) -> list[tuple[int, str]]:
    return [(gap.ms, gap.cause) for gap in gaps(given_events, backlog)]


@given(events, backlogs)
def test_gaps_are_the_time_from_the_first_to_the_last_event(
    some: list[Event], backlog: Backlog
) -> None:
    found, ordered = gaps(some, backlog), in_order(some)
    assert all(gap.ms > 0 and gap.cause for gap in found)
    assert [gap.ms for gap in found] == sorted((gap.ms for gap in found), reverse=True)
    total = ordered[-1].at_ms - ordered[0].at_ms if ordered else 0
    assert sum(gap.ms for gap in found) == total
    by_time = sorted(found, key=lambda gap: gap.begin_ms)
    assert all(a.end_ms <= b.begin_ms for a, b in itertools.pairwise(by_time))


@given(events)
def test_no_time_is_before_the_one_in_front_and_the_skew_says_how_much_was_moved(
    some: list[Event],
) -> None:
    ordered = in_order(some)
    assert [one.at_ms for one in ordered] == sorted(one.at_ms for one in ordered)
    assert (clock_skew_ms(some) == 0) == (
        ordered == sorted(some, key=lambda one: one.order) or not some
    )


def test_a_long_wait_says_how_many_were_ahead_and_how_fast_the_group_was() -> None:
    backlog = Backlog(queue_id=3, ahead=12_300, rate=49.2)
    assert causes(
        event(Happening.STORED, 0),
        event(Happening.STARTED, 250_000),
        event(Happening.HANDLED, 250_400),
        backlog=backlog,
    ) == [
        (
            250_000,
            "it waited in queue 3: 12,300 messages were ahead of it and the group handled 49/s",
        ),
        (400, "a handler worked on it, and succeeded"),
    ]


def test_a_message_that_nobody_was_ahead_of_waited_for_a_member() -> None:
    ((_, cause),) = causes(
        event(Happening.STORED, 0),
        event(Happening.STARTED, 9),
        backlog=Backlog(queue_id=0, ahead=0),
    )
    assert "no member was reading the queue" in cause


def test_a_message_that_waits_says_so_and_that_the_group_has_no_member() -> None:
    backlog = Backlog(queue_id=1, ahead=5, members=0)
    assert causes(event(Happening.STORED, 0), event(Happening.NOW, 9), backlog=backlog) == [
        (
            9,
            "it waited in queue 1: 5 messages were ahead of it; the group has no member now; it "
            "still waits",
        )
    ]


def test_a_slow_group_is_counted_in_fractions() -> None:
    ((_, cause),) = causes(
        event(Happening.STORED, 0),
        event(Happening.POPPED, 9),
        backlog=Backlog(queue_id=0, ahead=2, rate=0.123),
    )
    assert cause.endswith("2 messages were ahead of it and the group handled 0.12/s")


def test_a_popped_message_that_was_not_acknowledged_came_again() -> None:
    assert causes(
        event(Happening.STORED, 0),
        event(Happening.POPPED, 10),
        event(Happening.RETRIED, 60_010, tries=1),
        event(Happening.STARTED, 60_011, tries=1),
    )[0] == (60_000, "it was popped and not acknowledged, and came again")


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Happening.SCHEDULED, "it is delayed, as its sender has asked"),
        (Happening.BORN, "since 'born'; nothing later is known"),
        (Happening.STARTED, "a handler works on it, or ended without a trace"),
    ],
)
def test_a_message_that_is_still_on_its_way_says_where(kind: Happening, cause: str) -> None:
    assert causes(event(kind, 0), event(Happening.NOW, 1)) == [(1, cause)]


def test_a_message_in_a_retry_topic_was_not_behind_those_of_its_first_queue() -> None:
    backlog = Backlog(queue_id=0, ahead=900)
    text = "it waited in the group's retry topic until a member took it"
    retried = event(Happening.RETRIED, 0, tries=1)
    assert causes(retried, event(Happening.STARTED, 5, tries=1), backlog=backlog) == [(5, text)]


def test_progress_past_the_message_does_not_tell_when_it_was_handled() -> None:
    assert causes(event(Happening.STORED, 0), event(Happening.PASSED, 1)) == [
        (1, "it was handled or skipped at some time; nothing tells when")
    ]


@pytest.mark.parametrize("last", [Happening.NOW, Happening.PASSED])
def test_a_failed_message_waits_for_its_next_try_though_progress_is_past_it(
    last: Happening,
) -> None:
    seen = [event(Happening.FAILED, 0), event(last, 9, tries=LAST_TRY)]
    assert causes(*seen) == [(9, "it failed, and waits for its next try")]
    assert not is_finished(seen)


def test_events_that_no_rule_connects_are_named() -> None:
    assert causes(event(Happening.HANDLED, 0), event(Happening.DEAD, 7)) == [
        (7, "between 'handled' and 'dead'")
    ]


def test_a_message_is_finished_once_handled_given_up_or_passed() -> None:
    assert not is_finished([event(Happening.FAILED, 0), event(Happening.NOW, 1)])
    assert is_finished([event(Happening.DEAD, 0)])
    assert is_finished([event(Happening.STORED, 0), event(Happening.PASSED, 1)])


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (350, "350 ms"),
        (1_200, "1.2 s"),
        (250_000, "4 min 10 s"),
        (12_000_000, "3 h 20 min"),
        (187_200_000, "2 d 4 h"),
    ],
)
def test_spans_are_shown_in_two_units(ms: int, text: str) -> None:
    assert span_text(ms) == text
