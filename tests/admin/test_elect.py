"""Elections that an operator asks for."""

import asyncio

import pytest
from tests.admin.elected_group import address, operate
from tests.conversation.failover_group import Group, group

from roquet.admin import controllers, elect
from roquet.admin.client import AdminClient
from roquet.admin.controllers import GroupStatus, ReplicaMember
from roquet.admin.elect import ElectedMaster, candidate
from roquet.model.errors import RoquetError, UsageError

pytestmark = pytest.mark.virtual_time


async def elected(running: Group, to: str | None = None, *, unclean: bool = False) -> ElectedMaster:
    async def work(admin: AdminClient) -> ElectedMaster:
        found = await controllers.group(admin, "g")
        chosen = candidate(found, to, unclean=unclean)
        return await elect.elect(admin, found, chosen, unclean=unclean)

    return await operate(running, work)


async def test_the_named_broker_leads_and_nothing_acknowledged_is_lost(running: Group) -> None:
    await running.settled(3)
    await running.send_on(["a", "b"])
    began = running.loop.time()
    result = await elected(running, "3")
    assert result == ElectedMaster(
        broker="g", broker_id=3, address=address(3), epoch=2, is_new=True
    )
    assert running.loop.time() - began < 2
    await running.send_on(["c"])
    assert await running.settled(3) == 3
    running.check()
    again = await elected(running, address(3))
    assert (again.is_new, again.epoch) == (False, 2)


async def test_without_a_name_another_member_of_the_set_leads(running: Group) -> None:
    await running.settled(3)
    await running.send_on(["a"])
    assert (await elected(running)).broker_id in (2, 3)
    await running.send_on(["b"])
    running.check()


async def test_a_broker_that_is_not_in_sync_leads_only_if_losses_are_accepted(
    running: Group,
) -> None:
    await running.settled(3)
    await running.send_on(["a"])
    running.part(3, running.host(1), running.host(2))
    await running.settled(2)
    await running.send_on(["b"])
    with pytest.raises(RoquetError, match=r"3 at .* is not in sync, it may lack acknowledged"):
        await elected(running, "3")
    result = await elected(running, "3", unclean=True)
    assert (result.broker_id, result.epoch) == (3, 2)
    running.network.heal()
    await running.settled(3)
    assert [body.partition(".")[0] for body in running.stored(3)] == ["a"], "b is lost"


async def test_a_lost_group_is_led_again_by_whoever_lives_if_losses_are_accepted() -> None:
    async with group(2) as running:
        await running.settled(2)
        await running.kill(2)
        await running.until(lambda: running.members() == {1})
        await running.kill(1)
        await running.start_broker(2)
        await asyncio.sleep(15)
        assert running.master() is None
        with pytest.raises(RoquetError, match=r"the controller at .* elects nobody: "):
            await elected(running)
        result = await elected(running, unclean=True)
        assert result.broker_id == 2


def test_brokers_that_cannot_be_elected_are_named() -> None:
    def member(broker_id: int, *, is_in_sync: bool = True, is_alive: bool = True) -> ReplicaMember:
        return ReplicaMember(
            broker_id=broker_id,
            address=f"h:{broker_id}",
            is_master=broker_id == 1,
            is_in_sync=is_in_sync,
            is_alive=is_alive,
        )

    members = [member(1), member(2, is_alive=False), member(3, is_in_sync=False)]
    found = GroupStatus(broker="b", controller="c:1", epoch=3, members=members)
    with pytest.raises(RoquetError, match="2 at h:2 is not heard of by the controller"):
        candidate(found, "2", unclean=True)
    with pytest.raises(RoquetError, match="nobody is in sync besides the master, 1 at h:1"):
        candidate(found, None, unclean=False)
    with pytest.raises(UsageError, match="b has no broker '4'"):
        candidate(found, "4", unclean=False)
    headless = GroupStatus(broker="b", controller="c:1", epoch=3, members=members[1:])
    assert candidate(headless, None, unclean=False) is None, "the controller chooses"
