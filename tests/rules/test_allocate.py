"""Apache's strategies against its decisions, and properties of all of ours."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import (
    BROKER_DECIDED,
    STRATEGIES,
    Strategy,
    allocate,
    average,
    consistent_hash,
    from_config,
    machine_room,
    name_of,
    nearby,
    share_of,
)

CASES = vector_lines("allocate.jsonl")

queue_sets = st.sets(
    st.builds(
        MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from("abc"), st.integers(0, 30)
    ),
    min_size=1,
)
member_sets = st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=9)
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def room_of(name: str) -> str:
    return name.partition("-")[0]


def configured(rows: list[list[Any]]) -> Strategy:
    return from_config([MessageQueue(*row) for row in rows])


WITH_PARAMETERS: Mapping[str, Callable[[Any], Strategy]] = {
    "CONSISTENT_HASH": lambda given: consistent_hash(given["virtual_nodes"]),
    "CONFIG": lambda given: configured(given["config_queues"]),
    "MACHINE_ROOM": lambda given: machine_room(given["consumer_idcs"]),
    "MACHINE_ROOM_NEARBY": lambda given: nearby(STRATEGIES[given["inner"]], room_of, room_of),
}


def strategy_of(case: dict[str, Any]) -> Strategy:
    made = WITH_PARAMETERS.get(case["strategy"])
    return made(case["params"]) if made else STRATEGIES[case["strategy"]]


def answer(case: dict[str, Any], member: str) -> list[list[Any]] | None:
    """A member's queues by our rule; None if it raises UsageError."""
    queues = [MessageQueue(*row) for row in case["queues"]]
    try:
        share = share_of(member, allocate(queues, case["cids"], strategy_of(case)))
    except UsageError:
        return None
    return [[q.topic, q.broker_name, q.queue_id] for q in share]


@for_each(CASES)
def test_every_member_gets_what_java_gives_it(case: dict[str, Any]) -> None:
    expected = {
        member: None if isinstance(share, dict) else share
        for member, share in case["out"]["result"].items()
    }
    assert {member: answer(case["in"], member) for member in expected} == expected


def test_no_genuine_strategy_is_left_out() -> None:
    apache = {case["in"]["strategy"] for case in CASES}
    assert apache == {"AVG", "AVG_BY_CIRCLE", *WITH_PARAMETERS}


def test_strategies_have_names_for_operators() -> None:
    class OwnStrategy:
        def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str]) -> Any:
            """Not called here."""

    assert name_of(STRATEGIES["CONSISTENT_HASH"]) == "CONSISTENT_HASH"
    assert name_of(average) == "AVG"
    assert name_of(from_config([])) == "CONFIG"
    assert name_of(machine_room(["east"])) == "MACHINE_ROOM"
    assert name_of(consistent_hash(virtual_nodes=3)) == "consistent_hash"
    assert name_of(nearby(average, str, str)) == "nearby"
    assert name_of(lambda queues, members: {}).startswith("test_strategies_have_names")
    assert name_of(OwnStrategy()).startswith("test_strategies_have_names")


def test_members_cannot_compute_broker_decided_strategies() -> None:
    assert not BROKER_DECIDED & set(STRATEGIES)


@every_strategy
@given(queue_sets, member_sets)
def test_every_queue_has_exactly_one_owner(
    name: str, queues: set[MessageQueue], members: set[str]
) -> None:
    shares = allocate(list(queues), list(members), STRATEGIES[name])
    assert sorted(q for share in shares.values() for q in share) == sorted(queues)
    assert set(shares) == members


@every_strategy
@given(queue_sets, member_sets, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(
    name: str, queues: set[MessageQueue], members: set[str], rng: Random
) -> None:
    shuffled_queues, shuffled_members = list(queues), list(members)
    rng.shuffle(shuffled_queues)
    rng.shuffle(shuffled_members)
    strategy = STRATEGIES[name]
    assert allocate(list(queues), list(members), strategy) == allocate(
        shuffled_queues, shuffled_members, strategy
    )


@given(queue_sets, member_sets)
def test_average_differs_by_one_at_most(queues: set[MessageQueue], members: set[str]) -> None:
    for name in ("AVG", "AVG_BY_CIRCLE"):
        shares = allocate(list(queues), list(members), STRATEGIES[name])
        sizes = {len(share) for share in shares.values()}
        assert max(sizes) - min(sizes) <= 1


def test_an_unlisted_member_has_no_share_and_one_without_an_id_is_refused() -> None:
    shares = allocate([MessageQueue("t", "b", 0)], ["a"])
    assert share_of("nobody", shares) == ()
    with pytest.raises(UsageError, match="without an id"):
        share_of("", shares)
