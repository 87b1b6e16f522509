"""Workloads: the simulator's workloads by name, and the defects that can be planted into each."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import Final

from simulation.balance import defects as balance_defects
from simulation.balance.workload import BalanceWorkload
from simulation.patching import PlantedDefect
from simulation.replicated import defects as replicated_defects
from simulation.replicated.workload import ReplicatedWorkload
from simulation.simulator import SimulationResult, Workload, simulate
from simulation.timed import defects as timed_defects
from simulation.timed.workload import TimedWorkload

WORKLOADS: Final[Mapping[str, Callable[[int], Workload]]] = MappingProxyType(
    {
        BalanceWorkload.name: BalanceWorkload.of_seed,
        TimedWorkload.name: TimedWorkload.of_seed,
        ReplicatedWorkload.name: ReplicatedWorkload.of_seed,
    }
)

DEFECTS: Final[Mapping[str, tuple[str, PlantedDefect]]] = MappingProxyType(
    {name: (BalanceWorkload.name, defect) for name, defect in balance_defects.DEFECTS.items()}
    | {name: (TimedWorkload.name, defect) for name, defect in timed_defects.DEFECTS.items()}
    | {
        name: (ReplicatedWorkload.name, defect)
        for name, defect in replicated_defects.DEFECTS.items()
    }
)
"""By name: the workload that finds it, and the defect."""


def run_seed(
    work: tuple[str, int], defect: str = "none", faults: int | None = None
) -> SimulationResult:
    """Run (workload, seed) with a defect, all by name: another process can be asked for that.

    `faults` is how many a replicated group lives through; None: as many as its seed draws.
    """
    workload, seed = work
    planted = DEFECTS[defect][1] if defect != "none" else nullcontext
    if faults is not None:
        return simulate(partial(ReplicatedWorkload.of_seed, faults=faults), seed, planted)
    return simulate(WORKLOADS[workload], seed, planted)
