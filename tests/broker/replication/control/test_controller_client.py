"""The controller that leads is found, and asked."""

import asyncio
import logging

import pytest
from tests.broker.replication.scripted_controller import (
    MEMBER,
    ScriptedController,
    client_of,
    set_body,
)

from roquet.broker.replication.control.controller_client import (
    REASONS_MAX,
    Complaints,
    NoController,
    heartbeat_of,
)
from roquet.model.errors import CallError, CallRefused, ConnectionLost
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.rules.replication.role_change import GroupView
from roquet.testing.clock import this_loop
from roquet.wire.call import Reply
from roquet.wire.calls import controller as calls
from roquet.wire.calls.route import BrokerHeartbeat
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time


async def test_the_leader_is_found_among_several_controllers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = ScriptedController("10.0.0.8"), ScriptedController("10.0.0.9")
    first.is_leader, first.leader = False, second.leader
    network = this_loop().network
    with network.host("10.0.0.8"):
        await first.server.start()
    with network.host("10.0.0.9"):
        await second.server.start()
    client = client_of("10.0.0.7:9878", first, second)
    with caplog.at_level(logging.INFO):
        assert await client.find() == second.address
        assert await client.find() == second.address
    assert caplog.text.count("controller 10.0.0.9:9878 leads") == 1


async def test_a_controller_that_says_that_it_leads_is_believed_before_others() -> None:
    stale, leader = ScriptedController("10.0.0.8"), ScriptedController("10.0.0.9")
    stale.is_leader, stale.leader = False, "10.0.0.7:9878"
    network = this_loop().network
    for one in (stale, leader):
        with network.host(one.host):
            await one.server.start()
    network.slow("10.0.0.9", 50, 50)
    assert await client_of(stale, leader).find() == leader.address


async def test_without_a_leader_the_call_certainly_had_no_effect() -> None:
    controller = ScriptedController()
    controller.leader, controller.is_leader = None, False
    async with controller.server:
        with pytest.raises(NoController, match="knows a leader") as raised:
            await client_of("10.0.0.7:9878", controller).group()
    assert raised.value.definite


async def test_without_a_leader_it_is_said_why_each_controller_does_not_know_one() -> None:
    name_server = Server(Router(), host="127.0.0.1", port=9876, clock=this_loop().clock)
    async with name_server:
        with pytest.raises(NoController) as raised:
            await client_of("10.0.0.7:9878", "127.0.0.1:9876").group()
    head, _, why = str(raised.value).partition(" knows a leader: ")
    assert head == "none of the controllers 10.0.0.7:9878, 127.0.0.1:9876"
    away, refused = why.split("; ")
    assert away.startswith("10.0.0.7:9878: ")
    assert refused.startswith("127.0.0.1:9876: ")
    assert "1005" in refused


async def test_those_who_look_for_the_leader_at_once_ask_once() -> None:
    controller = ScriptedController()
    async with controller.server:
        client = client_of(controller)
        found = await asyncio.gather(client.find(), client.find())
        assert set(found) == {controller.address}
        assert controller.count(calls.GetControllerMetadata) == 1


async def test_the_leader_is_looked_for_again_after_a_refusal_of_one_that_leads_no_more() -> None:
    controller = ScriptedController()
    async with controller.server:
        client = client_of(controller)
        await client.group()
        assert client.leader == controller.address
        controller.is_leader = False
        controller.leader = None
        with pytest.raises(CallRefused, match="not in leader state"):
            await client.group()
        assert client.leader is None
        controller.is_leader, controller.leader = True, controller.address
        await client.group()
        assert controller.count(calls.GetControllerMetadata) == 3


async def test_the_next_leader_is_asked_at_once_when_the_last_one_leads_no_more() -> None:
    first, second = ScriptedController("10.0.0.8"), ScriptedController("10.0.0.9")
    second.is_leader, second.leader = False, first.leader
    network = this_loop().network
    for one in (first, second):
        with network.host(one.host):
            await one.server.start()
    client = client_of(first, second)
    await client.group()
    first.is_leader, first.leader, second.is_leader = False, second.address, True
    second.leader = second.address
    began_ms = this_loop().clock.monotonic_ms()
    await client.group()
    assert (first.count(calls.GetReplicaInfo), second.count(calls.GetReplicaInfo)) == (2, 1)
    assert client.leader == second.address
    assert this_loop().clock.monotonic_ms() - began_ms < 10


async def test_the_leader_is_looked_for_again_when_it_does_not_answer() -> None:
    controller = ScriptedController()
    async with controller.server:
        client = client_of(controller)
        await client.find()
        this_loop().network.partition("127.0.0.1", "127.0.0.1")
        with pytest.raises(CallError, match="no answer"):
            await client.group()
        assert client.leader is None
        this_loop().network.heal()


async def test_a_refusal_for_another_reason_keeps_the_leader() -> None:
    controller = ScriptedController()
    code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    controller.refusals[calls.GetReplicaInfo] = CallRefused(code)
    async with controller.server:
        client = client_of(controller)
        with pytest.raises(CallRefused):
            await client.group()
        assert client.leader == controller.address


async def test_the_group_is_read_from_the_reply_and_its_body() -> None:
    controller = ScriptedController()
    async with controller.server:
        client = client_of(controller)
        assert await client.group() == GroupView(epoch=0)
        controller.leads(2, 5, 2, 3, version=9)
        assert await client.group() == GroupView(
            epoch=5, master=2, address="10.0.0.2:10911", members=frozenset({2, 3}), set_version=9
        )


