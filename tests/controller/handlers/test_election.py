import json

import pytest
from tests.controller.conftest import Broker, Trio, controller, open_trio, sleep_ms, stored
from tests.raising import raises

from roquet.controller.app import ControllerServer
from roquet.model.errors import CallRefused
from roquet.wire.calls.admin.namesrv import BrokerMembers
from roquet.wire.calls.controller import ElectMasterBody
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time


async def test_the_winner_is_named_with_all_members_of_the_group(
    server: ControllerServer, one: Broker
) -> None:
    await one.apply()
    reply = await one.elect()
    members = BrokerMembers(cluster="C", broker_name="bc", broker_addrs={1: one.address})
    assert codec.loads(reply.body, ElectMasterBody) == ElectMasterBody(
        broker_member_group=members, sync_state_set=[1]
    )


async def test_a_master_that_stays_is_named_with_its_set(trio: Trio) -> None:
    one, two, _ = trio
    reply = await two.elect()
    assert reply.code == 2011
    assert reply.master_address == one.address
    body = codec.loads(reply.body, ElectMasterBody)
    assert (body.broker_member_group, body.sync_state_set) == (None, [1, 2, 3])


async def test_an_operator_gets_the_members_where_mqadmin_looks_for_them(trio: Trio) -> None:
    one, two, three = trio
    reply = await one.designate(2)
    addresses = {"1": one.address, "2": two.address, "3": three.address}
    group = {"cluster": "C", "brokerName": "bc", "brokerAddrs": addresses}
    assert json.loads(reply.body) == {
        **group, "brokerMemberGroup": group, "syncStateSet": [2]
    }, "Java's brokers read brokerMemberGroup, mqadmin the rest"  # fmt: skip


async def test_an_unknown_group_has_to_be_registered(server: ControllerServer, one: Broker) -> None:
    with raises(CallRefused, code=2010):
        await one.elect()


async def test_a_designated_broker_that_is_dead_is_not_elected(trio: Trio) -> None:
    one, _, three = trio
    await three.channel.close()
    await sleep_ms(50)
    with raises(CallRefused, code=2012):
        await one.designate(3)


async def test_a_request_that_accepts_no_losses_has_none_whatever_the_controller_accepts() -> None:
    async with controller(elect_unclean_master=True) as server, open_trio() as (one, _, _):
        assert await one.alter(1, 2, 1, 2) == {1, 2}
        with pytest.raises(CallRefused):
            await one.designate(3, unclean=False)
        assert stored(server).master == 1
        assert (await one.designate(3)).master_broker_id == 3, "as Apache's tools ask"


async def test_a_broker_outside_the_set_is_elected_if_that_request_accepts_losses(
    server: ControllerServer, trio: Trio, caplog: pytest.LogCaptureFixture
) -> None:
    one, _, three = trio
    assert await one.alter(1, 2, 1, 2) == {1, 2}
    await three.beat(epoch=1, max_offset=4_000)
    with raises(CallRefused, code=2012):
        await one.designate(3)
    reply = await one.designate(3, unclean=True)
    assert (reply.master_broker_id, reply.master_epoch) == (3, 2)
    assert not server.config.elect_unclean_master, "other elections are as before"
    assert (
        "group bc: broker 3 leads without all that its set [1, 2] had: acknowledged messages beyond"
        " position 4,000 of the log are lost"
    ) in caplog.text
