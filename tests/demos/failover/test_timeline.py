import math

import pytest

from demos.failover.timeline import (
    SILENT_MS,
    BrokerSample,
    BrokerState,
    StateSpan,
    confirmed_curve,
    leader,
    longest_pause,
    state_of,
    state_spans,
)

LEADS, FENCED, FOLLOWS = BrokerState.LEADS, BrokerState.FENCED, BrokerState.FOLLOWS


def sample(
    at_ms: int, broker: str, state: BrokerState = LEADS, *, epoch: int = 1, confirmed: int = 0
) -> BrokerSample:
    return BrokerSample(at_ms=at_ms, broker=broker, state=state, epoch=epoch, confirmed=confirmed)


def span(broker: str, state: BrokerState, start_ms: int, end_ms: int) -> StateSpan:
    return StateSpan(broker=broker, state=state, start_ms=start_ms, end_ms=end_ms)


@pytest.mark.parametrize(
    ("is_master", "takes_messages", "state"),
    [(True, True, LEADS), (True, False, FENCED), (False, False, FOLLOWS), (False, True, FOLLOWS)],
)
def test_a_master_that_takes_no_messages_has_no_lease(
    is_master: bool, takes_messages: bool, state: BrokerState
) -> None:
    assert state_of(is_master=is_master, takes_messages=takes_messages) is state


def test_of_two_masters_the_one_of_the_later_epoch_leads() -> None:
    samples = {"a": sample(0, "a", epoch=2), "b": sample(0, "b", epoch=3)}
    assert leader(samples, 100) == samples["b"]


def test_nobody_leads_who_is_silent_fenced_or_follows() -> None:
    samples = {
        "a": sample(0, "a"),
        "b": sample(1_000, "b", FENCED),
        "c": sample(1_000, "c", FOLLOWS),
    }
    assert leader(samples, SILENT_MS) is None
    assert leader(samples, SILENT_MS - 1) == samples["a"]


def test_a_pause_is_the_longest_time_without_an_event_after_its_beginning() -> None:
    assert longest_pause([10, 900, 1_000, 1_200, 5_000, 5_100], 1_100) == 3_800
    assert longest_pause([10, 1_350], 1_100) == 250
    assert longest_pause([10], 1_100) == 0


def test_equal_states_in_a_row_are_one_span_up_to_the_end() -> None:
    samples = [
        sample(0, "a"),
        sample(200, "a"),
        sample(400, "a", FENCED),
        sample(600, "a", FOLLOWS),
    ]
    assert state_spans(samples, 700) == [
        span("a", LEADS, 0, 400),
        span("a", FENCED, 400, 600),
        span("a", FOLLOWS, 600, 700),
    ]


def test_a_silent_broker_is_in_no_state() -> None:
    samples = [sample(0, "a"), sample(200, "a"), sample(5_000, "a"), sample(5_200, "a")]
    assert state_spans(samples, 9_000) == [span("a", LEADS, 0, 200), span("a", LEADS, 5_000, 5_200)]


def test_each_broker_has_spans_of_its_own() -> None:
    samples = [sample(0, "a"), sample(0, "b", FOLLOWS), sample(300, "a"), sample(300, "b", FOLLOWS)]
    assert state_spans(samples, 500) == [span("a", LEADS, 0, 500), span("b", FOLLOWS, 0, 500)]


def test_a_curve_is_cut_where_its_broker_was_silent() -> None:
    samples = [
        sample(0, "a", confirmed=1),
        sample(100, "b", confirmed=9),
        sample(200, "a", confirmed=2),
        sample(4_000, "a", confirmed=3),
    ]
    points = confirmed_curve(samples, "a")
    assert [x for x, _ in points] == [0, 0.2, 0.2, 4]
    assert [y for _, y in points if not math.isnan(y)] == [1, 2, 3]
    assert math.isnan(points[2][1])
