from hypothesis import given
from hypothesis import strategies as st

from roquet.cli.demo import event_log
from roquet.cli.demo.event_log import HandledFlight, QueuesOwned

numbers = st.integers(0, 2**32 - 1)


@given(st.lists(st.tuples(numbers, numbers)), st.integers(0, 7))
def test_every_whole_entry_is_read_back_and_half_an_entry_is_not(
    notes: list[tuple[int, int]], torn: int
) -> None:
    data = b"".join(event_log.pack(HandledFlight(*note)) for note in notes) + bytes(torn)
    assert event_log.read(data) == [HandledFlight(*note) for note in notes]


def test_a_message_of_two_members_counts_once_as_handled_and_once_as_twice() -> None:
    books = [
        [HandledFlight(0, 1), HandledFlight(1, 2)],
        [HandledFlight(1, 5), HandledFlight(2, 6), HandledFlight(2, 7)],
    ]
    assert event_log.distinct_handled(books) == 3
    assert event_log.duplicates(books) == 2


@given(st.lists(st.lists(st.builds(HandledFlight, st.integers(0, 20), numbers))))
def test_handled_and_twice_are_all_notes(books: list[list[HandledFlight]]) -> None:
    assert event_log.distinct_handled(books) + event_log.duplicates(books) == sum(map(len, books))


def test_a_rate_is_per_second_whatever_the_step() -> None:
    curve = event_log.rate([0, 100, 499, 500], end_ms=1000, step_ms=500)
    assert (curve.at, curve.values) == ([0.5, 1.0], [6.0, 2.0])


def test_an_event_at_the_very_end_belongs_to_the_last_step() -> None:
    assert event_log.rate([1000, 1700], end_ms=1000, step_ms=500).values == [0.0, 4.0]


@given(st.lists(st.integers(0, 9999)), st.integers(1, 9999))
def test_a_rate_loses_nothing(moments: list[int], end_ms: int) -> None:
    curve = event_log.rate(moments, end_ms)
    assert round(sum(curve.values) / 2) == len(moments)


def test_lag_counts_the_unhandled_messages() -> None:
    books = [
        [HandledFlight(0, 600), HandledFlight(1, 1100)],
        [HandledFlight(1, 700), HandledFlight(1, 2000)],
    ]
    curve = event_log.lag([0, 0, 0], books, end_ms=1500, step_ms=500)
    assert curve.values == [3.0, 3.0, 1.0]
    assert curve.at == [0.5, 1.0, 1.5]


def test_a_flight_waits_from_its_broker_on_whenever_its_receipt_came() -> None:
    late_receipts = [900, 900, 900]
    books = [[HandledFlight(0, 250, 100), HandledFlight(1, 250, 110), HandledFlight(2, 390, 380)]]
    assert event_log.lag(late_receipts, books, end_ms=500).values == [0.0, 2.0, 2.0, 1.0, 0.0]


def test_a_pause_is_seen_for_as_long_as_it_lasts() -> None:
    books = [[HandledFlight(n, 400, 10 * n) for n in range(40)]]
    curve = event_log.lag([0] * 40, books, end_ms=600)
    assert curve.values == [10.0, 20.0, 30.0, 40.0, 40.0, 0.0]


def test_an_unhandled_message_waits_until_the_end() -> None:
    assert event_log.lag([50], [[]], end_ms=300).values == [1.0, 1.0, 1.0]
    assert event_log.lag([], [[]], end_ms=200).values == [0.0, 0.0]


def test_a_queue_that_moves_has_two_whiles() -> None:
    changes = {
        "one": [QueuesOwned(0, ("q0", "q1")), QueuesOwned(50, ("q0",))],
        "two": [QueuesOwned(60, ("q1",))],
    }
    spans = event_log.ownership_spans(changes, {"one": 90, "two": 100})
    assert [(w.member, w.queue, w.start_ms, w.end_ms) for w in spans] == [
        ("one", "q0", 0, 90),
        ("one", "q1", 0, 50),
        ("two", "q1", 60, 100),
    ]


def test_a_queue_that_comes_back_is_a_new_while() -> None:
    changes = {"one": [QueuesOwned(0, ("q",)), QueuesOwned(10, ()), QueuesOwned(20, ("q",))]}
    spans = event_log.ownership_spans(changes, {"one": 30})
    assert [(w.start_ms, w.end_ms) for w in spans] == [(0, 10), (20, 30)]
