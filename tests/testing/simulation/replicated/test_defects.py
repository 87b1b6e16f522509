"""The replicated workload earns its trust: each planted bug is found, and none stays."""

import pytest

from roquet.broker.replication.confirmation.set_acknowledgements import SetAcknowledgements
from roquet.testing.simulation.replicated.defects import DEFECTS
from roquet.testing.simulation.workloads import run_seed

SEEDS = {
    "unwaited-acknowledgement": 3,
    "ignored-lease": 1,
    "unapproved-shrink": 9,
    "frozen-master": 1,
    "unconfirmed-reads": 4,
    "skipped-truncation": 3,
    "excessive-truncation": 0,
    "outsider-election": 1,
    "learner-in-set": 1,
    "repeated-epoch": 0,
    "unflushed-report": 81,
    "trusted-log": 1,
    "forgotten-epoch": 3,
}
"""For each bug a seed that finds it: `roquet simulate --defect NAME` tries many."""


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_bug_is_found(defect: str) -> None:
    assert run_seed(("replicated", SEEDS[defect]), defect).findings


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = vars(SetAcknowledgements).copy()
    with DEFECTS["unwaited-acknowledgement"]():
        assert vars(SetAcknowledgements) != before
    assert vars(SetAcknowledgements) == before
