"""A group of brokers as its controller knows it."""

import pytest
from tests.admin.conftest import OpenCluster
from tests.admin.elected_group import address, operate
from tests.conversation.failover_group import CONTROLLER, group

from roquet.admin import controllers
from roquet.admin.controllers import GroupStatus, ReplicaMember
from roquet.model.errors import RoquetError, UsageError
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_members_are_known_with_their_role_and_the_end_of_their_logs() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["a"])
        found = await operate(running, lambda admin: controllers.group(admin, "g"))
        assert (found.controller, found.epoch) == (f"{CONTROLLER}:9878", 1)
        assert [one.address for one in found.members] == [address(n) for n in (1, 2, 3)]
        assert {(one.is_in_sync, one.is_alive) for one in found.members} == {(True, True)}
        assert found.master == found.members[0]
        ends = {one.log_end for one in found.members}
        assert ends == {running.brokers[1].broker.log.store.raw.end}
        await running.kill(3)
        await running.settled(2)
        found = await operate(running, lambda admin: controllers.group(admin, "g"))
        gone = found.member("3")
        assert (gone.is_alive, gone.is_in_sync, gone.log_end) == (False, False, None)


@in_virtual_time
async def test_controllers_that_are_named_are_asked_even_if_no_broker_answers() -> None:
    async with group(2) as running:
        await running.settled(2)
        for number in (1, 2):
            await running.kill(number)
        named = [f"{CONTROLLER}:9878"]
        found = await operate(running, lambda admin: controllers.group(admin, "g", named))
        assert [one.is_alive for one in found.members] == [False, False]
        with pytest.raises(UsageError, match="knows no broker 'h'"):
            await operate(running, lambda admin: controllers.group(admin, "h", named))


@in_virtual_time
async def test_without_a_controller_that_leads_there_is_one_clear_sentence() -> None:
    async with group(1) as running:
        await running.until(running.master)
        await running.kill_controller()
        with pytest.raises(RoquetError, match=f"^no controller leads: {CONTROLLER}:9878: "):
            await operate(running, lambda admin: controllers.group(admin, "g"))


@in_virtual_time
async def test_names_without_a_controller_and_unknown_ones_are_told_apart(
    open_cluster: OpenCluster,
) -> None:
    async with open_cluster() as it:
        with pytest.raises(UsageError, match=r"^broker-a has no controller .*roles are fixed"):
            await controllers.of_broker(it.admin, "broker-a")
        with pytest.raises(UsageError, match="no broker 'brokera'; did you mean 'broker-a'"):
            await controllers.of_broker(it.admin, "brokera")
    with pytest.raises(UsageError, match="--controller: 'here' is not"):
        controllers.controllers_named("here", "--controller")


def test_a_member_has_an_id_and_an_address() -> None:
    one = ReplicaMember(broker_id=2, address="h:1", is_master=False, is_in_sync=True, is_alive=True)
    found = GroupStatus(broker="b", controller="c:1", epoch=3, members=[one])
    assert (found.member("2"), found.member("h:1"), found.master) == (one, one, None)
    with pytest.raises(UsageError, match="b has no broker '7'; it has 2 at h:1"):
        found.member("7")
