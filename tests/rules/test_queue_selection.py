from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines, vector_pairs

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.queue_selection import (
    LATENCIES_MS,
    PENALTIES_MS,
    BrokerFault,
    BrokersToAvoid,
    brokers_to_avoid,
    by_hash,
    by_random,
    in_machine_room,
    is_in_use,
    is_reachable,
    next_queue,
    penalty_ms,
    updated_fault,
)

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


@for_each(CASES)
def test_a_hash_goes_where_java_sends_it(case: dict[str, Any]) -> None:
    assert place(case) == case["out"].get("index")


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


FAULT_CASES = vector_lines("fault.jsonl")
NOW = 1_000_000


@for_each(vector_pairs("fault.jsonl", "duration"))
def test_a_broker_is_out_of_use_for_as_long_as_in_java(given_: Any, expected: Any) -> None:
    assert tuple(given_["latency_max"]) == LATENCIES_MS
    assert tuple(given_["not_available"]) == PENALTIES_MS
    out_ms = penalty_ms(given_["latency"], failed=given_["isolation"])
    assert out_ms == expected["not_available_ms"]


def chosen_of(case: Any) -> set[str]:
    """All queues that are chosen at some turn."""
    queues = [MessageQueue("t", name, number) for name, number in case["queues"]]
    avoided = BrokersToAvoid(frozenset(case["unavailable"]), frozenset(case["unreachable"]))
    avoided_or_none = avoided if case["enabled"] else None
    chosen = [
        next_queue(queues, turn, avoid=case["last_broker"], at_fault=avoided_or_none)[0]
        for turn in range(len(queues))
    ]
    return {f"{queue.broker_name}:{queue.queue_id}" for queue in chosen}


@for_each(vector_pairs("fault.jsonl", "select"))
def test_the_same_queues_can_be_chosen_as_in_java(given_: Any, expected: Any) -> None:
    assert chosen_of(given_) == set(expected["possible"])


@for_each(vector_pairs("fault.jsonl", "tolerance"))
def test_faults_are_recorded_as_in_java(given_: Any, expected: Any) -> None:
    faults: dict[str, BrokerFault] = {}
    for name, latency_ms, out_ms, reachable in given_["updates"]:
        faults[name] = updated_fault(faults.get(name), latency_ms, out_ms, NOW, reachable=reachable)
    assert {name: is_in_use(faults, name, NOW) for name in expected["available"]} == expected[
        "available"
    ]
    assert {name: is_reachable(faults, name) for name in expected["reachable"]} == expected[
        "reachable"
    ]


def test_every_vector_is_looked_at() -> None:
    # `duration_disabled` is not a rule: nothing is noted
    # (tests/client/sending/test_fault_tolerance.py).
    ops = {case["in"]["op"] for case in FAULT_CASES}
    assert ops == {"duration", "duration_disabled", "select", "tolerance"}


def test_an_error_counts_as_ten_seconds() -> None:
    assert penalty_ms(1, failed=True) == penalty_ms(10_000) == 10_000


@given(st.integers(-10, 100_000), st.integers(-10, 100_000))
def test_a_higher_latency_never_has_a_shorter_penalty(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert penalty_ms(low) <= penalty_ms(high)


def test_a_penalty_ends_by_itself_and_not_before() -> None:
    faults = {"a": updated_fault(None, 1_900, penalty_ms(1_900), NOW)}
    assert brokers_to_avoid(faults, NOW + 4_999) == BrokersToAvoid(frozenset("a"), frozenset())
    assert brokers_to_avoid(faults, NOW + 5_000) is None
    assert is_in_use(faults, "a", NOW + 5_000)


def test_a_quick_answer_does_not_shorten_a_penalty() -> None:
    slow = updated_fault(None, 20_000, 30_000, NOW)
    assert updated_fault(slow, 1, 0, NOW + 10).until_ms == NOW + 30_000
    assert updated_fault(slow, 600, 2_000, NOW + 10).until_ms == NOW + 30_000
    assert updated_fault(slow, 600, 2_000, NOW + 29_000).until_ms == NOW + 31_000


def test_unreachable_brokers_differ_from_avoided_ones() -> None:
    faults = {"a": BrokerFault(10, NOW + 1), "b": BrokerFault(10, 0, reachable=False)}
    assert brokers_to_avoid(faults, NOW) == BrokersToAvoid(frozenset("a"), frozenset("b"))
    assert brokers_to_avoid({}, NOW) is None
