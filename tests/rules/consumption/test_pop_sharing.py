"""Queues that several members pop from."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.model.queue import MessageQueue
from roquet.rules.allocate import allocate, average
from roquet.rules.consumption.pop_sharing import (
    ANY_QUEUE,
    all_queues,
    is_shared_by_all,
    member_pop_queues,
)

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(4)]
MEMBERS = ["m1", "m2", "m3", "m4"]


def worked_by(member: str, shared: int, members: list[str] = MEMBERS) -> list[int]:
    shares = allocate(QUEUES, members, average)
    return [QUEUES.index(q) for q in member_pop_queues(member, QUEUES, members, shares, shared)]


def test_with_one_to_share_each_works_on_its_own_and_on_the_next_ones() -> None:
    assert worked_by("m1", 1) == [0, 1, 2, 3]
    assert worked_by("m4", 1) == [6, 7, 0, 1], "the list is a ring"
    assert worked_by("m2", 2) == [2, 3, 4, 5, 6, 7]


def test_sharing_none_or_as_many_as_others_means_all_queues() -> None:
    everything = [MessageQueue("t", "a", ANY_QUEUE), MessageQueue("t", "b", ANY_QUEUE)]
    shares = allocate(QUEUES, MEMBERS, average)
    for shared in (-1, 0, 3, 4):
        assert member_pop_queues("m1", QUEUES, MEMBERS, shares, shared) == everything
    assert all_queues(QUEUES) == everything
    assert is_shared_by_all(1, 5)
    assert not is_shared_by_all(4, 2)


def test_with_more_members_than_queues_queues_are_shared() -> None:
    members = [f"m{number:02}" for number in range(11)]
    shares = allocate(QUEUES, members, average)
    popped_queues = [member_pop_queues(m, QUEUES, members, shares, 1) for m in members]
    assert [len(queues) for queues in popped_queues] == [1] * 11
    assert popped_queues[8] == popped_queues[0]


def test_an_unlisted_member_has_no_queues() -> None:
    shares = allocate(QUEUES, MEMBERS, average)
    assert member_pop_queues("stranger", QUEUES, MEMBERS, shares, 1) == ()
    assert member_pop_queues("stranger", QUEUES, MEMBERS, shares, 0) == ()


@given(st.integers(1, 12), st.integers(-2, 12))
def test_every_queue_is_worked_on(count: int, shared: int) -> None:
    members = [f"m{number:02}" for number in range(count)]
    shares = allocate(QUEUES, members, average)
    worked = {q for m in members for q in member_pop_queues(m, QUEUES, members, shares, shared)}
    brokers = {q.broker_name for q in worked if q.queue_id == ANY_QUEUE}
    assert {q for q in QUEUES if q.broker_name not in brokers} <= worked
