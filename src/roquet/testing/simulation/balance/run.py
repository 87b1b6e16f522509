"""One seed from beginning to end, and what the checks say of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from roquet.client.connection import open_consumers
from roquet.testing import clock
from roquet.testing.simulation.balance import checks
from roquet.testing.simulation.balance.scenario import BalanceFault, BalanceScenario, draw_scenario
from roquet.testing.simulation.balance.workload import BalanceWorkload
from roquet.testing.simulation.patching import patched

PlantedDefect = Callable[[], AbstractContextManager[None]]

LOCKS_FORGOTTEN_MS: Final = 60_000
"""Locks are not stored: after a broker's crash two members may hold one until they look again."""


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed came to."""

    kind: str
    seed: int
    faults: tuple[str, ...]
    digest: str
    """Of all lines: the same seed gives the same one."""
    lines: tuple[str, ...]
    handled: int
    acknowledged: int


def simulate(seed: int, defect: PlantedDefect = nullcontext) -> SimulationResult:
    """Live through a seed; `defect` may break something for that time."""
    plan = draw_scenario(seed)
    with defect(), isolated_clients():
        return clock.run(_live(plan), seed=seed)


@contextmanager
def isolated_clients() -> Iterator[None]:
    """Clients in here know nothing of those that this process had before, and may have their names.

    A simulation leaves clients behind whose process was killed: the next one must not meet them.
    """
    with patched(open_consumers, "_open", WeakValueDictionary()):
        yield


async def _live(plan: BalanceScenario) -> SimulationResult:
    world = BalanceWorkload(plan)
    await world.run()
    history = world.history
    return SimulationResult(
        kind="balance",
        seed=plan.seed,
        faults=tuple(_judge(world)),
        digest=history.digest(),
        lines=tuple(history.lines),
        handled=len(history.handlings),
        acknowledged=len(history.sent),
    )


def _judge(world: BalanceWorkload) -> list[str]:
    history, plan = world.history, world.scenario
    found = [*checks.lost(world.waiting()), *checks.owners(world.owners()), *world.late]
    found += checks.doubled(history, calm=plan.calm)
    if plan.ordered:
        crashes = [at for at, text in history.unrest if text.startswith(BalanceFault.CRASH.name)]
        forgiven = [(at, at + LOCKS_FORGOTTEN_MS) for at in crashes]
        found += checks.together(history, forgiven)
        if not crashes:
            found += checks.order(history)
    return found
