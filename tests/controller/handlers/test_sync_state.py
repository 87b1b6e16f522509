import pytest
from tests.controller.conftest import Broker, Trio, broker, controller, sleep_ms, stored
from tests.raising import raises

from roquet.controller.app import ControllerServer
from roquet.model.errors import CallRefused
from roquet.wire.calls import controller as calls
from roquet.wire.calls.controller import GetControllerMetadata
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time


async def code_of(one: Broker, epoch: int, version: int, *members: int) -> int:
    with pytest.raises(CallRefused) as refused:
        await one.alter(epoch, version, *members)
    return refused.value.code


async def test_a_set_is_refused_for_the_first_reason_in_apaches_order(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    await three.channel.close()
    await sleep_ms(50)
    assert await code_of(two, 9, 9, 1, 2, 3) == 2013, "as it is"
    assert await code_of(two, 9, 9, 9) == 2002, "not the master"
    assert await code_of(one, 9, 9, 9) == 2000
    assert await code_of(one, 1, 9, 9) == 2001
    assert await code_of(one, 1, 2, 2, 9) == 2003
    assert await code_of(one, 1, 2, 2, 3) == 2006
    assert await code_of(one, 1, 2, 2) == 2013, "without the master"
    assert await one.alter(1, 2, 1, 2) == {1, 2}
    assert stored(server).set_version == 3


async def test_the_set_of_an_unknown_group_is_refused(
    server: ControllerServer, one: Broker
) -> None:
    assert await code_of(one, 1, 1, 1) == 2013


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"syncStateSet":["a"]}', b'{"syncStateSet":[99999999999999999999]}'],
)
async def test_damaged_bodies_are_refused_and_change_nothing(
    server: ControllerServer, trio: Trio, body: bytes
) -> None:
    one, _, _ = trio
    before = stored(server)
    with pytest.raises(CallRefused):
        await one.channel.call(
            calls.AlterSyncStateSet(broker_name="bc", master_broker_id=1, master_epoch=1, body=body)
        )
    assert stored(server) == before


async def test_negative_members_are_no_replicas(trio: Trio) -> None:
    one, _, _ = trio
    assert await code_of(one, 1, 2, 1, -7) == 2003


async def test_a_broker_of_an_unknown_group_is_told_to_register(
    server: ControllerServer, one: Broker
) -> None:
    with raises(CallRefused, code=2008):
        await one.replica_info()


async def test_operators_see_who_lives_and_who_is_in_sync(trio: Trio) -> None:
    one, two, three = trio
    await one.alter(1, 2, 1, 2)
    await three.channel.close()
    await sleep_ms(50)
    reply = await one.channel.call(calls.GetSyncStateData(body=b'["bc","nope"]'))
    (info,) = codec.loads(reply.body, calls.SyncStateData).replicas_info_table.values()
    assert [(each.broker_id, each.alive) for each in info.in_sync_replicas] == [
        (1, True), (2, True),
    ]  # fmt: skip
    assert [(each.broker_id, each.alive) for each in info.not_in_sync_replicas] == [(3, False)]
    assert info.in_sync_replicas[1].broker_address == two.address


async def test_without_names_there_is_no_body_and_damaged_names_are_refused(
    server: ControllerServer, one: Broker
) -> None:
    assert (await one.channel.call(calls.GetSyncStateData())).body == b""
    for body in (b"{}", b'["a"', b"[1" + b",1" * 200_000 + b"]"):
        with pytest.raises(CallRefused):
            await one.channel.call(calls.GetSyncStateData(body=body))


async def test_a_lone_controller_names_itself() -> None:
    async with controller(controller_id="n0", controllers="g1"), broker(1) as one:
        reply = await one.channel.call(GetControllerMetadata())
        assert (reply.group, reply.controller_leader_id, reply.is_leader) == ("g1", "n0", True)
        assert reply.peers == "n0:127.0.0.1:9878;"
