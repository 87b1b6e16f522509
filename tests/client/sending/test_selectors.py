"""Selectors choose the queue of a message."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.for_each import for_each

from roquet.client.sending.selectors import Chance, KeyHash, MachineRoom, QueueSelection, java_hash
from roquet.model.errors import UsageError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.rules.queue_selection import BrokersToAvoid

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "select.jsonl"
CASES = [
    case
    for line in VECTORS.read_text("ascii").splitlines()
    if "index" in (case := json.loads(line))["out"]
]

WEST = [MessageQueue("t", "west-1", i) for i in range(2)]
EAST = [MessageQueue("t", "east-1", i) for i in range(2)]
QUEUES = WEST + EAST
MESSAGE = Message("t", b"x", tag="new")


def chosen(selector: Any, count: int, avoid: str | None = None) -> Counter[str]:
    """Count the choices of each broker."""
    selection = QueueSelection(selector, MESSAGE)
    return Counter(selection.choose(QUEUES, avoid, None).broker_name for _ in range(count))


@for_each(CASES)
def test_a_key_of_any_kind_goes_where_java_sends_it(case: dict[str, Any]) -> None:
    given, expected = case["in"], case["out"]
    if given["type"] == "Long" and -(2**31) <= given["key"] < 0:
        return  # a whole number that fits into 32 bits is an Integer to us
    queues = [MessageQueue("t", "b", i) for i in range(given["queues"])]
    selection = QueueSelection(KeyHash(lambda _: given["key"]), MESSAGE)
    assert java_hash(given["key"]) == expected["hash"]
    assert selection.choose(queues, None, None).queue_id == expected["index"]


def test_chance_takes_all_queues_alike() -> None:
    selection = QueueSelection(Chance(Random(1)), MESSAGE)
    seen = Counter(selection.choose(QUEUES, None, None) for _ in range(4_000))
    assert all(850 < count < 1_150 for count in seen.values())
    assert len(seen) == 4


def test_a_machine_room_has_its_own_queues_in_turn() -> None:
    selection = QueueSelection(MachineRoom("west", rng=Random(1)), MESSAGE)
    seen = Counter(selection.choose(QUEUES, None, None) for _ in range(10))
    assert seen == dict.fromkeys(WEST, 5)


def test_a_room_without_brokers_takes_all() -> None:
    assert chosen(MachineRoom("north"), 8) == {"west-1": 4, "east-1": 4}


def test_the_room_of_a_broker_may_be_configured() -> None:
    assert chosen(MachineRoom("x", {"east-1": "x"}.get), 8) == {"east-1": 8}
    with pytest.raises(UsageError, match="has no name"):
        MachineRoom("")


def test_when_the_rooms_broker_has_failed_another_room_serves() -> None:
    assert chosen(MachineRoom("west"), 8, avoid="west-1") == {"east-1": 8}
    usable = BrokersToAvoid(frozenset({"west-1"}), frozenset())
    assert QueueSelection(MachineRoom("west"), MESSAGE).choose(QUEUES, None, usable) in EAST


def test_only_selectors_that_spread_may_choose_again() -> None:
    assert QueueSelection(lambda queues, _: queues[0], MESSAGE).is_bound
    assert QueueSelection(KeyHash(lambda m: m.tag), MESSAGE).is_bound
    assert not QueueSelection(Chance(), MESSAGE).is_bound
    assert not QueueSelection(MachineRoom("west"), MESSAGE).is_bound


def test_a_function_sees_all_queues_and_the_message() -> None:
    seen: list[Any] = []

    def mine(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        seen.append((tuple(queues), message))
        return WEST[1]

    usable = BrokersToAvoid(frozenset({"west-1"}), frozenset())
    assert QueueSelection(mine, MESSAGE).choose(QUEUES, "west-1", usable) == WEST[1]
    assert seen == [(tuple(QUEUES), MESSAGE)]


@pytest.mark.parametrize(
    "answer", [None, MessageQueue("t", "west-1", 9), MessageQueue("u", "west-1", 0), 0, "west-1"]
)
def test_a_foreign_queue_is_refused(answer: Any) -> None:
    def mine(queues: Sequence[MessageQueue], message: Message) -> Any:
        return answer

    with pytest.raises(UsageError, match=r"selector .*mine returned .* none of the 4 queues"):
        QueueSelection(mine, MESSAGE).choose(QUEUES, None, None)


def test_an_error_of_a_selector_names_the_selector() -> None:
    def mine(queues: Sequence[MessageQueue], message: Message) -> Any:
        return queues[9]

    with pytest.raises(UsageError, match=r"selector .*mine failed: IndexError.*nothing was sent"):
        QueueSelection(mine, MESSAGE).choose(QUEUES, None, None)


def test_a_selector_cannot_change_the_shared_queues() -> None:
    def mine(queues: Any, message: Message) -> MessageQueue:
        queues.sort()
        return QUEUES[0]

    with pytest.raises(UsageError, match="AttributeError"):
        QueueSelection(mine, MESSAGE).choose(QUEUES, None, None)
    assert QUEUES == WEST + EAST


@pytest.mark.parametrize("key", [None, 1.5, b"x"])
def test_a_key_that_java_would_not_hash_alike_is_refused(key: Any) -> None:
    with pytest.raises(UsageError, match="a key is a str or an int"):
        QueueSelection(KeyHash(lambda _: key), MESSAGE).choose(QUEUES, None, None)