@pytest.mark.parametrize("body", [b"\xff", b"[1]", b'{"syncStateSet":"all"}'])
async def test_a_body_that_cannot_be_read_is_an_error_of_the_call(body: bytes) -> None:
    controller = ScriptedController()
    controller.replies[calls.GetReplicaInfo] = lambda _: calls.GetReplicaInfoReply(body=body)
    controller.replies[calls.AlterSyncStateSet] = lambda _: calls.AlterSyncStateSetReply(
        new_sync_state_set_epoch=3, body=body
    )
    async with controller.server:
        client = client_of(controller)
        with pytest.raises(CallError, match="cannot be read"):
            await client.group()
        with pytest.raises(CallError, match="cannot be read") as raised:
            await client.alter_set(1, 5, 2, frozenset({1, 2}))
        assert not raised.value.definite


async def test_a_reply_without_its_fields_is_an_error_of_the_call() -> None:
    controller = ScriptedController()
    controller.replies[calls.AlterSyncStateSet] = lambda _: Reply(body=set_body(1))
    controller.next_id = 0
    async with controller.server:
        client = client_of(controller)
        with pytest.raises(CallError, match="cannot be read"):
            await client.alter_set(1, 5, 2, frozenset({1, 2}))
        with pytest.raises(CallError, match="next id 0"):
            await client.next_id()


async def test_a_changed_set_has_the_version_that_the_reply_names() -> None:
    controller = ScriptedController()
    controller.replies[calls.AlterSyncStateSet] = lambda _: calls.AlterSyncStateSetReply(
        new_sync_state_set_epoch=3, body=set_body(1, 2, version=0)
    )
    async with controller.server:
        changed = await client_of(controller).alter_set(1, 5, 2, frozenset({2, 1}))
    assert changed == calls.SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=3)
    (asked,) = controller.of(calls.AlterSyncStateSet)
    assert (asked.broker_name, asked.master_broker_id, asked.master_epoch) == ("g", 1, 5)
    assert asked.body == set_body(1, 2, version=2)


async def test_an_election_says_whether_the_asker_leads_as_before() -> None:
    controller = ScriptedController()
    async with controller.server:
        client = client_of(controller)
        assert not await client.elect(1, epoch=4)
        for master, still_leads in ((1, True), (2, False)):
            reply = calls.ElectMasterReply(
                code=ResponseCode.CONTROLLER_MASTER_STILL_EXIST, master_broker_id=master
            )
            controller.always(calls.ElectMaster, reply)
            assert await client.elect(1, epoch=4) is still_leads
    asked = controller.of(calls.ElectMaster)[0]
    assert (asked.cluster_name, asked.broker_name, asked.broker_id) == ("c", "g", 1)
    assert asked.broker_epoch == 4


async def test_ids_are_asked_and_applied_for_in_the_name_of_the_group() -> None:
    controller = ScriptedController()
    async with controller.server:
        client = client_of(controller)
        assert await client.next_id() == 1
        await client.apply_id(1, "10.0.0.1:10911;5")
        await client.register(1)
    (applied,), (registered,) = (
        controller.of(calls.ApplyBrokerId),
        controller.of(calls.RegisterWithController),
    )
    assert (applied.applied_broker_id, applied.register_check_code) == (1, "10.0.0.1:10911;5")
    assert (registered.broker_id, registered.broker_address) == (1, MEMBER.address)


async def test_heartbeats_go_to_every_controller_and_the_leader_answers() -> None:
    leader, other = ScriptedController("10.0.0.8"), ScriptedController("10.0.0.9")
    other.is_leader, other.leader = False, leader.leader
    leader.grants(2_000)
    for one in (leader, other):
        with this_loop().network.host(one.host):
            await one.server.start()
    client = client_of(leader, other, "10.0.0.7:9878")
    beat = heartbeat_of(MEMBER, broker_id=1, epoch=4, max_offset=100)
    assert (await client.heartbeat(beat, 1_000)).lease_millis == 2_000
    await asyncio.sleep(0.1)
    assert leader.of(BrokerHeartbeat) == other.of(BrokerHeartbeat) == [beat]


async def test_a_controller_that_cannot_be_reached_gets_one_heartbeat_at_a_time() -> None:
    leader = ScriptedController()
    async with leader.server:
        this_loop().network.partition("127.0.0.1", "10.0.0.9")
        client = client_of(leader, "10.0.0.9:9878")
        for _ in range(3):
            await client.heartbeat(heartbeat_of(MEMBER, broker_id=1), 1_000)
        assert leader.count(BrokerHeartbeat) == 3
        this_loop().network.heal()


async def test_the_connection_to_the_leader_can_be_ended() -> None:
    controller = ScriptedController()
    async with controller.server:
        client = client_of(controller)
        await client.hang_up()
        await client.group()
        assert len(controller.server.peers) == 1
        await client.hang_up()
        await asyncio.sleep(0.1)
        assert len(controller.server.peers) == 0


def test_a_reason_is_logged_once_until_there_is_a_success() -> None:
    complaints = Complaints()
    refused = CallRefused(ResponseCode.CONTROLLER_NOT_LEADER, "not the leader")
    lost = [ConnectionLost(f"lost after {ms} ms") for ms in (5, 7)]
    assert [complaints.is_new(one) for one in (refused, *lost, refused)] == [
        True, True, False, False
    ]  # fmt: skip
    assert complaints.end()
    assert not complaints.end(), "nothing has failed since"
    assert complaints.is_new(refused)


def test_reasons_beyond_a_few_are_not_logged() -> None:
    complaints = Complaints()
    refusals = [CallRefused(ResponseCode.SYSTEM_ERROR, f"reason {n}") for n in range(20)]
    assert sum(map(complaints.is_new, refusals)) == REASONS_MAX
