"""Kinds: what can be simulated, and the bugs that can be planted into each."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Final

from roquet.testing.simulation import defects
from roquet.testing.simulation.day import defects as day_defects
from roquet.testing.simulation.day.run import simulate_day
from roquet.testing.simulation.run import Defect, Outcome, simulate

BALANCE: Final = "balance"
DAY: Final = "day"

SIMULATIONS: Final[Mapping[str, Callable[[int, Defect], Outcome]]] = MappingProxyType(
    {BALANCE: simulate, DAY: simulate_day}
)
"""Members that come, go and die; and a day in which messages wait."""

DEFECTS: Final[Mapping[str, tuple[str, Defect]]] = MappingProxyType(
    {name: (BALANCE, planted) for name, planted in defects.DEFECTS.items()}
    | {name: (DAY, planted) for name, planted in day_defects.DEFECTS.items()}
)
"""By name: the kind of simulation that finds it, and the bug."""


def live(work: tuple[str, int], defect: str = "none") -> Outcome:
    """Live through a seed of a kind, all by name: another process can be asked for that."""
    kind, seed = work
    planted = DEFECTS[defect][1] if defect != "none" else nullcontext
    return SIMULATIONS[kind](seed, planted)
