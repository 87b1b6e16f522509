"""Three brokers and a controller: masters die, fall silent and come back; nothing is lost."""

import asyncio
import gc
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.failover_group import (
    CLIENT,
    CONTROLLER,
    NAMESRV,
    Group,
    WrongClock,
    group,
    settled,
)

from roquet.broker.replication.control.controller_client import ControllerClient
from roquet.model.epoch import EpochEntry
from roquet.model.errors import CallRefused, CallTimeout
from roquet.model.route import TopicRoute
from roquet.model.topic import SubscriptionGroup
from roquet.net.channel import Channel
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.epoch_file import encode_epoch_file
from roquet.testing.clock import in_virtual_time
from roquet.wire.call import Call, Reply
from roquet.wire.calls import controller as calls
from roquet.wire.calls.admin import stats
from roquet.wire.calls.admin.stats import BrokerEpochs, HaStatus
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.offset import QueryOffset, UpdateOffset
from roquet.wire.calls.route import BrokerHeartbeat, BrokerHeartbeatReply, GetRoute
from roquet.wire.fastjson import codec

IDENTITY = Path("/data/brokerIdentity")

EPOCHS = Path("/data/epochFileCheckpoint")


def log_of(running: Group, number: int) -> bytes:
    raw = running.brokers[number].broker.log.store.raw
    return bytes(raw.read(raw.begin, 1 << 20))


async def test_a_group_begins_with_a_master_and_all_brokers_come_into_sync() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["one", "two"])
        running.check()
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3) != b""


async def test_a_master_alone_takes_no_message_that_nobody_else_would_have() -> None:
    async with group(1) as running:
        await running.until(lambda: running.master())
        reply = await running.send("one")
        assert (reply.code, reply.remark) == (1, "code 1: in-sync replicas not enough")
        assert running.stored(1) == []
        await running.start_broker(2)
        await running.settled(2)
        await running.send_on(["one"])


async def test_a_killed_master_is_replaced_and_everything_acknowledged_is_there() -> None:
    async with settled(f"a{n}" for n in range(20)) as running:
        await running.kill(1)
        began = running.loop.time()
        await running.send_on(f"b{n}" for n in range(20))
        assert running.loop.time() - began < 10
        running.check()
        await running.start_broker(1)
        assert await running.settled(3) in (2, 3)
        running.check()
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


async def test_a_silent_master_refuses_by_itself_and_is_truncated_when_it_is_back() -> None:
    async with settled(f"a{n}" for n in range(5)) as running:
        running.part(1)
        await asyncio.sleep(3)
        assert running.brokers[1].broker.replication.role.current.is_fenced
        await running.until(lambda: running.master() in (2, 3), 30)
        await running.send_on(f"b{n}" for n in range(5))
        running.check()
        running.network.heal()
        await running.settled(3)
        running.check()
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


async def test_a_message_without_confirmation_is_cut_when_its_master_comes_back() -> None:
    async with settled(["a"]) as running:
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        reply = await running.send("lost", 1)
        assert reply.code in (1, 12)
        assert "lost.0" not in running.stored(1)
        await running.until(lambda: running.master() in (2, 3), 30)
        await running.send_on(["b"])
        running.network.heal()
        await running.settled(3)
        running.check()
        assert "lost" not in running.stored(running.master() or 0)
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


async def test_progress_of_a_new_master_is_taken_once_the_former_ones_log_is_cut() -> None:
    """It may count on messages that the former master has others in the place of."""
    compared = asyncio.Event()

    async def compare(_address: str, _position: int) -> None:
        await compared.wait()

    async with settled(["a"]) as running:
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        for number in range(5):
            await running.send(f"lost {number}", 1)
        await running.until(lambda: running.master() in (2, 3), 30)
        leading = running.brokers[running.master() or 0].broker
        former = running.brokers[1].broker
        await running.send_on(["b"])
        leading.tables.offsets.commit("g", "orders", 0, 2)
        leading.tables.delay_offsets.advance(3, 5)
        former.replication.stream_client.check_log = compare
        running.network.heal()
        await asyncio.sleep(15)
        assert former.replication.role.current.master is not None
        assert former.log.store.raw.end > leading.log.store.raw.end
        assert former.tables.offsets.get("g", "orders", 0) is None
        assert former.tables.delay_offsets.get(3) == 0
        compared.set()
        await asyncio.sleep(2)
        assert log_of(running, 1) == log_of(running, 2)
        assert former.tables.offsets.get("g", "orders", 0) == 2
        assert former.tables.delay_offsets.get(3) == 5


