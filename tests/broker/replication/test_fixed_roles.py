"""Fixed roles: while the master is away consumers read, commit and lock at the first replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.broker.conftest import config_of
from tests.broker.handlers.messages.test_pull import ask
from tests.broker.replication.fake_master import Answer, FakeMaster

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.replication.fixed_roles import ActingMaster, group_members
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer, ReceivedMessage
from roquet.model.errors import CallRefused
from roquet.model.names import SCHEDULE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.route import TopicRoute
from roquet.model.topic import DataVersion
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Draft
from roquet.store.timer.layout import TimerCheckpoint
from roquet.testing.clock import START_MS, this_loop
from roquet.testing.cluster import Cluster, StoreLocation, cluster
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.inspection import AllOffsets
from roquet.wire.calls.admin.namesrv import (
    BrokerMembers,
    BrokerMembersBody,
    GetBrokerMembers,
    UpdateNameServerSettings,
)
from roquet.wire.calls.admin.stats import GetHaStatus, HaClient, HaStatus
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.bodies import LockBody, LockedQueues
from roquet.wire.calls.heartbeat import LockQueues
from roquet.wire.calls.offset import MaxOffset, QueryOffset, UpdateOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time

SMALL = {"log_file_size": 32 * 1024, "queue_file_entries": 50}

QUEUES = [MessageQueue("orders", "broker-a", 0)]

PULL = ask(consumer_group="g", sys_flag=4, suspend_timeout_millis=0)

SEND = Send(producer_group="pg", topic="orders", queue_id=0, born_timestamp=1, body=b"x")

LEVEL = 18
"""A delay level at which messages wait for two hours."""

NEWER = DataVersion(counter=9)

READ_MS = START_MS + 5_000
"""Second that the replica's timer has reached: ahead of the master's own."""


class Trio:
    """A master and two replicas, and a client that calls them directly."""

    def __init__(self, running: Cluster) -> None:
        self.running = running
        self.pool = ChannelPool(clock=this_loop().clock)

    @property
    def master(self) -> BrokerServer:
        return self.running.brokers[0]

    @property
    def first(self) -> BrokerServer:
        return self.running.brokers[1]

    @property
    def second(self) -> BrokerServer:
        return self.running.brokers[2]

    async def send(self, count: int) -> None:
        for _ in range(count):
            assert (await self.pool.call(self.master.address, SEND)).code == 0
        await this_loop().clock.sleep(500)

    async def lock(self, server: BrokerServer, member: str) -> list[MessageQueue]:
        body = codec.dumps(LockBody(consumer_group="g", client_id=member, mq_set=QUEUES))
        reply = await self.pool.call(server.address, LockQueues(body=body))
        return codec.loads(reply.body, LockedQueues).lock_ok_mq_set

    async def commit(self, server: BrokerServer, offset: int) -> None:
        place: dict[str, Any] = {"consumer_group": "g", "topic": "orders", "queue_id": 0}
        await self.pool.call(server.address, UpdateOffset(**place, commit_offset=offset))

    async def progress(self, server: BrokerServer) -> int | None:
        place: dict[str, Any] = {"consumer_group": "g", "topic": "orders", "queue_id": 0}
        return (await self.pool.call(server.address, QueryOffset(**place))).offset

    async def route(self) -> TopicRoute:
        reply = await self.pool.call(self.running.namesrvs[0].address, GetRoute(topic="orders"))
        return codec.loads(reply.body, TopicRoute)


def acts(server: BrokerServer) -> bool:
    return server.broker.replication.acts_as_master


@asynccontextmanager
async def trio(store: StoreLocation = "memory", **settings: Any) -> AsyncIterator[Trio]:
    """A master with a topic and a group, and two replicas that have copied everything."""
    given = {**SMALL, "acting_master": True, **settings}
    async with cluster(store=store, clock=this_loop().clock, **given) as running:
        made = Trio(running)
        await running.add_replica()
        await running.add_replica()
        await this_loop().clock.sleep(11_000)  # replicas of one host have reported twice
        shows = UpdateNameServerSettings(body=b"supportActingMaster=true")
        await made.pool.call(running.namesrvs[0].address, shows)
        topic = CreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
        await made.pool.call(made.master.address, topic)
        await made.send(5)
        await made.pool.call(made.master.address, PULL)
        await made.commit(made.master, 2)
        await this_loop().clock.sleep(8_000)
        yield made
        await made.pool.close()


async def test_consumers_read_commit_and_lock_at_the_first_replica_while_the_master_is_away() -> (
    None
):
    async with trio() as made:
        assert not acts(made.first)
        assert await made.lock(made.first, "c1") == []
        with pytest.raises(CallRefused, match="REJECTREQUEST"):
            await made.pool.call(made.first.address, PULL)
        await made.running.stop_broker(0)
        await this_loop().clock.sleep(3_000)
        assert (acts(made.first), acts(made.second)) == (True, False)
        assert (await made.pool.call(made.first.address, PULL)).code == 0
        assert await made.progress(made.first) == 2
        await made.commit(made.first, 4)
        assert await made.progress(made.first) == 4
        assert (
            await made.pool.call(made.first.address, MaxOffset(topic="orders", queue_id=0))
        ).offset == 5
        assert await made.lock(made.first, "c1") == QUEUES
        assert await made.lock(made.first, "c2") == []
        assert await made.lock(made.second, "c2") == []
        with pytest.raises(CallRefused) as refused:
            await made.pool.call(made.first.address, SEND)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY


async def test_clients_are_shown_the_acting_replica_in_the_masters_place() -> None:
    async with trio() as made:
        await made.running.stop_broker(0)
        await this_loop().clock.sleep(3_000)
        route = await made.route()
        (data,) = route.broker_datas
        assert data.broker_addrs == {0: made.first.address, 2: made.second.address}
        assert [queue.perm for queue in route.queue_datas] == [4], "it can be read alone"


async def test_an_ordered_consumer_goes_on_at_the_acting_replica() -> None:
    async with trio() as made:
        config = ConsumerConfig(
            clock=this_loop().clock,
            rng=Random(3),
            client_ip="127.0.0.1",
            consume_from=ConsumeFrom.FIRST,
            ordered=True,
        )
        seen: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.queue_offset)

        await made.running.stop_broker(0)
        await this_loop().clock.sleep(3_000)
        consumer = PushConsumer(made.running.namesrv_addr, group="g", topic="orders", config=config)
        async with consumer:
            running = asyncio.create_task(consumer.run(handle))
            await this_loop().clock.sleep(30_000)
        await running
        assert seen == [2, 3, 4], "from the progress that was committed at the master"
        assert await made.progress(made.first) == 5


async def test_the_next_replica_acts_when_the_first_one_goes_too() -> None:
    async with trio() as made:
        await made.running.stop_broker(0)
        await this_loop().clock.sleep(3_000)
        await made.running.stop_broker(1)
        await this_loop().clock.sleep(3_000)
        assert acts(made.second)
        assert await made.lock(made.second, "c1") == QUEUES


async def test_a_master_that_returns_knows_what_was_committed_while_it_was_away(
    tmp_path: Path,
) -> None:
    async with trio(tmp_path) as made:
        await made.running.stop_broker(0)
        await this_loop().clock.sleep(3_000)
        await made.commit(made.first, 4)
        assert await made.lock(made.first, "c1") == QUEUES
        await made.running.start_broker(0)
        await this_loop().clock.sleep(3_000)
        assert made.master.broker.replication.role.current.is_active
        assert await made.progress(made.master) == 4
        assert not acts(made.first)
        assert await made.lock(made.first, "c2") == [], "locks are the master's again"
        assert await made.lock(made.master, "c1") == QUEUES
        await made.send(1)
        await this_loop().clock.sleep(10_000)
        assert await made.progress(made.first) == 4
        ends = {server.broker.log.store.raw.end for server in made.running.brokers}
        assert len(ends) == 1, "replicas follow it again"


async def test_a_master_refuses_messages_that_too_few_logs_would_hold() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 3}
    async with trio(**settings) as made:
        await made.running.stop_broker(2)
        await this_loop().clock.sleep(1_000)
        with pytest.raises(CallRefused, match="in-sync replicas not enough"):
            await made.pool.call(made.master.address, SEND)
        assert made.master.broker.log.store.bounds("orders", 0)[1] == 5


async def test_without_the_setting_no_replica_acts() -> None:
    async with trio(acting_master=False) as made:
        await made.running.stop_broker(0)
        await this_loop().clock.sleep(5_000)
        assert not acts(made.first)
        assert await made.lock(made.first, "c1") == []


async def test_a_replica_goes_on_as_it_is_while_no_name_server_answers() -> None:
    async with trio() as made:
        await made.running.stop_broker(0)
        await this_loop().clock.sleep(3_000)
        await made.running.namesrvs[0].__aexit__(None, None, None)
        await this_loop().clock.sleep(5_000)
        assert acts(made.first)


async def test_a_broker_that_becomes_the_master_does_not_act_any_more() -> None:
    role = RoleCell(Role(role=BrokerRole.SLAVE, broker_id=1))
    settings = RuntimeSettings(BrokerConfig(name_servers=("127.0.0.1:9",)))
    acting, pool = ActingMaster(settings, role), ChannelPool(clock=this_loop().clock)
    role.on_change.append(acting.follow_role)
    changes: list[bool] = []
    acting.on_change.append(lambda: changes.append(acting.is_acting))
    assert await group_members(settings, pool) is None
    await acting.step(pool)
    assert not acting.is_acting
    acting.is_acting = True
    role.change(Role())
    assert changes == [False]
    await acting.step(pool)
    await pool.close()


class FakeReplica(FakeMaster):
    """A replica whose answers a test says, which is also the name server that knows it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.settings = self.settings.replace("brokerId=0", "brokerId=1")
        self.members = {1: self.address}
        self.offsets = AllOffsets(offset_table={"orders@g": {0: 2}}, data_version=NEWER)
        self.delay_offsets = DelayOffsetTable(offset_table={LEVEL: 3}, data_version=NEWER)
        self.timer = TimerCheckpoint(read_ms=READ_MS, master_offset=0)

    def default_answers(self) -> dict[type[Call[Any]], Answer]:
        return {
            **super().default_answers(),
            GetHaStatus: lambda _: Reply(
                body=codec.dumps(HaStatus(ha_client_runtime_info=HaClient(max_offset=self.log_end)))
            ),
            GetBrokerMembers: lambda _: Reply(body=codec.dumps(self._members())),
        }

    def _members(self) -> BrokerMembersBody:
        group = BrokerMembers(cluster="c", broker_name="b", broker_addrs=self.members)
        return BrokerMembersBody(broker_member_group=group)


