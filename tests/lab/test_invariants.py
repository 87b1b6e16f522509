"""Claims are checked against simulated histories, and a false one is reported."""

import numpy as np
import pytest
from msgspec.structs import replace

from roquet.lab import spark_job
from roquet.lab.decisions import NAMES
from roquet.lab.invariants import InvariantResult, claims
from roquet.lab.scenario import PRESETS, LabScenario
from roquet.lab.study import Study

KEYED = replace(PRESETS["churn"], name="keyed", messages=40, keys=20, members=10)
STUDY = Study(scenarios=(KEYED,), strategies=NAMES, histories=40, seed=2)


@pytest.fixture(scope="module")
def simulated() -> dict[str, np.ndarray]:
    batch = spark_job.rows(STUDY, list(range(STUDY.histories)))
    shape = STUDY.histories, 1, len(NAMES)
    return {
        name: batch.column(name).to_numpy(zero_copy_only=False).astype(float).reshape(shape)
        for name in spark_job.SCHEMA.names
        if name not in ("scenario", "strategy", "mode")
    }


def failed(study: Study, values: dict[str, np.ndarray]) -> list[InvariantResult]:
    return [claim for claim in claims(study, values) if not claim.holds]


def test_every_claim_holds_of_our_rules(simulated: dict[str, np.ndarray]) -> None:
    assert failed(STUDY, simulated) == []
    texts = " ".join(claim.text for claim in claims(STUDY, simulated))
    for word in ("AVG", "about 1/n", "beyond are idle", "POP", "STICKY", "order", "one owner"):
        assert word in texts


@pytest.mark.parametrize(
    ("measure", "strategy", "text"),
    [
        ("spread_max", "AVG", "AVG: members' shares differ"),
        ("strayed", "CONSISTENT_HASH", "no queue moves between members that stay"),
        ("moved", "STICKY", "no fewer moves"),
        ("moved", "RENDEZVOUS", "about 1/n"),
        ("idle_members", "POP", "without anything to take from"),
        ("disordered", "AVG", "keep their order"),
        ("unowned_share", "BOUNDED_LOAD", "one owner"),
    ],
)
def test_a_rule_that_breaks_its_claim_is_found_out(
    simulated: dict[str, np.ndarray], measure: str, strategy: str, text: str
) -> None:
    broken = {name: values.copy() for name, values in simulated.items()}
    broken[measure][:, :, NAMES.index(strategy)] += 3
    assert any(text in claim.text for claim in failed(STUDY, broken))


def test_idle_members_that_are_fewer_than_there_must_be_are_found_out(
    simulated: dict[str, np.ndarray],
) -> None:
    broken = dict(simulated, idle_members=np.zeros_like(simulated["idle_members"]))
    assert any("beyond are idle" in claim.text for claim in failed(STUDY, broken))


def test_strategies_that_were_not_simulated_have_no_claims() -> None:
    study = replace(STUDY, strategies=("POP",), scenarios=(LabScenario(messages=20),), histories=3)
    batch = spark_job.rows(study, [0, 1, 2])
    values = {
        name: batch.column(name).to_numpy(zero_copy_only=False).astype(float).reshape(3, 1, 1)
        for name in ("idle_members", "spare_members", "lost_work")
    }
    assert [claim.text.partition(":")[0] for claim in claims(study, values)] == ["POP"]
