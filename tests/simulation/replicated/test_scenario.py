"""Scenarios of replicated groups: equal for a seed, and with faults that their promise bears."""

from itertools import pairwise

import pytest

from roquet.model.errors import UsageError
from simulation.replicated.scenario import (
    MASTER,
    OF_ETCD,
    ControllerStore,
    Promise,
    ReplicaFault,
    draw_scenario,
)

DRAWN = [draw_scenario(seed) for seed in range(200)]


def test_a_seed_draws_the_same_again() -> None:
    assert draw_scenario(7) == DRAWN[7] != DRAWN[8]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="from 0 on"):
        draw_scenario(-1)


def test_every_promise_and_every_fault_is_drawn() -> None:
    assert {scenario.promise for scenario in DRAWN} == set(Promise)
    assert {planned.fault for scenario in DRAWN for planned in scenario.faults} == set(ReplicaFault)
    assert {scenario.has_learner for scenario in DRAWN} == {True, False}


def test_a_life_may_be_longer_and_has_time_to_heal_in_between() -> None:
    for seed in range(5):
        life = draw_scenario(seed, 200).faults
        assert 200 <= len(life) <= 240, "restarts of all come beside them"
        pauses = [after.at_ms - before.at_ms for before, after in pairwise(life)]
        assert min(pauses) >= 0
        assert max(pauses) > 2_000
        assert draw_scenario(seed, 200).is_hurried
        assert not DRAWN[seed].is_hurried


def test_faults_of_etcd_happen_where_there_is_one() -> None:
    for scenario in DRAWN:
        has_etcd = scenario.store is ControllerStore.ETCD
        assert has_etcd == (scenario.controllers > 1)
        assert has_etcd or not {planned.fault for planned in scenario.faults} & {*OF_ETCD}


def test_faults_are_in_order_of_time() -> None:
    for scenario in DRAWN:
        times = [planned.at_ms for planned in scenario.faults]
        assert times == sorted(times)


def test_power_is_lost_only_where_the_promise_bears_it() -> None:
    for scenario in DRAWN:
        loses = any(planned.fault is ReplicaFault.POWER_LOSS for planned in scenario.faults)
        bears = scenario.promise in {Promise.WHOLE_SET, Promise.ON_DISKS}
        assert bears or not loses
        assert scenario.is_durable or scenario.promise is not Promise.ON_DISKS


def test_where_two_logs_are_enough_all_faults_happen_to_one_broker() -> None:
    chosen = [scenario for scenario in DRAWN if scenario.promise is Promise.TWO_OF_THE_SET]
    for scenario in chosen:
        assert not scenario.waits_for_all
        assert len({planned.broker for planned in scenario.faults} - {MASTER}) == 1
        assert scenario.members == {1, 2, 3}
