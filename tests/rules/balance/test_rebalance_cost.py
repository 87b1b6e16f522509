from roquet.model.queue import MessageQueue
from roquet.rules.allocate import STRATEGIES, allocate
from roquet.rules.balance.rebalance_cost import (
    ShareSpread,
    estimated_lag,
    fewest_moves,
    is_worth_moving,
    lag_spread,
    moved_queues,
    owner_map,
    queue_spread,
)

QUEUES = [MessageQueue("t", "b", i) for i in range(8)]
MEMBERS = ["c0", "c1", "c2", "c3"]


def test_the_documented_example_moves_five_where_two_would_do() -> None:
    for name in ("AVG", "AVG_BY_CIRCLE"):
        before, after = (allocate(QUEUES, MEMBERS[:n], STRATEGIES[name]) for n in (3, 4))
        assert len(moved_queues(before, after)) == 5
        assert fewest_moves(before, QUEUES, MEMBERS) == 2


def test_a_queue_without_an_owner_now_has_moved() -> None:
    assert moved_queues({"a": QUEUES[:2]}, {"a": QUEUES[1:2]}) == QUEUES[:1]


def test_a_queue_without_a_former_owner_has_not_moved() -> None:
    assert moved_queues({"a": []}, {"a": QUEUES}) == []
    assert fewest_moves({"a": QUEUES[:3]}, QUEUES, ["a", "b"]) == 0


def test_all_queues_of_a_leaving_member_move() -> None:
    before = allocate(QUEUES, MEMBERS)
    assert fewest_moves(before, QUEUES, MEMBERS[1:]) == 2
    assert fewest_moves(before, QUEUES[1:], MEMBERS[1:]) == 1, "a queue that is gone moves nowhere"


def test_an_uneven_past_costs_what_is_too_much() -> None:
    assert fewest_moves({"a": QUEUES}, QUEUES, ["a", "b"]) == 4
    assert fewest_moves({"a": QUEUES[:7]}, QUEUES[:7], ["a", "b"]) == 3, "the larger share is a's"


def test_spreads_are_the_smallest_and_the_largest() -> None:
    shares = {"a": QUEUES[:3], "b": QUEUES[3:4], "c": []}
    assert queue_spread(shares) == ShareSpread(0, 3)
    assert not queue_spread(shares).is_even
    assert queue_spread(allocate(QUEUES, MEMBERS[:3])).is_even
    assert lag_spread(shares, {QUEUES[0]: 7, QUEUES[3]: 9}) == ShareSpread(0, 9)
    assert queue_spread({}) == ShareSpread(0, 0)


def test_owners_are_shares_turned_round() -> None:
    assert owner_map({"a": QUEUES[:1], "b": QUEUES[1:2]}) == {QUEUES[0]: "a", QUEUES[1]: "b"}


Q = [MessageQueue("t", "a", number) for number in range(4)]


def test_an_unknown_queue_has_the_mean_of_the_others() -> None:
    assert estimated_lag(Q[:3], {Q[0]: 10, Q[1]: 20, Q[3]: 900}) == {Q[0]: 10, Q[1]: 20, Q[2]: 15}


def test_where_nothing_is_known_nothing_waits() -> None:
    assert estimated_lag(Q[:2], {}) == {Q[0]: 0, Q[1]: 0}


def test_queues_move_only_when_the_fullest_gains_much() -> None:
    before, after = {"m": Q[:2], "n": Q[2:]}, {"m": [Q[0], Q[2]], "n": [Q[1], Q[3]]}
    lag = {Q[0]: 5_000, Q[1]: 5_000, Q[2]: 0, Q[3]: 0}
    assert is_worth_moving(before, after, lag)
    assert not is_worth_moving(after, before, lag), "worse"
    assert not is_worth_moving(before, before, lag), "the same"
    assert not is_worth_moving(before, after, {Q[0]: 500, Q[1]: 400}), "little waits"
    nearly = {Q[0]: 9_000, Q[1]: 1_500, Q[2]: 0, Q[3]: 0}
    assert not is_worth_moving(before, after, nearly), "a seventh less"


def test_an_empty_group_gains_nothing() -> None:
    assert not is_worth_moving({}, {}, {})