async def test_a_master_parted_from_the_controller_alone_is_replaced() -> None:
    async with settled(["a"]) as running:
        running.part(1, CONTROLLER)
        await running.until(lambda: running.master() in (2, 3), 30)
        await running.send_on(["b"])
        running.network.heal()
        await running.settled(3)
        running.check()


async def test_a_group_that_is_started_again_as_a_whole_has_everything() -> None:
    async with settled(f"a{n}" for n in range(10)) as running:
        for number in (1, 2, 3):
            await running.kill(number)
        for number in (3, 2, 1):
            await running.start_broker(number)
        await running.settled(3)
        running.check()
        await running.send_on(["b"])
        running.check()


async def test_a_group_goes_on_once_its_controller_is_back() -> None:
    async with settled(["a"]) as running:
        await running.kill_controller()
        await asyncio.sleep(60)
        assert running.master() is None
        await running.start_controller()
        await running.until(lambda: running.master() is not None)
        await running.send_on(["b"])
        running.check()


async def test_brokers_wait_for_a_controller_that_is_started_after_them() -> None:
    running = Group()
    await running.start_namesrv()
    for number in (1, 2):
        await running.start_broker(number)
    await asyncio.sleep(60)
    assert running.master() is None
    await running.start_controller()
    await running.settled(2)
    await running.send_on(["a"])
    running.check()


async def test_a_restarted_master_leads_in_a_new_epoch_or_not_at_all() -> None:
    async with settled(["a"]) as running:
        epoch = running.brokers[1].broker.replication.role.current.epoch
        await running.kill(1)
        await running.start_broker(1)
        number = await running.settled(3)
        assert running.brokers[number].broker.replication.role.current.epoch > epoch
        await running.send_on(["b"])
        running.check()


async def test_a_slow_replica_leaves_the_set_and_comes_back() -> None:
    async with settled() as running:
        running.part(3)
        await running.until(lambda: running.members() == {1, 2}, 40)
        await running.send_on(["a"])
        running.network.heal()
        await running.settled(3)
        running.check()


async def test_a_replica_that_hangs_holds_senders_up_for_four_seconds_if_the_settings_say_so() -> (
    None
):
    async with settled(
        ["a"], ha_heartbeat_interval=1_000, ha_behind_max=3_000, sync_set_check_interval=1_000
    ) as running:
        for _ in range(30 * 20):
            await asyncio.sleep(0.05)
            assert running.members() == {1, 2, 3}, "an idle replica stays"
        running.part(3)
        began_ms = running.loop.clock.monotonic_ms()
        await running.send_on(["b"])
        assert running.members() == {1, 2}
        assert running.loop.clock.monotonic_ms() - began_ms <= 4_500
        running.network.heal()
        await running.settled(3)
        running.check()


async def test_clients_see_the_new_master_at_the_name_server() -> None:
    async with settled(["a"]) as running:

        async def addresses() -> dict[int, str]:
            channel = await Channel.connect("10.0.0.1", 9876, clock=running.loop.clock)
            async with channel:
                reply = await channel.call(GetRoute(topic="orders"))
            return dict(codec.loads(reply.body, TopicRoute).broker_datas[0].broker_addrs)

        await asyncio.sleep(1)
        known = await running.hosts.run(CLIENT, addresses())
        assert known[0] == "10.0.1.1:10911"
        await running.kill(1)
        await running.settled(2)
        await running.send_on(["b"])
        await asyncio.sleep(1)
        number = running.master()
        known = await running.hosts.run(CLIENT, addresses())
        assert known[0] == f"10.0.1.{number}:10911"


@pytest.mark.parametrize("hears", [True, False])
async def test_a_master_parted_in_one_direction_is_replaced(hears: bool) -> None:
    async with settled(["a"]) as running:
        pair = (running.host(1), CONTROLLER) if hears else (CONTROLLER, running.host(1))
        running.network.partition_one_way(*pair)
        await running.until(lambda: running.master() in (2, 3), 60)
        await running.send_on(["b"])
        running.check()
        running.network.heal()
        await running.settled(3)
        running.check()


async def test_a_master_that_only_its_replicas_do_not_hear_takes_nothing_alone() -> None:
    async with settled(["a"]) as running:
        for other in (2, 3):
            running.network.partition_one_way(running.host(1), running.host(other))
        assert (await running.send("b", 1)).code == 12
        assert running.stored(1) == ["a.0"]
        await asyncio.sleep(30)
        assert (await running.send("c", 1)).code == 1  # the set is the master alone now
        running.network.heal()
        await running.settled(3)
        await running.send_on(["d"])
        running.check()


