"""The world: what a scenario asks for is what happens."""

import msgspec
import pytest

from roquet.testing import clock
from roquet.testing.simulation.balance.scenario import (
    BalanceFault,
    BalanceFaultEvent,
    BalanceScenario,
    draw_scenario,
)
from roquet.testing.simulation.balance.workload import BalanceWorkload

CALM = msgspec.structs.replace(
    draw_scenario(0), brokers=2, queues=2, members=2, messages=30, failing=0.0, events=()
)


def lived(plan: BalanceScenario) -> BalanceWorkload:
    """A world at its end, which was seen to be in balance."""

    async def live() -> BalanceWorkload:
        world = BalanceWorkload(plan)
        await world.run()
        assert world.balanced, world.owners()
        return world

    return clock.run(live(), seed=plan.seed)


def test_in_an_uneventful_world_everything_is_handled_once() -> None:
    world = lived(CALM)
    assert len(world.history.sent) >= 30
    assert sorted(h.name for h in world.history.handlings) == sorted(
        s.name for s in world.history.sent
    )
    assert len(world.queues) == 4
    assert world.late == []


@pytest.mark.parametrize(
    ("fault", "members"),
    [
        (BalanceFault.JOIN, 3),
        (BalanceFault.LEAVE, 1),
        (BalanceFault.KILL, 1),
        (BalanceFault.SILENCE, 1),
    ],
)
def test_members_come_and_go(fault: BalanceFault, members: int) -> None:
    world = lived(msgspec.structs.replace(CALM, events=(BalanceFaultEvent(20_000, fault, 0, 0),)))
    assert len(world.members) == members
    assert world.waiting() == []


@pytest.mark.parametrize("fault", [BalanceFault.CRASH, BalanceFault.PART, BalanceFault.SLOW])
def test_what_breaks_heals_and_nothing_acknowledged_is_lost(fault: BalanceFault) -> None:
    world = lived(msgspec.structs.replace(CALM, events=(BalanceFaultEvent(20_000, fault, 0, 0),)))
    assert world.waiting() == []
    assert len(world.history.sent) > 10


def test_the_last_member_stays() -> None:
    alone = msgspec.structs.replace(
        CALM, members=1, events=(BalanceFaultEvent(20_000, BalanceFault.KILL, 0, 0),)
    )
    assert len(lived(alone).members) == 1
