"""Balance workload: the faults of its scenario happen, and nothing acknowledged is lost."""

import msgspec
import pytest

from roquet.testing import clock
from simulation.balance.consumer import GROUP
from simulation.balance.scenario import (
    ACTION_MS,
    MILD,
    BalanceScenario,
    draw_scenario,
)
from simulation.balance.workload import BalanceWorkload
from simulation.scenario import Fault, FaultEvent
from simulation.simulator import isolated_clients, run

CALM = msgspec.structs.replace(
    draw_scenario(0), brokers=2, queues=2, members=2, messages=30, failing=0.0, events=()
)


def with_fault(fault: Fault) -> BalanceScenario:
    """The calm scenario with one fault, at 20 s."""
    events = (FaultEvent(at_ms=20_000, fault=fault),)
    return msgspec.structs.replace(CALM, events=events, calm=fault in MILD)


def finished(scenario: BalanceScenario) -> BalanceWorkload:
    """A workload at its end, in which the checks found nothing."""

    async def main() -> BalanceWorkload:
        workload = BalanceWorkload(scenario)
        await run(workload)
        assert workload.is_balanced
        assert workload.findings() == []
        return workload

    with isolated_clients():
        return clock.run(main(), seed=scenario.seed)


def test_without_faults_every_message_is_handled_once() -> None:
    workload = finished(CALM)
    assert len(workload.history.acknowledged) >= 30
    attempts = sorted(attempt.name for attempt in workload.history.attempts)
    assert attempts == sorted(workload.history.acknowledged)
    assert len(workload.queues) == 4


@pytest.mark.parametrize(
    ("fault", "members"),
    [(Fault.JOIN, 3), (Fault.LEAVE, 1), (Fault.KILL, 1), (Fault.SILENCE, 1)],
)
def test_consumers_join_leave_and_die(fault: Fault, members: int) -> None:
    workload = finished(with_fault(fault))
    assert len(workload.cluster.consumers) == members
    assert workload.unhandled() == []


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.PARTITION, Fault.SLOW])
def test_a_cluster_recovers_from_faults_of_brokers_and_network(fault: Fault) -> None:
    workload = finished(with_fault(fault))
    assert workload.unhandled() == []
    assert len(workload.history.handled(GROUP)) > 10


def test_a_calm_group_is_checked_soon_after_each_change() -> None:
    async def agenda(scenario: BalanceScenario) -> list[int]:
        return [item.at_ms for item in BalanceWorkload(scenario).agenda()]

    assert clock.run(agenda(with_fault(Fault.JOIN))) == [20_000, 25_000, ACTION_MS]
    assert clock.run(agenda(with_fault(Fault.KILL))) == [20_000, ACTION_MS]