async def test_a_controller_that_is_away_for_ever_stops_the_group_and_loses_nothing() -> None:
    async with settled(["a"]) as running:
        await running.kill_controller()
        await asyncio.sleep(3)
        assert (await running.send("b", 1)).code == 2
        await running.kill(1)
        await running.start_broker(1)
        await asyncio.sleep(180)
        assert running.master() is None
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3) != b""


async def test_a_controller_that_talks_nonsense_harms_nobody() -> None:
    async with settled(["a"]) as running:
        await running.kill_controller()
        running.network.revive(CONTROLLER)
        router = Router()
        answers: dict[type[Call[Any]], Reply] = {
            calls.GetControllerMetadata: calls.GetControllerMetadataReply(
                controller_leader_address=f"{CONTROLLER}:9878", is_leader=True
            ),
            calls.GetReplicaInfo: calls.GetReplicaInfoReply(
                master_broker_id=-5, master_address="nowhere", master_epoch=99, body=b"[]"
            ),
            calls.RegisterWithController: calls.RegisterWithControllerReply(),
            calls.ElectMaster: calls.ElectMasterReply(master_broker_id=77),
            calls.AlterSyncStateSet: calls.AlterSyncStateSetReply(new_sync_state_set_epoch=-1),
            BrokerHeartbeat: BrokerHeartbeatReply(lease_millis=-7),
        }
        for call in answers:
            router.add(call, lambda call, _peer: answers[type(call)])
        liar = Server(router, host=CONTROLLER, port=9878, clock=running.loop.clock)
        with running.network.host(CONTROLLER):
            await liar.start()
        await asyncio.sleep(30)
        assert running.master() is None
        await liar.stop()
        await running.start_controller()
        await running.until(lambda: running.master() is not None)
        await running.send_on(["b"])
        running.check()


async def test_brokers_of_diverged_logs_wait_for_an_operator() -> None:
    async with group(2) as running:
        await running.settled(2)
        await running.send_on(["a"])
        await running.kill(2)
        running.files[2].replace(Path("/data/epochFileCheckpoint"), b"1\n0\n1-77\n")
        await running.start_broker(2)
        await asyncio.sleep(30)
        assert running.members() == {1}
        facts = running.brokers[2].broker.replication.stream_client.facts
        assert not facts.is_connected


async def test_nobody_outside_the_set_is_elected_after_an_old_copy_of_the_state_was_restored() -> (
    None
):
    async with group() as running:
        assert await running.settled(3) == 1
        copy = deepcopy(running.state)
        await running.kill(3)
        await running.until(lambda: running.members() == {1, 2})
        await running.send_on(["without 3"])
        await running.kill_controller()
        running.state = copy
        await running.start_controller()
        await running.loop.clock.sleep(1_500)
        for number in (1, 2):
            await running.kill(number)
        await running.start_broker(3)
        await running.loop.clock.sleep(20_000)
        assert running.master() is None, "3 lacks what was acknowledged"
        await running.start_broker(2)
        await running.until(lambda: running.master() == 2)
        running.check()


async def test_a_machine_that_lost_its_power_is_no_candidate_before_it_has_caught_up() -> None:
    async with settled(["a"]) as running:
        for number in (1, 2, 3):
            await running.kill(number)
            running.boot_ids[number] = "second"
        for number in (1, 2):
            await running.start_broker(number)
        await asyncio.sleep(60)
        assert running.master() is None
        # The third machine kept its power: it certainly has all that was acknowledged.
        running.boot_ids[3] = "first"
        await running.start_broker(3)
        assert await running.settled(3) == 3
        running.check()


async def test_a_master_whose_machine_lost_the_tail_does_not_come_back_with_less() -> None:
    async with settled(f"a{n}" for n in range(10)) as running:
        for number in (1, 2, 3):
            await running.kill(number)
        running.lose_tail(1, 3)
        await running.start_broker(1)
        await asyncio.sleep(30)
        assert running.master() is None
        await running.start_broker(2)
        assert await running.settled(2) == 2
        running.check()
        await running.start_broker(3)
        await running.settled(3)
        running.check()


