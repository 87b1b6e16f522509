"""Queues to consumers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import STRATEGIES, allocate, average, share_of

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "allocate.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text("ascii").splitlines()]

queue_sets = st.sets(
    st.builds(
        MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from("abc"), st.integers(0, 30)
    ),
    min_size=1,
)
member_sets = st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=9)


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "b", i) for i in range(count)]


def ids(count: int, members: int) -> list[list[int]]:
    """The queue ids of each of so many members."""
    shares = allocate(queues_of(count), [f"c{i}" for i in range(members)])
    return [[q.queue_id for q in shares[f"c{i}"]] for i in range(members)]


def answer(case: dict[str, Any], member: str) -> list[list[Any]] | None:
    """What our rule gives a member; None where it refuses."""
    given_queues = [MessageQueue(*row) for row in case["queues"]]
    try:
        share = share_of(member, allocate(given_queues, case["cids"], STRATEGIES[case["strategy"]]))
    except UsageError:
        return None
    return [[q.topic, q.broker_name, q.queue_id] for q in share]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_member_gets_what_java_gives_it(number: int) -> None:
    case = CASES[number]
    expected = {
        member: None if isinstance(share, dict) else share
        for member, share in case["out"]["result"].items()
    }
    assert {member: answer(case["in"], member) for member in expected} == expected


def test_average_shares_differ_by_one_and_the_first_are_larger() -> None:
    assert ids(8, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert ids(10, 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_members_beyond_the_queues_get_none() -> None:
    assert ids(4, 5) == [[0], [1], [2], [3], []]


def test_a_member_that_is_listed_twice_owns_its_first_share() -> None:
    assert average(queues_of(4), ["a", "a"]) == {"a": queues_of(4)[:2]}


def test_no_queues_and_no_members_are_said() -> None:
    with pytest.raises(UsageError, match="no queues"):
        allocate([], ["a"])
    with pytest.raises(UsageError, match="no members"):
        allocate(queues_of(1), [])


@given(queue_sets, member_sets)
def test_every_queue_has_exactly_one_owner(queues: set[MessageQueue], members: set[str]) -> None:
    shares = allocate(list(queues), list(members))
    assert sorted(q for share in shares.values() for q in share) == sorted(queues)
    sizes = {len(share) for share in shares.values()}
    assert max(sizes) - min(sizes) <= 1


@given(queue_sets, member_sets, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(
    queues: set[MessageQueue], members: set[str], rng: Any
) -> None:
    shuffled_queues, shuffled_members = list(queues), list(members)
    rng.shuffle(shuffled_queues)
    rng.shuffle(shuffled_members)
    assert allocate(list(queues), list(members)) == allocate(shuffled_queues, shuffled_members)


def test_names_are_sorted_as_java_does() -> None:
    beyond, within = "\U0001f600", "\uffee"  # the first is less in UTF-16, not in code points
    shares = allocate(queues_of(2), [within, beyond])
    assert [q.queue_id for q in shares[beyond]] == [0]
