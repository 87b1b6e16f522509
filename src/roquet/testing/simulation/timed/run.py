"""A day from beginning to end, and what the checks say of it."""

import gc
from contextlib import nullcontext

from roquet.testing import clock
from roquet.testing.simulation.balance.run import PlantedDefect, SimulationResult, isolated_clients
from roquet.testing.simulation.timed.checks import judge
from roquet.testing.simulation.timed.scenario import TimedScenario, plan
from roquet.testing.simulation.timed.workload import TimedWorkload


def simulate_timed(seed: int, defect: PlantedDefect = nullcontext) -> SimulationResult:
    """Live through the day of a seed; `defect` may break something for that time."""
    with defect(), isolated_clients():
        outcome = clock.run(live(plan(seed)), seed=seed)
    gc.collect()  # brokers have large files, which nobody would miss for long
    return outcome


async def live(day: TimedScenario) -> SimulationResult:
    """Live through a day."""
    world = TimedWorkload(day)
    await world.run()
    history = world.history
    return SimulationResult(
        kind="day",
        seed=day.seed,
        faults=tuple(judge(world)),
        digest=history.digest(),
        lines=tuple(history.lines),
        handled=len(history.handlings),
        acknowledged=len(history.sent),
    )
