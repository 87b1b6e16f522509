"""The choice of a queue to send to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.latency_penalty import BrokersToAvoid
from roquet.rules.queue_selection import by_hash, by_random, in_machine_room, next_queue

CASES = vector_lines("select.jsonl")

FOUR_AND_TWO = [MessageQueue("t", "a", i) for i in range(4)] + [
    MessageQueue("t", "b", i) for i in range(2)
]


def place(case: dict[str, Any]) -> int | None:
    """Index of a hash by our rule; None if it raises UsageError."""
    try:
        return by_hash(case["out"]["hash"], case["in"]["queues"])
    except UsageError:
        return None


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_hash_goes_where_java_sends_it(number: int) -> None:
    assert place(CASES[number]) == CASES[number]["out"].get("index")


def test_the_least_integer_is_safe() -> None:
    assert by_hash(-(2**31), 3) == 2


def test_three_orders_over_four_queues() -> None:
    hashes = [-1691662887, -1691662886, -1691662885]  # XXX001, XXX002, XXX003
    assert [by_hash(h, 4) for h in hashes] == [3, 2, 1]


def taken(turn: int, count: int, avoid: str | None = None) -> list[MessageQueue]:
    """The next queues in sequence."""
    chosen = []
    for _ in range(count):
        queue, turn = next_queue(FOUR_AND_TWO, turn, avoid=avoid)
        chosen.append(queue)
    return chosen


@given(st.integers(0, 2**40))
def test_each_queue_has_its_turn(start: int) -> None:
    assert sorted(taken(start, 6)) == FOUR_AND_TWO


@given(st.integers(0, 2**40))
def test_the_broker_that_failed_is_passed_over(start: int) -> None:
    assert {queue.broker_name for queue in taken(start, 9, avoid="a")} == {"b"}


def test_the_only_broker_is_tried_again() -> None:
    assert next_queue(FOUR_AND_TWO[:4], 6, avoid="a") == (FOUR_AND_TWO[2], 7)


def test_without_queues_there_is_no_choice() -> None:
    with pytest.raises(UsageError, match="no queue"):
        next_queue([], 0)


def test_ten_sends_over_four_queues_take_them_in_turn() -> None:
    four, turn, seen = FOUR_AND_TWO[:4], 3, []
    for _ in range(10):
        queue, turn = next_queue(four, turn)
        seen.append(queue.queue_id)
    assert seen == [3, 0, 1, 2, 3, 0, 1, 2, 3, 0]


def brokers(to_avoid: BrokersToAvoid | None, avoid: str | None = None) -> set[str]:
    """All brokers that are chosen, from any turn."""
    return {
        next_queue(FOUR_AND_TWO, turn, avoid=avoid, at_fault=to_avoid)[0].broker_name
        for turn in range(12)
    }


def at_fault(out_of_use: str = "", unreachable: str = "") -> BrokersToAvoid:
    return BrokersToAvoid(frozenset(out_of_use), frozenset(unreachable))


@pytest.mark.parametrize(
    ("to_avoid", "avoid", "chosen"),
    [
        (at_fault("a"), None, "b"),
        (at_fault("a", "b"), None, "b"),  # in use comes before reachable
        (at_fault("ab", "a"), None, "b"),  # none is in use: one that can be reached
        (at_fault("ab", "ab"), None, "ab"),  # none of either: as if nothing were known
        (at_fault("b"), "a", "b"),  # the other one is out of use, but did not just fail
        (at_fault("b", "b"), "a", "ab"),
        (at_fault(), "a", "b"),
    ],
)
def test_brokers_in_use_come_first_then_those_in_reach_then_all(
    to_avoid: BrokersToAvoid, avoid: str | None, chosen: str
) -> None:
    assert brokers(to_avoid, avoid) == set(chosen)


def test_a_choice_changes_neither_the_queues_nor_their_order() -> None:
    # A well-known wrong version writes another broker's name into the shared queue.
    queues = list(FOUR_AND_TWO)
    for turn in range(12):
        next_queue(queues, turn, avoid="a", at_fault=at_fault("ab", "ab"))
    assert queues == FOUR_AND_TWO
    with pytest.raises(AttributeError):
        queues[0].broker_name = "b"  # type: ignore[misc]


def test_a_queue_of_the_broker_that_failed_is_not_made_up() -> None:
    # Another wrong version stays with the failed broker, or takes a queue that it does not have.
    for turn in range(12):
        queue, _ = next_queue(FOUR_AND_TWO, turn, avoid="a", at_fault=at_fault("a"))
        assert queue in FOUR_AND_TWO[4:]


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 10_000))
def test_chance_falls_on_a_place_that_is_there(chance: float, count: int) -> None:
    assert 0 <= by_random(chance, count) < count


def test_chance_needs_a_queue_too() -> None:
    with pytest.raises(UsageError, match="no queue"):
        by_random(0.5, 0)


@pytest.mark.parametrize(("room", "chosen"), [("A", "a"), ("B", "b"), ("C", "ab")])
def test_queues_of_the_room_or_all_when_it_has_none(room: str, chosen: str) -> None:
    near = in_machine_room(FOUR_AND_TWO, room, str.upper)
    assert {queue.broker_name for queue in near} == set(chosen)
