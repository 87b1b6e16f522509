import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.consumption.pop import (
    FINISHED_MAX,
    REVIVE_LAG_MAX,
    OpenCheckpoints,
    PopCheckpoint,
    bits_of,
    next_batch_size,
    offsets_of,
)


def checkpoint(
    start: int = 100, offsets: tuple[int, ...] = (100, 102), **fields: int
) -> PopCheckpoint:
    bits = bits_of(offsets, start)
    values = {
        "pop_ms": 1_000,
        "invisible_ms": 500,
        "revive_queue_id": 0,
        "revive_offset": 0,
        **fields,
    }
    return PopCheckpoint(
        group="g", topic="t", queue_id=1, start=start, delivered=bits, left=bits, **values
    )


def test_a_checkpoint_knows_its_messages() -> None:
    popped = checkpoint()
    assert [popped.bit(offset) for offset in (99, 100, 101, 102, 103, 10**18)] == [0, 1, 0, 4, 0, 0]
    assert popped.next_offset == 103
    assert popped.due_ms == 1_500


@given(st.sets(st.integers(0, 200)), st.integers(0, 2**40))
def test_sets_of_offsets_come_back(steps: set[int], start: int) -> None:
    offsets = sorted(start + step for step in steps)
    assert offsets_of(bits_of(offsets, start), start) == offsets


def test_acknowledged_messages_are_finished() -> None:
    flight, popped = OpenCheckpoints(), checkpoint()
    flight.add(popped)
    assert flight.settle(popped, popped.bit(100)) == 1
    assert flight.settle(popped, popped.bit(100)) == 0, "twice is once"
    assert flight.find(popped.key) is popped
    assert flight.settle(popped, popped.bit(102)) == 4
    assert flight.find(popped.key) is None
    assert len(flight) == 0
    assert flight.take_due(10_000) is None


def test_remaining_messages_are_due_after_their_time() -> None:
    flight, late, early = OpenCheckpoints(), checkpoint(invisible_ms=900), checkpoint(0, (0,))
    flight.add(late)
    flight.add(early)
    assert flight.take_due(1_499) is None
    assert flight.take_due(1_500) is early
    assert flight.take_due(1_500) is None
    flight.retry(early, 3_000)
    assert flight.take_due(1_900) is late
    assert flight.take_due(2_999) is None
    assert flight.take_due(3_000) is early


def test_progress_in_a_revive_queue_stops_at_the_oldest_that_is_not_over() -> None:
    flight = OpenCheckpoints()
    popped = [checkpoint(n, (n,), revive_offset=n * 10) for n in range(4)]
    for one in popped:
        flight.add(one)
    flight.settle(popped[1], 1)
    assert flight.oldest(0) is popped[0]
    flight.settle(popped[0], 1)
    assert flight.oldest(0) is popped[2]
    flight.moved(popped[2], 99)
    assert flight.oldest(0) is popped[3]
    flight.settle(popped[3], 1)
    assert flight.oldest(0) is popped[2]
    assert popped[2].revive_offset == 99
    assert flight.oldest(7) is None


def test_a_checkpoint_that_was_noted_anew_takes_the_place_of_the_first_note() -> None:
    flight, first, second = OpenCheckpoints(), checkpoint(), checkpoint(revive_offset=50)
    flight.add(first)
    flight.settle(first, 1)
    flight.add(second)
    assert flight.oldest(0) is second
    assert second.left == 4
    assert list(flight) == [second]
    flight.add(done := checkpoint(revive_offset=60))
    flight.settle(done, 4)
    assert len(flight) == 0


def test_a_checkpoint_that_was_noted_anew_with_nothing_left_is_over() -> None:
    flight, first = OpenCheckpoints(), checkpoint()
    flight.add(first)
    flight.settle(first, 1)
    flight.add(again := checkpoint(offsets=(100,), revive_offset=50))
    assert (len(flight), first.left, again.left) == (0, 0, 0)
    assert flight.find(first.key) is None
    assert flight.oldest(0) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1))), st.integers(1, 10))
def test_nothing_is_forgotten_and_nothing_settled_comes_again(
    acks: list[tuple[int, int]], count: int
) -> None:
    flight = OpenCheckpoints()
    popped = [checkpoint(n * 10, (n * 10, n * 10 + 1), pop_ms=n) for n in range(count)]
    for one in popped:
        flight.add(one)
    settled = set()
    for number, which in acks:
        if number < count:
            flight.settle(popped[number], popped[number].bit(number * 10 + which))
            settled.add(number * 10 + which)
    due = set()
    while (left := flight.take_due(10**6)) is not None:
        due.update(offsets_of(left.left, left.start))
    assert due == {n * 10 + which for n in range(count) for which in (0, 1)} - settled


@pytest.mark.parametrize(
    ("count", "taken", "handled_in_ms", "expected"),
    [
        (1, 1, 0, 2),
        (16, 16, 1, 32),
        (32, 32, 32, 32),
        (32, 10, 1_000, 2),
        (8, 1, 100, 2),
        (2, 1, 1_000, 1),
        (1, 1, 60_000, 1),
    ],
)
def test_a_member_takes_what_it_handles_in_a_moment(
    count: int, taken: int, handled_in_ms: int, expected: int
) -> None:
    assert next_batch_size(count, taken, handled_in_ms) == expected


def test_finished_checkpoints_do_not_wait_for_their_time() -> None:
    flight = OpenCheckpoints()
    kept = checkpoint(7, (7,), invisible_ms=10**9)
    flight.add(kept)
    for n in range(5_000):
        flight.add(one := checkpoint(n, (n,), pop_ms=n, invisible_ms=10**9 + n))
        flight.settle(one, 1)
    assert flight.scheduled_count <= FINISHED_MAX + 2
    assert flight.take_due(10**10) is kept
    assert flight.take_due(10**10) is None


def test_the_more_are_in_flight_the_further_back_the_oldest_may_be() -> None:
    flight = OpenCheckpoints()
    assert flight.lag_max() == REVIVE_LAG_MAX
    for n in range(REVIVE_LAG_MAX):
        flight.add(checkpoint(n, (n,)))
    assert flight.lag_max() == 2 * REVIVE_LAG_MAX


def test_a_clock_that_was_set_back_makes_nothing_wait_longer_than_it_was_to() -> None:
    flight, popped = OpenCheckpoints(), checkpoint(invisible_ms=900)
    flight.add(popped)
    before = popped.pop_ms - 30 * 86_400_000
    flight.clock_set_back(before)
    assert flight.take_due(before + 899) is None
    assert flight.take_due(before + 900) is popped
