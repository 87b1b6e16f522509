"""Replicated workload: seeds without findings, equal in every process."""

import msgspec
import pytest

from roquet.testing.simulation.replicated.scenario import (
    PlannedFault,
    ReplicaFault,
    draw_scenario,
)
from roquet.testing.simulation.replicated.workload import ReplicatedWorkload, records_of
from roquet.testing.simulation.simulator import simulate


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
    monkeypatch.setattr("roquet.testing.simulation.replicated.workload.HEAL_MS", 300)
    kill = PlannedFault(at_ms=500, fault=ReplicaFault.KILL, broker=1, other=1, length_ms=50)
    scenario = msgspec.structs.replace(draw_scenario(0), faults=(kill,))
    found = simulate(lambda _: ReplicatedWorkload(scenario), 0).findings
    assert [finding.split(":")[0] for finding in found] == ["unhealed"]


def test_an_empty_log_has_no_records() -> None:
    assert records_of(b"") == []
