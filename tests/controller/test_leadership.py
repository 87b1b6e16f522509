"""Two controllers with one etcd: one leads, the other takes over, nobody decides without etcd."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.controller.conftest import broker, controller, sleep_ms, stored
from tests.controller.state_store.fake_etcd import FakeEtcd, etcd_store
from tests.raising import raises

from roquet.controller.app import ControllerServer
from roquet.controller.leadership import ACQUIRE_MS, SILENCE_MS
from roquet.controller.state_store.interface import StateStoreError
from roquet.model.errors import CallRefused
from roquet.net.channel import Channel
from roquet.testing.clock import this_loop
from roquet.wire.calls import controller as calls
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time


async def metadata(server: ControllerServer) -> calls.GetControllerMetadataReply:
    channel = await Channel.connect("127.0.0.1", server.port, clock=this_loop().clock)
    async with channel:
        return await channel.call(calls.GetControllerMetadata())


async def pair(stack: AsyncExitStack, etcd: FakeEtcd) -> tuple[ControllerServer, ControllerServer]:
    """Two controllers, of which the first leads."""
    one = await stack.enter_async_context(controller(etcd_store(etcd), port=9878))
    two = await stack.enter_async_context(controller(etcd_store(etcd), port=9879))
    return one, two


async def test_both_controllers_name_the_one_that_leads(stack: AsyncExitStack) -> None:
    one, two = await pair(stack, FakeEtcd())
    await sleep_ms(ACQUIRE_MS * 2)
    first, second = await metadata(one), await metadata(two)
    assert (first.is_leader, second.is_leader) == (True, False)
    assert first.controller_leader_address == second.controller_leader_address == one.address
    assert (
        first.peers
        == second.peers
        == "127.0.0.1:9878:127.0.0.1:9878;" + ("127.0.0.1:9879:127.0.0.1:9879;")
    )


async def test_one_that_does_not_lead_refuses_all_but_heartbeats_metadata_and_settings(
    stack: AsyncExitStack,
) -> None:
    await pair(stack, FakeEtcd())
    one = await stack.enter_async_context(broker(1, port=9879))
    refused_calls: list[Any] = [
        calls.GetNextBrokerId(cluster_name="C", broker_name="bc"),
        calls.ApplyBrokerId(
            cluster_name="C", broker_name="bc", applied_broker_id=1, register_check_code="h;1"
        ),
        calls.RegisterWithController(
            cluster_name="C", broker_name="bc", broker_id=1, broker_address="h:1"
        ),
        calls.ElectMaster(broker_name="bc", broker_id=1),
        calls.GetReplicaInfo(broker_name="bc"),
        calls.AlterSyncStateSet(broker_name="bc", master_broker_id=1, master_epoch=1, body=b"{}"),
        calls.GetSyncStateData(body=b'["bc"]'),
        calls.CleanBrokerData(broker_name="bc"),
    ]
    for call in refused_calls:
        with raises(
            CallRefused,
            code=ResponseCode.CONTROLLER_NOT_LEADER,
            remark="The controller is not in leader state",
        ):
            await one.channel.call(call)
    assert (await one.beat()).remark == "Heart beat success"
    with raises(CallRefused, code=ResponseCode.CONTROLLER_NOT_LEADER):
        await one.beat(lease_epoch=1)
    await one.channel.call(calls.GetControllerSettings())
    await one.channel.call(calls.GetControllerMetadata())


async def test_when_the_leader_stops_the_other_leads_at_its_next_attempt(
    stack: AsyncExitStack,
) -> None:
    etcd = FakeEtcd()
    two = None
    async with controller(etcd_store(etcd), port=9878):
        two = await stack.enter_async_context(controller(etcd_store(etcd), port=9879))
        one = await stack.enter_async_context(broker(1))
        await one.lead()
    await sleep_ms(ACQUIRE_MS + 100)
    assert (await metadata(two)).is_leader
    assert stored(two).master == 1


async def test_a_leader_whose_key_is_gone_learns_it_with_its_next_write(
    stack: AsyncExitStack,
) -> None:
    etcd = FakeEtcd()
    one, two = await pair(stack, etcd)
    first = await stack.enter_async_context(broker(1))
    await first.apply()
    etcd.expire_all()
    await two.controller.leadership.step(0)
    assert two.controller.leadership.state is not None
    await first.beat()
    with raises(CallRefused, code=ResponseCode.CONTROLLER_NOT_LEADER):
        await first.elect()
    assert one.controller.leadership.state is None
    assert stored(two).master_epoch == 0, "nothing was written"


async def test_a_leader_that_was_replaced_names_the_new_one_as_soon_as_it_learns_of_it(
    stack: AsyncExitStack,
) -> None:
    etcd = FakeEtcd()
    one, two = await pair(stack, etcd)
    etcd.expire_all()
    await two.controller.leadership.step(0)
    await one.controller.leadership.step(0)
    view = one.controller.leadership.view
    assert view.leader is not None
    assert view.leader.address == two.address


async def test_a_new_leader_replaces_a_master_that_died_meanwhile(stack: AsyncExitStack) -> None:
    etcd = FakeEtcd()
    one, two = await pair(stack, etcd)
    first = await stack.enter_async_context(broker(1))
    second = await stack.enter_async_context(broker(2))
    for each in (first, second):
        await each.join()
    await first.elect()
    await first.alter(1, 1, 1, 2)
    watching = await stack.enter_async_context(broker(2, port=9879, address=second.address))
    one.controller.leadership.leader_state().end("it is frozen")
    etcd.expire_all()
    await two.controller.leadership.step(0)
    for _ in range(30):
        await watching.beat(epoch=1, max_offset=5)
        await sleep_ms(100)
    assert (stored(two).master, stored(two).master_epoch) == (2, 2)


async def test_a_new_leader_knows_of_a_restart_that_was_told_before_it_led(
    stack: AsyncExitStack,
) -> None:
    etcd = FakeEtcd()
    _, two = await pair(stack, etcd)
    first, second = [await stack.enter_async_context(broker(n)) for n in (1, 2)]
    for each in (first, second):
        await each.join()
    await first.elect()
    await first.alter(1, 1, 1, 2)
    restarted, other = [
        await stack.enter_async_context(broker(n, port=9879, address=before.address))
        for n, before in ((1, first), (2, second))
    ]
    await restarted.beat(epoch=1, max_offset=10, releases_lease=True)
    etcd.expire_all()
    await two.controller.leadership.step(0)
    await other.beat(epoch=1, max_offset=20)
    with raises(
        CallRefused, code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, match="may still acknowledge"
    ):
        await restarted.elect()


async def test_without_etcd_roles_stay_and_nothing_is_decided(
    stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    etcd = FakeEtcd()
    one = await stack.enter_async_context(controller(etcd_store(etcd)))
    first = await stack.enter_async_context(broker(1))
    await first.lead()
    etcd.is_away = True
    with pytest.raises(CallRefused, match="etcd does not answer"):
        await first.beat(lease_epoch=1)
    assert (await first.replica_info()).master_broker_id == 1
    assert (await metadata(one)).is_leader
    await sleep_ms(SILENCE_MS + 2 * ACQUIRE_MS)
    reply = await metadata(one)
    assert not reply.is_leader
    assert reply.controller_leader_address is None
    errors = [line for line in caplog.messages if "etcd does not answer" in line]
    assert len(errors) == 1, "one line for the whole time"
    etcd.is_away = False
    await sleep_ms(2 * ACQUIRE_MS)
    assert (await first.replica_info()).master_epoch == 1
    await first.beat()
    assert (await first.beat(lease_epoch=1)).lease_millis == 1_000


async def test_a_write_whose_answer_was_lost_is_read_before_anything_else_is_decided(
    stack: AsyncExitStack,
) -> None:
    etcd = FakeEtcd()
    one = await stack.enter_async_context(controller(etcd_store(etcd)))
    first = await stack.enter_async_context(broker(1))
    await first.join()
    etcd.forgets_answer = True
    with raises(CallRefused, code=ResponseCode.SYSTEM_ERROR):
        await first.elect()
    with raises(CallRefused, code=ResponseCode.CONTROLLER_NOT_LEADER):
        await first.elect()
    await sleep_ms(ACQUIRE_MS + 100)
    assert stored(one).master_epoch == 1, "it was written"


async def test_an_etcd_that_lost_its_data_does_not_let_epochs_go_back(
    stack: AsyncExitStack,
) -> None:
    etcd = FakeEtcd()
    one = await stack.enter_async_context(controller(etcd_store(etcd)))
    first = await stack.enter_async_context(broker(1))
    await first.lead()
    etcd.expire_all()
    etcd.keys.clear()
    await sleep_ms(3 * ACQUIRE_MS)
    with raises(CallRefused, code=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST):
        await first.replica_info()
    with raises(CallRefused, code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED):
        await first.register()
    await first.apply()
    with pytest.raises(CallRefused, match="in epoch 1, the controller's state in epoch 0"):
        await first.elect()
    with pytest.raises(CallRefused, match="older than its brokers"):
        await first.beat(lease_epoch=1)
    await first.channel.call(calls.CleanBrokerData(broker_name="bc", is_clean_living_broker=True))
    await first.apply()
    await first.elect()
    assert stored(one).master_epoch == 2


async def test_a_store_that_fails_at_the_start_is_asked_again() -> None:
    etcd = FakeEtcd()
    etcd.fails = [StateStoreError("not yet", definite=True)]
    async with controller(etcd_store(etcd)) as server:
        assert server.controller.leadership.state is None
        await sleep_ms(ACQUIRE_MS + 10)
        assert server.controller.leadership.state is not None


async def test_a_term_that_has_ended_is_followed_by_another() -> None:
    async with controller(etcd_store(FakeEtcd())) as server:
        leadership = server.controller.leadership
        state = leadership.leader_state()
        state.end("for the test")
        state.end("twice changes nothing")
        await leadership.step(0)
        assert leadership.leader_state().term != state.term