@asynccontextmanager
async def returning(replica: FakeReplica, count: int = 0) -> AsyncIterator[Broker]:
    """A master that begins with some messages in its log."""
    config = BrokerConfig(
        host="127.0.0.1", port=10_911, acting_master=True, name_servers=(replica.address,)
    )
    async with BrokerServer(config, this_loop().clock) as server:
        store = server.broker.log.store
        store.refuse_appends(None)
        due_ms = START_MS + 3_600_000
        for _ in range(count):
            store.append(Draft("orders", 0, b"x", b"", 0, store_host=bytes(8)), START_MS)
            late = Draft(SCHEDULE_TOPIC, LEVEL - 1, b"x", b"", due_ms, store_host=bytes(8))
            store.append(late, START_MS)
        yield server.broker


def has_begun(master: Broker) -> bool:
    return master.replication.role.current.is_active


def progress(master: Broker) -> tuple[int | None, int]:
    """Progress of the group, and of the delay level."""
    return master.tables.offsets.get("g", "orders", 0), master.tables.delay_offsets.get(LEVEL)


async def test_a_master_begins_with_the_progress_of_its_replica() -> None:
    replica = FakeReplica(this_loop().clock)
    async with replica.server, returning(replica, 5) as master:
        assert not has_begun(master)
        await this_loop().clock.sleep(500)
        assert has_begun(master)
        assert progress(master) == (2, 3)
        assert master.tables.offsets.version.counter >= NEWER.counter
        assert master.delivery.timer.context.timers.replayed == (0, READ_MS)


