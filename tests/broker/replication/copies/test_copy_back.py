"""CopyBack: what a master that returns takes over from a replica, and what it does without one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.replication.fake_master import Answer, FakeMaster

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.model.names import SCHEDULE_TOPIC
from roquet.model.topic import DataVersion
from roquet.net.clock import Clock
from roquet.store.store import Draft
from roquet.store.timer.layout import TimerCheckpoint
from roquet.testing.clock import START_MS, in_virtual_time, this_loop
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.inspection import AllOffsets
from roquet.wire.calls.admin.namesrv import BrokerMembers, BrokerMembersBody, GetBrokerMembers
from roquet.wire.calls.admin.stats import GetHaStatus, HaClient, HaStatus
from roquet.wire.fastjson import codec

LEVEL = 18
"""A delay level at which messages wait for two hours."""

NEWER = DataVersion(counter=9)
READ_MS = START_MS + 5_000
"""Second that the replica's timer has reached: ahead of the master's own."""


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


@in_virtual_time
async def test_a_master_begins_with_the_progress_of_its_replica() -> None:
    replica = FakeReplica(this_loop().clock)
    async with replica.server, returning(replica, 5) as master:
        assert not has_begun(master)
        await this_loop().clock.sleep(500)
        assert has_begun(master)
        assert progress(master) == (2, 3)
        assert master.tables.offsets.version.counter >= NEWER.counter
        assert master.delivery.timer.context.timers.replayed == (0, READ_MS)


@in_virtual_time
async def test_progress_is_no_further_than_the_queues_of_the_master() -> None:
    replica = FakeReplica(this_loop().clock)
    async with replica.server, returning(replica, 1) as master:
        await this_loop().clock.sleep(500)
        assert progress(master)[0] == 1


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
async def test_a_master_begins_even_if_the_copy_fails_for_an_unknown_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("nobody thought of this")

    module = "roquet.broker.replication.copies.copy_back"
    monkeypatch.setattr(f"{module}.group_members", fail)
    replica = FakeReplica(this_loop().clock)
    async with replica.server, returning(replica) as master:
        await this_loop().clock.sleep(100)
        assert has_begun(master)
        assert "cannot be taken over" in caplog.text
