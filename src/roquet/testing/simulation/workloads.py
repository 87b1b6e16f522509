"""Kinds: what can be simulated, and the bugs that can be planted into each."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Final

from roquet.testing.simulation.balance import defects
from roquet.testing.simulation.balance.run import PlantedDefect, SimulationResult, simulate
from roquet.testing.simulation.timed import defects as day_defects
from roquet.testing.simulation.timed.run import simulate_timed

BALANCE: Final = "balance"
DAY: Final = "day"

WORKLOADS: Final[Mapping[str, Callable[[int, PlantedDefect], SimulationResult]]] = MappingProxyType(
    {BALANCE: simulate, DAY: simulate_timed}
)
"""Members that come, go and die; and a day in which messages wait."""

DEFECTS: Final[Mapping[str, tuple[str, PlantedDefect]]] = MappingProxyType(
    {name: (BALANCE, planted) for name, planted in defects.DEFECTS.items()}
    | {name: (DAY, planted) for name, planted in day_defects.DEFECTS.items()}
)
"""By name: the kind of simulation that finds it, and the bug."""


def run_seed(work: tuple[str, int], defect: str = "none") -> SimulationResult:
    """Live through a seed of a kind, all by name: another process can be asked for that."""
    kind, seed = work
    planted = DEFECTS[defect][1] if defect != "none" else nullcontext
    return WORKLOADS[kind](seed, planted)
