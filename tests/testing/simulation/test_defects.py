"""The simulation earns its trust: each planted bug is found, and without one nothing is."""

import pytest

from roquet.testing.simulation.defects import DEFECTS, live
from roquet.testing.simulation.member import Member

SEEDS = {
    "early-commit": range(3, 8),
    "skipped-commit": range(4),
    "ignored-lock": range(3, 10),
    "lost-notice": range(1),
    "reordering-retry": range(9, 14),
}
"""For each bug some seeds of which one finds it: `roquet simulate --defect NAME` tries many."""


@pytest.mark.parametrize("defect", [name for name in DEFECTS if name != "none"])
def test_a_planted_bug_is_found(defect: str) -> None:
    assert any(live(defect, seed).faults for seed in SEEDS[defect])


@pytest.mark.parametrize("seed", range(12))
def test_without_one_nothing_is_wrong(seed: int) -> None:
    assert live("none", seed).faults == ()


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = vars(Member).copy()
    live("lost-notice", 0)
    assert vars(Member) == before
    assert live("none", 0).faults == ()
