"""The replicated workload earns its trust: each planted bug is found, and none stays."""

import pytest

from roquet.broker.replication.confirmation.set_acknowledgements import SetAcknowledgements
from simulation.replicated.defects import DEFECTS
from simulation.workloads import run_seed

SEEDS = {
    "unwaited-acknowledgement": 10,
    "ignored-lease": 1,
    "unapproved-shrink": 4,
    "frozen-master": 1,
    "unconfirmed-reads": 6,
    "skipped-truncation": 5,
    "excessive-truncation": 0,
    "outsider-election": 2,
    "learner-in-set": 1,
    "repeated-epoch": 0,
    "unflushed-report": 46,
    "trusted-log": 2,
    "forgotten-epoch": 5,
    "unsafe-answers": 5,
    "unrevived-pops": 5,
    "stolen-place": 21,
}
"""For each bug a seed that finds it: `simulation --defect NAME` tries many."""

FAULTS = {"unsafe-answers": 60}
"""Faults of lives that are longer than those that seeds draw."""


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_bug_is_found(defect: str) -> None:
    assert run_seed(("replicated", SEEDS[defect]), defect, FAULTS.get(defect)).findings


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = vars(SetAcknowledgements).copy()
    with DEFECTS["unwaited-acknowledgement"]():
        assert vars(SetAcknowledgements) != before
    assert vars(SetAcknowledgements) == before
