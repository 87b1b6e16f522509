"""The balance workload earns its trust: each planted bug is found, and without one nothing is."""

import pytest

from roquet.client.rebalance.rebalancer import Rebalancer
from simulation.balance.defects import DEFECTS
from simulation.workloads import run_seed

SEEDS = {
    "early-commit": range(3, 8),
    "skipped-commit": range(4),
    "ignored-lock": range(3, 10),
    "lost-notice": range(1),
    "reordering-retry": range(9, 14),
}
"""For each bug some seeds of which one finds it: `simulation --defect NAME` tries many."""


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_bug_is_found(defect: str) -> None:
    assert any(run_seed(("balance", seed), defect).findings for seed in SEEDS[defect])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_without_one_nothing_is_wrong(seed: int) -> None:
    assert run_seed(("balance", seed)).findings == ()


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = vars(Rebalancer).copy()
    run_seed(("balance", 0), "lost-notice")
    assert vars(Rebalancer) == before
    assert run_seed(("balance", 0)).findings == ()