async def test_a_member_whose_machine_lost_the_tail_is_not_elected_before_it_has_it_again() -> None:
    async with settled(f"a{n}" for n in range(10)) as running:
        await running.kill(2)
        running.lose_tail(2, 3)
        running.part(1, running.host(2), running.host(3))  # it cannot give it back
        await running.kill(3)
        await running.start_broker(2)
        await running.kill(1)
        await asyncio.sleep(60)
        assert running.master() is None
        await running.start_broker(3)
        running.network.heal()
        assert await running.settled(2) == 3
        running.check()


async def test_after_a_power_loss_of_all_machines_an_operator_says_whose_log_is_trusted() -> None:
    async with settled(["a"]) as running:
        for number in (1, 2, 3):
            await running.kill(number)
            running.boot_ids[number] = "second"
        await running.start_broker(1)
        await running.start_broker(2, trust_log=True)
        await running.start_broker(3)
        assert await running.settled(3) == 2
        running.check()


async def test_a_learner_gets_the_log_and_never_leads() -> None:
    async with group(2) as running:
        await running.start_broker(3, async_learner=True)
        await running.settled(2)
        await running.send_on(["a"])
        await asyncio.sleep(6)
        assert running.stored(3) == ["a.0"]
        await running.kill(1)
        await running.kill(2)
        await asyncio.sleep(60)
        assert running.master() is None


async def test_a_delayed_message_comes_once_the_switch_is_over_and_never_early() -> None:
    async with settled(["first"]) as running:
        due = running.loop.clock.now_ms() + 10_000
        reply = await running.send("late", properties="DELAY\x013\x02")  # 10 s
        assert reply.code == 0
        del running.acknowledged["late"]  # its offset is that of the queue where it waits
        await running.kill(1)
        await running.settled(2)
        while "late" not in running.stored(running.master() or 0):
            assert running.loop.clock.now_ms() < due + 60_000
            await asyncio.sleep(0.1)
        assert running.loop.clock.now_ms() >= due
        running.check()


async def test_a_group_that_stops_a_master_in_good_order_goes_on_at_once() -> None:
    async with settled(["a"]) as running:
        began = running.loop.time()
        server = running.brokers.pop(1)
        await running.hosts.run(running.host(1), server.__aexit__(None, None, None))
        await running.until(lambda: running.master() in (2, 3))
        assert running.loop.time() - began < 5
        await running.send_on(["b"])
        running.check()


async def test_a_master_that_is_parted_stops_in_good_order_and_without_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["first"])
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        await running.loop.clock.sleep(1_000)
        server = running.brokers.pop(1)
        await running.hosts.run(running.host(1), server.__aexit__(None, None, None))
        gc.collect()  # tasks whose errors nobody has seen are logged then
        assert "is closed" not in caplog.text
        assert await running.settled(2) != 1
        running.check()


async def test_operators_see_epochs_and_the_set() -> None:
    async with settled(["a"]) as running:
        await asyncio.sleep(6)

        async def ask(call: Any) -> Any:
            async with await Channel.connect(
                "10.0.1.1", 10911, clock=running.loop.clock
            ) as channel:
                return (await channel.call(call)).body

        epochs = codec.loads(
            await running.hosts.run(CLIENT, running.body(1, stats.GetEpochs())), BrokerEpochs
        )
        assert (epochs.cluster_name, epochs.broker_name, epochs.broker_id) == ("c", "g", 0)
        (epoch,) = epochs.epoch_list
        assert (epoch.epoch, epoch.start_offset, epoch.end_offset) == (1, 0, 2**63 - 1)
        assert epochs.max_offset == running.brokers[1].broker.log.store.end_position
        status = codec.loads(
            await running.hosts.run(CLIENT, running.body(1, stats.GetHaStatus())), HaStatus
        )
        assert status.master
        assert status.in_sync_slave_nums == 2
        assert [one.in_sync for one in status.ha_connection_info] == [True, True]


async def test_topics_and_progress_of_groups_move_with_the_role() -> None:
    async with settled(["a", "b", "c"]) as running:
        created = CreateGroup(body=codec.dumps(SubscriptionGroup(group_name="billing")))
        await running.hosts.run(CLIENT, running.ask(1, created))
        commit = UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=2)
        await running.hosts.run(CLIENT, running.ask(1, commit))
        await asyncio.sleep(15)
        await running.kill(1)
        number = await running.settled(2)
        query = QueryOffset(consumer_group="billing", topic="orders", queue_id=0)
        assert (await running.hosts.run(CLIENT, running.ask(number, query))).offset == 2
        tables = running.brokers[number].broker.tables
        assert tables.topics.get("orders") is not None
        assert tables.topics.version.state_version == 2


