"""A day from beginning to end, and what the checks say of it."""

import gc
from contextlib import nullcontext

from roquet.testing import clock
from roquet.testing.simulation.day.checks import judge
from roquet.testing.simulation.day.plan import Day, plan
from roquet.testing.simulation.day.world import DayWorld
from roquet.testing.simulation.run import Defect, Outcome, apart


def simulate_day(seed: int, defect: Defect = nullcontext) -> Outcome:
    """Live through the day of a seed; `defect` may break something for that time."""
    with defect(), apart():
        outcome = clock.run(live(plan(seed)), seed=seed)
    gc.collect()  # brokers have large files, which nobody would miss for long
    return outcome


async def live(day: Day) -> Outcome:
    """Live through a day."""
    world = DayWorld(day)
    await world.run()
    ledger = world.ledger
    return Outcome(
        kind="day",
        seed=day.seed,
        faults=tuple(judge(world)),
        digest=ledger.digest(),
        lines=tuple(ledger.lines),
        handled=len(ledger.handlings),
        acknowledged=len(ledger.sent),
    )