async def test_progress_is_no_further_than_the_queues_of_the_master() -> None:
    replica = FakeReplica(this_loop().clock)
    async with replica.server, returning(replica, 1) as master:
        await this_loop().clock.sleep(500)
        assert progress(master)[0] == 1


async def test_older_progress_is_not_taken_over() -> None:
    replica = FakeReplica(this_loop().clock)
    replica.timer = TimerCheckpoint(read_ms=START_MS - 60_000)
    async with replica.server, returning(replica, 5) as master:
        tables = master.tables
        tables.offsets.commit("g", "orders", 0, 4)
        tables.delay_offsets.advance(LEVEL, 4)
        tables.offsets.version = tables.delay_offsets.version = DataVersion(counter=10)
        await this_loop().clock.sleep(500)
        assert has_begun(master)
        assert progress(master) == (4, 4)


async def test_a_replica_with_a_longer_log_is_not_believed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replica = FakeReplica(this_loop().clock)
    replica.log_end = 1 << 20
    async with replica.server, returning(replica, 5) as master:
        await this_loop().clock.sleep(500)
        assert has_begun(master)
        assert progress(master) == (None, 0)
        assert "has a longer log than this master" in caplog.text


async def test_a_broker_of_another_group_is_not_believed_and_the_master_begins_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replica = FakeReplica(this_loop().clock)
    replica.settings = replica.settings.replace("broker-a", "broker-b")
    async with replica.server, returning(replica, 5) as master:
        await this_loop().clock.sleep(9_000)
        assert not has_begun(master)
        await this_loop().clock.sleep(3_000)
        assert has_begun(master)
        assert progress(master) == (None, 0)
        assert "the progress of replicas is not known" in caplog.text


