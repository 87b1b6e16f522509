"""Which queue to send to."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.select import by_hash, next_queue

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "select.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text("ascii").splitlines()]

FOUR_AND_TWO = [MessageQueue("t", "a", i) for i in range(4)] + [
    MessageQueue("t", "b", i) for i in range(2)
]


def place(case: dict[str, Any]) -> int | None:
    """Where our rule sends a hash; None where it refuses."""
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
    """The next queues, one after the other."""
    found = []
    for _ in range(count):
        queue, turn = next_queue(FOUR_AND_TWO, turn, avoid=avoid)
        found.append(queue)
    return found


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
