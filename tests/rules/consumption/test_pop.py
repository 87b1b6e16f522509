from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import allocate, average
from roquet.rules.consumption import pop


def checkpoint(
    start: int = 100, offsets: tuple[int, ...] = (100, 102), **fields: int
) -> pop.PopCheckpoint:
    bits = pop.bits_of(offsets, start)
    values: dict[str, Any] = {
        "pop_ms": 1_000,
        "invisible_ms": 500,
        "revive_queue_id": 0,
        "revive_offset": 0,
        **fields,
    }
    return pop.PopCheckpoint(
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
    assert pop.offsets_of(pop.bits_of(offsets, start), start) == offsets


def test_acknowledged_messages_are_finished() -> None:
    flight, popped = pop.OpenCheckpoints(), checkpoint()
    flight.add(popped)
    assert flight.settle(popped, popped.bit(100)) == 1
    assert flight.settle(popped, popped.bit(100)) == 0, "twice is once"
    assert flight.find(popped.key) is popped
    assert flight.settle(popped, popped.bit(102)) == 4
    assert flight.find(popped.key) is None
    assert len(flight) == 0
    assert flight.take_due(10_000) is None


def test_remaining_messages_are_due_after_their_time() -> None:
    flight, late, early = pop.OpenCheckpoints(), checkpoint(invisible_ms=900), checkpoint(0, (0,))
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
    flight = pop.OpenCheckpoints()
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
    flight, first, second = pop.OpenCheckpoints(), checkpoint(), checkpoint(revive_offset=50)
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
    flight, first = pop.OpenCheckpoints(), checkpoint()
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
    flight = pop.OpenCheckpoints()
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
        due.update(pop.offsets_of(left.left, left.start))
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
    assert pop.next_batch_size(count, taken, handled_in_ms) == expected


def test_finished_checkpoints_do_not_wait_for_their_time() -> None:
    flight = pop.OpenCheckpoints()
    kept = checkpoint(7, (7,), invisible_ms=10**9)
    flight.add(kept)
    for n in range(5_000):
        flight.add(one := checkpoint(n, (n,), pop_ms=n, invisible_ms=10**9 + n))
        flight.settle(one, 1)
    assert flight.scheduled_count <= pop.FINISHED_MAX + 2
    assert flight.take_due(10**10) is kept
    assert flight.take_due(10**10) is None


def test_the_more_are_in_flight_the_further_back_the_oldest_may_be() -> None:
    flight = pop.OpenCheckpoints()
    assert flight.lag_max() == pop.REVIVE_LAG_MAX
    for n in range(pop.REVIVE_LAG_MAX):
        flight.add(checkpoint(n, (n,)))
    assert flight.lag_max() == 2 * pop.REVIVE_LAG_MAX


def test_a_clock_that_was_set_back_makes_nothing_wait_longer_than_it_was_to() -> None:
    flight, popped = pop.OpenCheckpoints(), checkpoint(invisible_ms=900)
    flight.add(popped)
    before = popped.pop_ms - 30 * 86_400_000
    flight.clock_set_back(before)
    assert flight.take_due(before + 899) is None
    assert flight.take_due(before + 900) is popped


QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(4)]
MEMBERS = ["m1", "m2", "m3", "m4"]


def worked_by(member: str, shared: int, members: list[str] = MEMBERS) -> list[int]:
    shares = allocate(QUEUES, members, average)
    return [QUEUES.index(q) for q in pop.member_pop_queues(member, QUEUES, members, shares, shared)]


def test_with_one_to_share_each_works_on_its_own_and_on_the_next_ones() -> None:
    assert worked_by("m1", 1) == [0, 1, 2, 3]
    assert worked_by("m4", 1) == [6, 7, 0, 1], "the list is a ring"
    assert worked_by("m2", 2) == [2, 3, 4, 5, 6, 7]


def test_sharing_none_or_as_many_as_others_means_all_queues() -> None:
    everything = [MessageQueue("t", "a", pop.ANY_QUEUE), MessageQueue("t", "b", pop.ANY_QUEUE)]
    shares = allocate(QUEUES, MEMBERS, average)
    for shared in (-1, 0, 3, 4):
        assert pop.member_pop_queues("m1", QUEUES, MEMBERS, shares, shared) == everything
    assert pop.all_queues(QUEUES) == everything
    assert pop.is_shared_by_all(1, 5)
    assert not pop.is_shared_by_all(4, 2)


def test_with_more_members_than_queues_queues_are_shared() -> None:
    members = [f"m{number:02}" for number in range(11)]
    shares = allocate(QUEUES, members, average)
    popped_queues = [pop.member_pop_queues(m, QUEUES, members, shares, 1) for m in members]
    assert [len(queues) for queues in popped_queues] == [1] * 11
    assert popped_queues[8] == popped_queues[0]


def test_an_unlisted_member_has_no_queues() -> None:
    shares = allocate(QUEUES, MEMBERS, average)
    assert pop.member_pop_queues("stranger", QUEUES, MEMBERS, shares, 1) == ()
    assert pop.member_pop_queues("stranger", QUEUES, MEMBERS, shares, 0) == ()


@given(st.integers(1, 12), st.integers(-2, 12))
def test_every_queue_is_worked_on(count: int, shared: int) -> None:
    members = [f"m{number:02}" for number in range(count)]
    shares = allocate(QUEUES, members, average)
    worked = {q for m in members for q in pop.member_pop_queues(m, QUEUES, members, shares, shared)}
    brokers = {q.broker_name for q in worked if q.queue_id == pop.ANY_QUEUE}
    assert {q for q in QUEUES if q.broker_name not in brokers} <= worked
