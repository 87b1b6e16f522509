"""The simulation earns its trust: each planted bug is found, and without one nothing is."""

import pytest

from roquet.testing.simulation.balance.consumer import BalanceConsumer
from roquet.testing.simulation.balance.defects import DEFECTS
from roquet.testing.simulation.balance.run import simulate

SEEDS = {
    "early-commit": range(3, 8),
    "skipped-commit": range(4),
    "ignored-lock": range(3, 10),
    "lost-notice": range(1),
    "reordering-retry": range(9, 14),
}
"""For each bug some seeds of which one finds it: `roquet simulate --defect NAME` tries many."""


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_bug_is_found(defect: str) -> None:
    assert any(simulate(seed, DEFECTS[defect]).faults for seed in SEEDS[defect])


@pytest.mark.parametrize("seed", range(12))
def test_without_one_nothing_is_wrong(seed: int) -> None:
    assert simulate(seed).faults == ()


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = vars(BalanceConsumer).copy()
    simulate(0, DEFECTS["lost-notice"])
    assert vars(BalanceConsumer) == before
    assert simulate(0).faults == ()
