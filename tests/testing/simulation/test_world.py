"""The world: what a scenario asks for is what happens."""

import msgspec
import pytest

from roquet.testing import clock
from roquet.testing.simulation.scenario import Event, Fault, Scenario, scenario
from roquet.testing.simulation.world import World

CALM = msgspec.structs.replace(
    scenario(0), brokers=2, queues=2, members=2, messages=30, failing=0.0, events=()
)


def lived(plan: Scenario) -> World:
    """A world at its end, which was seen to be in balance."""

    async def live() -> World:
        world = World(plan)
        await world.run()
        assert world.balanced, world.owners()
        return world

    return clock.run(live(), seed=plan.seed)


def test_in_an_uneventful_world_everything_is_handled_once() -> None:
    world = lived(CALM)
    assert len(world.journal.sent) >= 30
    assert sorted(h.name for h in world.journal.handlings) == sorted(
        s.name for s in world.journal.sent
    )
    assert len(world.queues) == 4
    assert world.late == []


@pytest.mark.parametrize(
    ("fault", "members"), [(Fault.JOIN, 3), (Fault.LEAVE, 1), (Fault.KILL, 1), (Fault.SILENCE, 1)]
)
def test_members_come_and_go(fault: Fault, members: int) -> None:
    world = lived(msgspec.structs.replace(CALM, events=(Event(20_000, fault, 0, 0),)))
    assert len(world.members) == members
    assert world.waiting() == []


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.PART, Fault.SLOW])
def test_what_breaks_heals_and_nothing_acknowledged_is_lost(fault: Fault) -> None:
    world = lived(msgspec.structs.replace(CALM, events=(Event(20_000, fault, 0, 0),)))
    assert world.waiting() == []
    assert len(world.journal.sent) > 10


def test_the_last_member_stays() -> None:
    alone = msgspec.structs.replace(CALM, members=1, events=(Event(20_000, Fault.KILL, 0, 0),))
    assert len(lived(alone).members) == 1