async def test_a_master_without_name_servers_or_replicas_begins_at_once() -> None:
    replica = FakeReplica(this_loop().clock)
    replica.members = {0: "127.0.0.1:10911"}
    async with replica.server, returning(replica) as master:
        await this_loop().clock.sleep(100)
        assert has_begun(master)
    config = BrokerConfig(host="127.0.0.1", port=10_911, acting_master=True)
    async with BrokerServer(config, this_loop().clock) as server:
        await this_loop().clock.sleep(100)
        assert has_begun(server.broker)


async def test_a_master_begins_even_if_the_copy_fails_for_an_unknown_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("nobody thought of this")

    module = "roquet.broker.replication.fixed_roles"
    monkeypatch.setattr(f"{module}.group_members", fail)
    replica = FakeReplica(this_loop().clock)
    async with replica.server, returning(replica) as master:
        await this_loop().clock.sleep(100)
        assert has_begun(master)
        assert "cannot be taken over" in caplog.text


async def test_a_replica_follows_the_address_that_the_settings_name(tmp_path: Path) -> None:
    async with BrokerServer(
        config_of(broker_role=BrokerRole.SLAVE, broker_id=1, ha_master="127.0.0.1:9")
    ) as server:
        role = server.broker.replication.role
        assert role.current.master_stream == "127.0.0.1:9"
        server.broker.control.settings.change({"haMasterAddress": "127.0.0.1:8"}, 0)
        assert role.current.master_stream == "127.0.0.1:8"
        server.broker.control.settings.change({"haMasterAddress": ""}, 0)
        assert role.current.master_stream == "127.0.0.1:8", "until a name server says another one"
