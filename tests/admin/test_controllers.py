"""A group of brokers as its controller knows it."""

import pytest
from tests.admin.conftest import open_cluster
from tests.admin.elected_group import address, operate
from tests.conversation.failover_group import CONTROLLER, group

from roquet.admin import controllers
from roquet.admin.controllers import (
    GroupNeeds,
    GroupStatus,
    ReplicaMember,
    group_needs,
    needed_logs,
)
from roquet.model.errors import RoquetError, UsageError

pytestmark = pytest.mark.virtual_time


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


async def test_without_a_controller_that_leads_there_is_one_clear_sentence() -> None:
    async with group(1) as running:
        await running.until(running.master)
        await running.kill_controller()
        with pytest.raises(RoquetError, match=f"^no controller leads: {CONTROLLER}:9878: "):
            await operate(running, lambda admin: controllers.group(admin, "g"))


async def test_names_without_a_controller_and_unknown_ones_are_told_apart() -> None:
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


ELECTED = {"enableControllerMode": "true", "controllerAddr": "c:1"}


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, 1),
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "2"}, 1),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "3"}, 2),
        ({**ELECTED, "minInSyncReplicas": "2", "inSyncReplicas": "1"}, 2),
        ({**ELECTED, "minInSyncReplicas": "2", "inSyncReplicas": "3"}, 3),
        (
            {
                **ELECTED,
                "minInSyncReplicas": "2",
                "inSyncReplicas": "3",
                "allAckInSyncStateSet": "true",
            },
            2,
        ),
    ],
)
def test_settings_say_how_many_logs_a_message_needs(settings: dict[str, str], needed: int) -> None:
    assert needed_logs(settings) == needed


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(RoquetError, match="inSyncReplicas='two' is no number"):
        needed_logs({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "two"})


async def test_a_controller_says_who_the_members_are() -> None:
    async with group(2, min_in_sync_replicas=2) as running:
        await running.settled(2)

        async def of(settings: dict[str, str] | None) -> GroupNeeds:
            return await operate(running, lambda admin: group_needs(admin, "g", settings))

        assert await of(None) == GroupNeeds()
        assert await of({}) == GroupNeeds(logs=1)
        known = await of({**ELECTED, "controllerAddr": "10.0.2.1:9878", "minInSyncReplicas": "2"})
        assert (known.logs, known.controller_fault) == (2, None)
        assert [one.broker_id for one in known.members] == [1, 2]
        await running.kill_controller()
        lost = await of({**ELECTED, "controllerAddr": "10.0.2.1:9878"})
        assert (lost.logs, lost.members) == (1, ())
        assert (lost.controller_fault or "").startswith("no controller leads: 10.0.2.1:9878: ")
