"""One seed from beginning to end, and what the checks say of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from roquet.client import members
from roquet.testing import clock
from roquet.testing.simulation import checks
from roquet.testing.simulation.planting import replaced
from roquet.testing.simulation.scenario import Fault, Scenario, scenario
from roquet.testing.simulation.world import World

Defect = Callable[[], AbstractContextManager[None]]

LOCKS_FORGOTTEN_MS: Final = 60_000
"""Locks are not stored: after a broker's crash two members may hold one until they look again."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed came to."""

    kind: str
    seed: int
    faults: tuple[str, ...]
    digest: str
    """Of all lines: the same seed gives the same one."""
    lines: tuple[str, ...]
    handled: int
    acknowledged: int


def simulate(seed: int, defect: Defect = nullcontext) -> Outcome:
    """Live through a seed; `defect` may break something for that time."""
    plan = scenario(seed)
    with defect(), apart():
        return clock.run(_live(plan), seed=seed)


@contextmanager
def apart() -> Iterator[None]:
    """Clients in here know nothing of those that this process had before, and may have their names.

    A simulation leaves clients behind whose process was killed: the next one must not meet them.
    """
    with replaced(members, "_open", WeakValueDictionary()):
        yield


async def _live(plan: Scenario) -> Outcome:
    world = World(plan)
    await world.run()
    journal = world.journal
    return Outcome(
        kind="balance",
        seed=plan.seed,
        faults=tuple(_judge(world)),
        digest=journal.digest(),
        lines=tuple(journal.lines),
        handled=len(journal.handlings),
        acknowledged=len(journal.sent),
    )


def _judge(world: World) -> list[str]:
    journal, plan = world.journal, world.scenario
    found = [*checks.lost(world.waiting()), *checks.owners(world.owners()), *world.late]
    found += checks.doubled(journal, calm=plan.calm)
    if plan.ordered:
        crashes = [at for at, text in journal.unrest if text.startswith(Fault.CRASH.name)]
        forgiven = [(at, at + LOCKS_FORGOTTEN_MS) for at in crashes]
        found += checks.together(journal, forgiven)
        if not crashes:
            found += checks.order(journal)
    return found
