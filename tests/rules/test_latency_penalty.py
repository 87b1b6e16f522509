"""Latency penalties, and the brokers to avoid because of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.model.queue import MessageQueue
from roquet.rules.latency_penalty import (
    LATENCIES_MS,
    PENALTIES_MS,
    BrokerFault,
    BrokersToAvoid,
    brokers_to_avoid,
    is_in_use,
    is_reachable,
    penalty_ms,
    updated_fault,
)
from roquet.rules.queue_selection import next_queue

CASES = vector_lines("fault.jsonl")
NOW = 1_000_000


def cases(op: str) -> list[Any]:
    return [
        pytest.param(c["in"], c["out"], id=str(i))
        for i, c in enumerate(CASES)
        if c["in"]["op"] == op
    ]


@pytest.mark.parametrize(("given_", "expected"), cases("duration"))
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


@pytest.mark.parametrize(("given_", "expected"), cases("select"))
def test_the_same_queues_can_be_chosen_as_in_java(given_: Any, expected: Any) -> None:
    assert chosen_of(given_) == set(expected["possible"])


@pytest.mark.parametrize(("given_", "expected"), cases("tolerance"))
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
    ops = {case["in"]["op"] for case in CASES}
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
