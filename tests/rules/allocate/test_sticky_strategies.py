"""Strategies that know the previous owners: few moves, and the promises made for them."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment, QueueOwners, allocate
from roquet.rules.allocate.sticky_strategies import lag_weighted, sticky
from roquet.rules.balance import rebalance_cost

QUEUES = [MessageQueue("t", "b", i) for i in range(40)]
MEMBERS = [f"c{n}" for n in range(9)]

members_of = st.sets(st.sampled_from(MEMBERS), min_size=1).map(sorted)
owners_of = st.dictionaries(st.sampled_from(QUEUES), st.sampled_from(MEMBERS))
lags = st.dictionaries(
    st.sampled_from(QUEUES), st.integers(-5, 100) | st.integers(0, 10**9), max_size=40
)
counts = st.integers(1, len(QUEUES))


def held(owners: QueueOwners, queues: list[MessageQueue]) -> GroupAssignment:
    """Queues by owner."""
    return {m: [q for q in queues if owners.get(q) == m] for m in MEMBERS}


def ids(shares: GroupAssignment) -> dict[str, list[int]]:
    return {member: [queue.queue_id for queue in share] for member, share in shares.items()}


def fewest_by_trying(queues: list[MessageQueue], members: list[str], before: QueueOwners) -> int:
    """Fewest moves of all even assignments, by exhaustive search."""
    best = len(queues)
    for chosen in product(members, repeat=len(queues)):
        shares = [chosen.count(member) for member in members]
        if max(shares) - min(shares) <= 1:
            moves = sum(before.get(q, m) != m for q, m in zip(queues, chosen, strict=True))
            best = min(best, moves)
    return best


def test_a_joining_member_gets_its_share_and_no_other_queue_moves() -> None:
    before = allocate(QUEUES[:8], MEMBERS[:3])
    after = sticky(QUEUES[:8], MEMBERS[:4], rebalance_cost.owner_map(before))
    assert ids(after) == {"c0": [0, 1], "c1": [3, 4], "c2": [6, 7], "c3": [2, 5]}
    assert len(rebalance_cost.moved_queues(before, after)) == 2


def test_the_queues_of_one_that_leaves_are_spread() -> None:
    before = rebalance_cost.owner_map(allocate(QUEUES[:8], MEMBERS[:4]))
    after = sticky(QUEUES[:8], ["c0", "c1", "c3"], before)
    assert ids(after) == {"c0": [0, 1, 4], "c1": [2, 3, 5], "c3": [6, 7]}


def test_without_a_past_sticky_is_average() -> None:
    assert sticky(QUEUES[:10], MEMBERS[:4], {}) == allocate(QUEUES[:10], MEMBERS[:4])


@given(counts, members_of, owners_of)
def test_sticky_is_even_and_moves_no_more_than_it_must(
    count: int, members: list[str], before: QueueOwners
) -> None:
    queues = QUEUES[:count]
    after = sticky(queues, members, before)
    assert sorted(q for share in after.values() for q in share) == queues
    assert rebalance_cost.queue_spread(after).is_even
    assert len(
        rebalance_cost.moved_queues(held(before, queues), after)
    ) == rebalance_cost.fewest_moves(held(before, queues), queues, members)


@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.lists(st.sampled_from([*MEMBERS[:4], None]), min_size=6, max_size=6),
)
def test_no_assignment_whatever_does_with_fewer_moves(
    count: int, members: int, had: list[str | None]
) -> None:
    queues, present = QUEUES[:count], MEMBERS[:members]
    before = {q: m for q, m in zip(QUEUES, had, strict=False) if m is not None}
    after = sticky(queues, present, before)
    assert len(rebalance_cost.moved_queues(held(before, queues), after)) == fewest_by_trying(
        queues, present, before
    )


@given(counts, members_of, owners_of, lags, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(
    count: int, members: list[str], before: QueueOwners, lag: dict[MessageQueue, int], rng: Any
) -> None:
    queues, names = QUEUES[:count], [*members]
    in_turn = sticky(queues, names, before), lag_weighted(queues, names, before, lag)
    rng.shuffle(queues)
    rng.shuffle(names)
    assert (sticky(queues, names, before), lag_weighted(queues, names, before, lag)) == in_turn


def test_a_member_listed_twice_has_one_share() -> None:
    assert ids(sticky(QUEUES[:4], ["c0", "c0", "c1"], {})) == {"c0": [0, 1], "c1": [2, 3]}
    assert (
        rebalance_cost.queue_spread(lag_weighted(QUEUES[:4], ["c0", "c0", "c1"], {}, {})).most == 2
    )


def test_missing_members_and_queues_are_refused() -> None:
    with pytest.raises(UsageError, match="no queues"):
        sticky([], MEMBERS, {})
    with pytest.raises(UsageError, match="no members"):
        lag_weighted(QUEUES, [], {}, {})


def test_the_heaviest_are_dealt_first() -> None:
    lag = dict(zip(QUEUES, [900, 100, 100, 100, 100, 500], strict=False))
    shares = lag_weighted(QUEUES[:6], ["a", "b"], {}, lag, noise=1)
    assert ids(shares) == {"a": [0], "b": [1, 2, 3, 4, 5]}
    assert rebalance_cost.lag_spread(shares, lag).most == 900


def test_where_nothing_waits_queues_are_counted() -> None:
    before = rebalance_cost.owner_map(allocate(QUEUES[:8], MEMBERS[:3]))
    after = lag_weighted(QUEUES[:8], MEMBERS[:4], before, {})
    assert rebalance_cost.queue_spread(after).is_even
    assert len(rebalance_cost.moved_queues(held(before, QUEUES[:8]), after)) == 2


def test_a_little_more_or_less_moves_nothing() -> None:
    before = rebalance_cost.owner_map(allocate(QUEUES, MEMBERS[:4]))
    lag = {queue: 5_000 + 97 * (queue.queue_id % 5) for queue in QUEUES}
    assert rebalance_cost.owner_map(lag_weighted(QUEUES, MEMBERS[:4], before, lag)) == before
    chance = {queue: queue.queue_id % 32 for queue in QUEUES}
    assert rebalance_cost.owner_map(lag_weighted(QUEUES, MEMBERS[:4], before, chance)) == before


def test_a_mountain_moves_nothing_that_would_not_matter() -> None:
    before = rebalance_cost.owner_map(allocate(QUEUES[:9], MEMBERS[:3]))
    after = lag_weighted(QUEUES[:9], MEMBERS[:3], before, {QUEUES[0]: 10**6})
    assert rebalance_cost.owner_map(after) == before


def test_a_member_that_joins_beside_a_huge_lag_is_not_idle() -> None:
    before = dict.fromkeys(QUEUES[:2], "c0")
    after = lag_weighted(QUEUES[:2], ["c0", "c1"], before, {QUEUES[0]: 10**6})
    assert ids(after) == {"c0": [0], "c1": [1]}


@given(counts, members_of, owners_of, lags)
def test_the_fullest_has_a_tenth_too_much_or_nothing_to_give(
    count: int, members: list[str], before: QueueOwners, lag: dict[MessageQueue, int]
) -> None:
    queues = QUEUES[:count]
    after = lag_weighted(queues, members, before, lag, noise=1)
    assert sorted(q for share in after.values() for q in share) == queues
    weights = {m: [max(lag.get(q, 0), 0) + 1 for q in share] for m, share in after.items()}
    least = min(map(sum, weights.values()))
    for own in weights.values():
        gap = sum(own) - least
        fit = sum(weight for weight in own if weight < gap)
        assert gap * 10 <= sum(own) or fit * 10 <= sum(own)
    if not least:
        assert max(map(len, weights.values())) == 1


@given(counts, members_of, owners_of, lags)
def test_a_settled_assignment_stays(
    count: int, members: list[str], before: QueueOwners, lag: dict[MessageQueue, int]
) -> None:
    settled = lag_weighted(QUEUES[:count], members, before, lag)
    assert lag_weighted(QUEUES[:count], members, rebalance_cost.owner_map(settled), lag) == settled


def test_the_queue_that_levels_best_is_handed_over() -> None:
    lag = dict(zip(QUEUES, [3, 8, 2], strict=False))  # weights 4 and 9 beside 3: the gap is 10
    after = lag_weighted(QUEUES[:3], ["a", "b"], _owned("aab"), lag, noise=1)
    assert ids(after) == {"a": [1], "b": [0, 2]}
    lag = dict(zip(QUEUES, [0, 5, 5, 1], strict=False))  # 1, 6, 6 beside 2: half the gap is 5
    after = lag_weighted(QUEUES[:4], ["a", "b"], _owned("aaab"), lag, noise=1)
    assert len(after["b"]) == 2
    assert rebalance_cost.lag_spread(after, lag).most == 6


def _owned(letters: str) -> QueueOwners:
    return dict(zip(QUEUES, letters, strict=False))


def test_a_whole_heap_is_shared_quickly() -> None:
    many = [MessageQueue("t", "b", i) for i in range(4000)]
    after = lag_weighted(many, ["a", "b"], dict.fromkeys(many, "a"), {})
    assert rebalance_cost.queue_spread(after).most <= 2200, "2,100 would be a tenth more than 1,900"
