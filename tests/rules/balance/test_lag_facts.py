"""Lag of a group."""

from roquet.model.queue import MessageQueue
from roquet.rules.balance.lag_facts import estimated_lag, is_worth_moving

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