async def test_progress_is_never_beyond_what_the_new_master_has() -> None:
    async with settled(["a"]) as running:
        created = CreateGroup(body=codec.dumps(SubscriptionGroup(group_name="billing")))
        await running.hosts.run(CLIENT, running.ask(1, created))
        await asyncio.sleep(15)
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        assert (await running.send("lost", 1)).code in (1, 12)
        commit = UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=1)
        await running.hosts.run(CLIENT, running.ask(1, commit))
        number = 0
        while not number:
            await asyncio.sleep(1)
            number = running.master() or 0
        store = running.brokers[number].broker.log.store
        query = QueryOffset(consumer_group="billing", topic="orders", queue_id=0)
        try:
            known = (await running.hosts.run(CLIENT, running.ask(number, query))).offset
        except CallRefused:  # the copy of the tables was older than the group
            known = 0
        assert (known or 0) <= store.bounds("orders", 0)[1]


async def test_a_broker_that_dies_while_nobody_knows_if_it_joined_stops_the_group_for_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alter_set, lost = ControllerClient.alter_set, list[frozenset[int]]()

    async def losing_one(
        self: ControllerClient, master: int, epoch: int, version: int, members: frozenset[int]
    ) -> calls.SyncStateSet:
        if 3 in members and not lost:
            lost.append(members)
            raise CallTimeout("no answer")
        return await alter_set(self, master, epoch, version, members)

    async with group(2) as running:
        await running.settled(2)
        await running.send_on(["a"])
        role = running.brokers[1].broker.replication.role
        epoch = role.current.epoch
        monkeypatch.setattr(ControllerClient, "alter_set", losing_one)
        await running.start_broker(3)
        await running.until(lambda: lost)
        await running.kill(3)
        assert (await running.send("b", 1)).code == 12, "the third broker may be a member"
        await running.until(lambda: role.current.epoch > epoch, 10)
        await running.settled(2)
        await running.send_on(["c"])
        running.check()


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_broker_whose_clock_is_an_hour_off_follows_and_leads_like_any_other(
    hours: int,
) -> None:
    async with group(2) as running:
        running.clocks[3] = WrongClock(running.loop.clock, hours * 3_600_000)
        await running.start_broker(3, election_priority=1)
        await running.settled(3)
        await running.send_on(f"a{n}" for n in range(5))
        await asyncio.sleep(1)
        await running.kill(1)
        assert await running.settled(2) == 3
        await running.send_on(f"b{n}" for n in range(5))
        await running.start_broker(1)
        await running.settled(3)
        running.check()
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


async def test_a_replica_whose_disk_is_full_leaves_the_set_and_comes_back_once_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with settled(["a"]) as running:
        files = running.files[3]
        room, files.capacity = files.capacity, sum(files.blocks.values())
        await running.send_on(f"{n}" * 30_000 for n in range(10, 40))
        assert running.members() == {1, 2}
        lines = [record.getMessage() for record in caplog.records]
        full = [line for line in lines if "disk is full" in line and "is not copied from" in line]
        assert len(full) == 1
        running.check()
        files.capacity = room
        await running.settled(3)
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


def broker_of_another_group(cluster: str) -> MemoryFiles:
    """The directory of broker 2 of a group of the same name, with three messages."""
    found: list[MemoryFiles] = []

    @in_virtual_time
    async def live() -> None:
        async with group(2, cluster_name=cluster) as running:
            await running.settled(2)
            await running.send_on(["f1", "f2", "f3"])
            await asyncio.sleep(1)
            await running.kill(2)
            found.append(running.files[2])

    live()
    return found[0]


