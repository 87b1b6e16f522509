"""Brokers that are made ready to be stopped."""

import asyncio

import pytest
from tests.admin.conftest import ClusterWithAdmin
from tests.admin.elected_group import address, operate
from tests.admin.test_replicas import with_replicas
from tests.broker.replication.conftest import ORIGIN
from tests.conversation.failover_group import Group, group

from roquet.admin import brokers, controllers, retire
from roquet.admin.retire import RetiredBroker
from roquet.model.errors import RoquetError, UsageError
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Draft
from roquet.wire.calls.admin.settings import UpdateSettings

pytestmark = pytest.mark.virtual_time


async def retired(running: Group, broker: str, wait_ms: int = 20_000) -> RetiredBroker:
    return await operate(running, lambda admin: retire.retire(admin, broker, wait_ms=wait_ms))


async def test_a_master_hands_over_and_may_be_stopped_once_others_are_in_sync(
    running: Group,
) -> None:
    await running.settled(3)
    await running.send_on(["a"])
    result = await retired(running, "g")
    assert (result.address, result.broker_id, result.was_master) == (address(1), 1, True)
    assert (result.master, result.epoch) in ((address(2), 2), (address(3), 2))
    assert running.members() >= {2, 3}
    await running.kill(1)
    await running.send_on(["b"])
    running.check()


async def test_a_replica_may_be_stopped_when_others_suffice(running: Group) -> None:
    await running.settled(3)
    result = await retired(running, "g#2")
    assert result == RetiredBroker(
        broker="g", address=address(2), broker_id=2, master=address(1), epoch=1
    )
    await running.kill(2)
    await running.settled(2)
    with pytest.raises(RoquetError, match=r"3 at .* must not be stopped yet: without it 1 would"):
        await retired(running, address(3))
    await running.start_broker(2)
    assert (await retired(running, address(3))).broker_id == 3, "it waits for the other one"


async def test_a_replica_stays_without_which_too_few_logs_would_hold_a_message() -> None:
    async with group(all_ack_in_sync_set=False, in_sync_replicas=3) as running:
        await running.settled(3)
        with pytest.raises(
            RoquetError, match=r"without it 2 would be in sync, and messages need 3"
        ):
            await retired(running, "g#2", wait_ms=1_000)


async def test_the_master_says_how_many_logs_messages_need() -> None:
    async with group(all_ack_in_sync_set=False, in_sync_replicas=2) as running:
        number = await running.settled(3)
        await running.ask(number, UpdateSettings(body=b"inSyncReplicas=3\n"))
        other = next(one for one in (1, 2, 3) if one != number)
        with pytest.raises(RoquetError, match=r"without it 2 would be in sync, and .* need 3"):
            await retired(running, address(other), wait_ms=1_000)


async def test_a_broker_that_goes_for_good_loses_its_id_once_it_has_ended(running: Group) -> None:
    await running.settled(3)
    result = await retired(running, "g#3")
    with pytest.raises(RoquetError, match=r"3 at .* still runs: its id stays"):
        await operate(running, lambda admin: retire.remove(admin, result, wait_ms=1_000))
    await running.kill(3)
    await operate(running, lambda admin: retire.remove(admin, result, wait_ms=10_000))
    found = await operate(running, lambda admin: controllers.group(admin, "g"))
    assert [one.broker_id for one in found.members] == [1, 2]
    await running.send_on(["a"])


async def test_a_replica_with_a_fixed_role_stays_while_its_master_needs_it() -> None:
    async with with_replicas(broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=2) as (
        running,
        admin,
    ):
        result = await retire.retire(admin, "broker-a#1", wait_ms=0)
        assert (result.master, result.broker_id) == (running.broker_addrs[0], None)
        await running.stop_broker(1)
        with pytest.raises(RoquetError, match="without it 1 log would be in sync, and each"):
            await retire.retire(admin, "broker-a#2", wait_ms=1_000)


async def test_a_master_with_a_fixed_role_is_read_only_until_all_is_read(
    cluster: ClusterWithAdmin,
) -> None:
    result = await retire.retire(cluster.admin, "broker-a", wait_ms=60_000)
    assert (result.address, result.was_master) == (cluster.running.broker_addrs[0], True)
    assert (await brokers.settings(cluster.admin, "broker-a"))["brokerPermission"] == "4"


async def test_a_master_that_still_stores_messages_is_not_drained(
    cluster: ClusterWithAdmin,
) -> None:
    store = cluster.running.brokers[0].broker.log.store

    async def send_on() -> None:
        while True:
            draft = Draft("SELF_TEST_TOPIC", 0, b"x", b"", 0, store_host=ORIGIN.store_host)
            store.append(draft, cluster.clock.now_ms())
            await cluster.clock.sleep(10_000)

    sending = asyncio.create_task(send_on())
    undo = "it is read only now, `roquet broker set broker-a permission=6` takes that back"
    with pytest.raises(RoquetError, match=f"it still stores messages; {undo}"):
        await retire.retire(cluster.admin, "broker-a", wait_ms=60_000)
    sending.cancel()


async def test_a_wait_that_is_too_short_for_producers_to_leave_is_named(
    cluster: ClusterWithAdmin,
) -> None:
    with pytest.raises(RoquetError, match=r"may send to it for 35 s: wait longer \(--wait\)"):
        await retire.retire(cluster.admin, "broker-a", wait_ms=34_000)


async def test_unknown_brokers_are_named(cluster: ClusterWithAdmin) -> None:
    for name, words in (
        ("broker-x", "there is no broker 'broker-x'"),
        ("10.0.0.9:1", "the name servers know no broker at 10.0.0.9:1"),
        ("10.0.0.9:", "is not an address"),
    ):
        with pytest.raises(UsageError, match=words):
            await retire.locate(cluster.admin, name)
    place = await retire.locate(cluster.admin, cluster.running.broker_addrs[1])
    assert place.name == "broker-b"
    assert await retire.locate(cluster.admin, "broker-b#0") == place


async def test_producers_leave_a_master_that_is_drained(cluster: ClusterWithAdmin) -> None:
    await retire.retire(cluster.admin, "broker-a", wait_ms=60_000)
    route = await cluster.admin.route("SELF_TEST_TOPIC")
    assert route is not None
    permissions = {queue.broker_name: queue.perm for queue in route.queue_datas}
    assert permissions["broker-a"] & 2 == 0
    assert permissions["broker-b"] & 2
    assert (await retire.take_back(cluster.admin, "broker-a")).name == "broker-a"
    assert (await brokers.settings(cluster.admin, "broker-a"))["brokerPermission"] == "6"
