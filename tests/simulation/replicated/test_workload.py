"""Replicated workload: seeds without findings, equal in every process."""

import msgspec
import pytest
from tests.simulation.replicated.conftest import CALM

from simulation.replicated.scenario import (
    PlannedFault,
    ReplicaFault,
    draw_scenario,
)
from simulation.replicated.workload import ReplicatedWorkload, records_of
from simulation.simulator import simulate


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_without_a_defect_nothing_is_found(seed: int) -> None:
    result = simulate(ReplicatedWorkload.of_seed, seed)
    assert result.findings == ()
    assert result.acknowledged > 20
    assert result.disturbances >= 3


def test_a_seed_repeats_byte_for_byte() -> None:
    one, other = (simulate(ReplicatedWorkload.of_seed, 5) for _ in range(2))
    assert one.lines == other.lines
    assert one.digest == other.digest


def test_a_group_that_cannot_heal_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.replicated.workload.HEAL_MS", 300)
    kill = PlannedFault(at_ms=500, fault=ReplicaFault.KILL, broker=1, other=1, length_ms=50)
    scenario = msgspec.structs.replace(draw_scenario(0), faults=(kill,))
    found = simulate(lambda _: ReplicatedWorkload(scenario), 0).findings
    assert [finding.split(":")[0] for finding in found] == ["unhealed"]


def test_a_hurried_life_goes_on_once_the_group_has_recovered() -> None:
    kills = tuple(
        PlannedFault(at_ms=at_ms, fault=ReplicaFault.KILL, broker=2, other=1, length_ms=50)
        for at_ms in (500, 9_000, 18_000)
    )
    ends = list[int]()
    for is_hurried in (False, True):
        scenario = msgspec.structs.replace(CALM, faults=kills, is_hurried=is_hurried)
        result = simulate(lambda _, each=scenario: ReplicatedWorkload(each), 0)  # type: ignore[misc]
        assert (result.findings, result.disturbances) == ((), 3)
        ends.append(max(int(line[:9]) for line in result.lines if "** KILL" in line))
    patient_ms, hurried_ms = ends
    assert patient_ms > 18_000
    assert hurried_ms < 9_000, "and yet the broker was up again before each kill"


def test_an_empty_log_has_no_records() -> None:
    assert records_of(b"") == []