def rename(files: MemoryFiles, identity: str) -> MemoryFiles:
    """A copy of a broker's directory, as another one's."""
    copy = files.copy()
    copy.replace(IDENTITY, identity.encode())
    return copy


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ("x", "the group g is of cluster c, not x: give this broker another brokerName"),
        ("c", "the logs are of different pasts, although their epochs are equal"),
    ],
)
def test_a_new_broker_with_the_log_of_another_group_does_not_join(
    cluster: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = broker_of_another_group(cluster)

    @in_virtual_time
    async def scene() -> None:
        async with group() as running:
            assert await running.settled(3) == 1
            await running.send_on(["m1", "m2", "m3"])
            running.files[4] = rename(foreign, f"{cluster}#g#4")
            await running.start_broker(4, cluster_name=cluster)
            await asyncio.sleep(20)
            assert running.members() == {1, 2, 3}
            await running.send_on(["m4"])
            assert "m4.0" not in running.stored(4), "nothing is copied on top of another log"
            running.check()

    scene()
    assert caplog.text.count(why) == 1


@pytest.mark.parametrize("cluster", ["x", "c"])
def test_a_broker_of_another_group_does_not_lead_in_the_place_of_one_with_its_id(
    cluster: str,
) -> None:
    foreign = broker_of_another_group(cluster)

    @in_virtual_time
    async def scene() -> None:
        async with group() as running:
            assert await running.settled(3) == 1
            await running.send_on(["m1", "m2", "m3"])
            await running.kill(2)
            await running.until(lambda: running.members() == {1, 3})
            running.files[4] = foreign
            await running.start_broker(4, cluster_name=cluster)
            await asyncio.sleep(10)
            await running.send_on(["m4"])
            await running.kill(1)
            assert await running.settled(1) == 3
            running.check()

    scene()


async def test_a_stray_broker_of_a_later_epoch_stops_no_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        stray = rename(running.files[3], "x#g#7")
        stray.replace(EPOCHS, encode_epoch_file((EpochEntry(50, 0),)))
        running.files[4] = stray
        await running.start_broker(4, cluster_name="x")
        await asyncio.sleep(10)
        assert running.master() == 1
        await running.send_on(["b"])
    assert "nobody is elected" not in caplog.text


def masters_by_epoch(running: Group, found: dict[int, set[int]]) -> dict[int, set[int]]:
    """Note which brokers take messages now, by the epoch in which they do."""
    for number, server in running.brokers.items():
        role = server.broker.replication.role.current
        if role.is_active:
            found.setdefault(role.epoch, set()).add(number)
    return found


async def test_a_copy_of_a_masters_directory_waits_until_the_original_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group(1, min_in_sync_replicas=1) as running:
        assert await running.settled(1) == 1
        await running.send_on(["a"])
        running.files[4] = running.files[1].copy()
        await running.start_broker(4)
        leading: dict[int, set[int]] = {}
        for _ in range(200):
            masters_by_epoch(running, leading)
            await asyncio.sleep(0.1)
        assert set().union(*leading.values()) == {1}
        await running.kill(1)
        assert await running.settled(1) == 4
        running.check()
    assert caplog.text.count("is alive at 10.0.1.1:10911, and 10.0.1.4:10911 has a copy") == 1


async def test_a_master_that_was_replaced_by_its_copy_takes_no_messages_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group(1, min_in_sync_replicas=1) as running:
        assert await running.settled(1) == 1
        running.part(1, CONTROLLER, NAMESRV)
        running.files[4] = running.files[1].copy()
        await running.start_broker(4)
        leading: dict[int, set[int]] = {}
        for tenths in range(600):
            masters_by_epoch(running, leading)
            if tenths == 300:
                running.network.heal()
            await asyncio.sleep(0.1)
        assert running.master() == 4
        assert all(len(one) == 1 for one in leading.values()), leading
    assert "is alive at 10.0.1.4:10911, and 10.0.1.1:10911 has a copy" in caplog.text


async def test_a_copy_of_a_replicas_directory_acknowledges_nothing_in_its_name() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        running.files[4] = running.files[2].copy()
        await running.start_broker(4)
        await asyncio.sleep(5)
        assert running.members() == {1, 2, 3}
        await running.send_on(["b"])
        await asyncio.sleep(6)  # the next heartbeat says that it is confirmed
        assert running.stored(2) == running.stored(1) == running.stored(3) != running.stored(4)
        await running.kill(1)
        await running.kill(3)
        assert await running.settled(1) == 2
        running.check()


async def test_a_broker_that_is_started_again_elsewhere_is_the_same_broker() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        for number in (1, 2):
            await running.kill(number)
            running.files[number + 3] = running.files[number].copy()
            await running.start_broker(number + 3)
            await running.settled(3)
            assert running.members() == {1, 2, 3}
            await running.send_on([f"b{number}"])
            running.check()


async def test_a_broker_that_the_controller_knows_at_an_old_address_registers_again() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        old = deepcopy(running.state)
        await running.kill(2)
        running.files[5] = running.files[2].copy()
        await running.start_broker(5)
        await running.until(lambda: running.members() == {1, 2, 3})
        await running.kill_controller()
        running.state = old
        await running.start_controller()
        await asyncio.sleep(20)
        assert running.members() == {1, 2, 3}
        await running.send_on(["a"])
        await running.kill(1)
        await running.kill(3)
        assert await running.settled(1) == 5
        running.check()
