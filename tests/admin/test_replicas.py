"""Replicas as their operators see them, of our brokers and by answers of Apache's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from roquet.admin import brokers, replicas
from roquet.admin.client import AdminClient
from roquet.admin.replicas import ReplicaPosition, ReplicaStatus, matched_connections
from roquet.client import Producer, ProducerConfig
from roquet.client.config import ClientConfig
from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.model.route import BrokerData, ClusterInfo
from roquet.net.clock import Clock
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.admin.stats import GetEpochs, GetHaStatus, GetRuntimeInfo, HaConnection
from roquet.wire.calls.query import ViewMessage

pytestmark = pytest.mark.virtual_time

MASTER_STATUS = b"""{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,
"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[
{"addr":"10.0.0.2:54438","diff":1320,"inSync":true,"slaveAckOffset":3099972,
"transferFromWhere":3101292,"transferredByteInSecond":7},
{"addr":"10.0.0.9:50000","diff":3101292,"inSync":false,"slaveAckOffset":0,
"transferFromWhere":0,"transferredByteInSecond":0}],
"inSyncSlaveNums":1,"master":true,"masterCommitLogMaxOffset":3101292}"""
"""Of Apache RocketMQ 5.5.0, with another host's replica that has reported nothing."""

REPLICA_STATUS = b"""{"haClientRuntimeInfo":{"lastReadTimestamp":1700000000000,
"lastWriteTimestamp":1700000000001,"masterAddr":"10.0.0.1:10912","masterFlushOffset":0,
"maxOffset":3099972,"transferredByteInSecond":7},"haConnectionInfo":[],"inSyncSlaveNums":0,
"master":false,"masterCommitLogMaxOffset":0}"""


NOT_HERE = CallRefused(1, "not here")
DEFAULTS: dict[Any, Any] = {GetSettings: b"brokerName=broker-a", GetRuntimeInfo: b'{"table":{}}'}


class FakeAdmin(AdminClient):
    """Brokers that answer what a test says, by address and kind of call."""

    def __init__(self, addresses: dict[int, str], answers: dict[tuple[str, Any], Any]) -> None:
        self.clock = AsyncMock(Clock, now_ms=lambda: 1_700_000_005_000)
        data = BrokerData(cluster="c", broker_name="broker-a", broker_addrs=addresses)
        self._info = ClusterInfo(broker_addr_table={"broker-a": data})
        self._answers = answers

    async def cluster(self) -> ClusterInfo:
        return self._info

    async def ask(self, address: str, call: Call[Any], timeout_ms: int | None = None) -> Any:
        answer = self._answers.get((address, type(call)), DEFAULTS.get(type(call), NOT_HERE))
        if isinstance(answer, Exception):
            raise answer
        return Reply(body=answer)


@asynccontextmanager
async def with_replicas(**settings: Any) -> AsyncIterator[tuple[Cluster, AdminClient]]:
    clock = this_loop().clock
    async with (
        cluster(clock=clock, **settings) as running,
        AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin,
    ):
        for _ in range(2):
            await running.add_replica()
        await clock.sleep(1_000)
        yield running, admin


async def send(running: Cluster, count: int) -> None:
    config = ProducerConfig(clock=this_loop().clock)
    async with Producer(running.namesrv_addr, config=config) as producer:
        for _ in range(count):
            await producer.send("orders", b"x" * 100)


async def test_replicas_that_have_everything_are_in_sync_and_not_behind() -> None:
    async with with_replicas(broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=3) as (
        running,
        admin,
    ):
        await this_loop().clock.sleep(10_000)  # replicas of one host have reported twice
        await send(running, 3)
        rows = await replicas.statuses(admin)
        assert [(row.broker_id, row.is_master, row.is_in_sync) for row in rows] == [
            (0, True, True),
            (1, False, True),
            (2, False, True),
        ]
        assert {(row.lag_bytes, row.lag_ms, row.fault) for row in rows} == {(0, 0, None)}
        assert len({row.log_end for row in rows}) == 1
        now_ms = this_loop().clock.now_ms()
        assert all(row.last_contact_ms and now_ms - row.last_contact_ms < 6_000 for row in rows[1:])
        with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
            await replicas.statuses(admin, "broker-x")
        assert await replicas.statuses(admin, "broker-a") == rows


async def test_a_replica_is_behind_since_the_first_message_that_it_lacks_was_stored() -> None:
    async with with_replicas() as (running, admin):
        await send(running, 1)
        await this_loop().clock.sleep(1_000)
        await brokers.configure(admin, "broker-a#2", {"haMasterAddress": "127.0.0.1:1"})
        await send(running, 2)
        await this_loop().clock.sleep(4_000)
        master, one, two = await replicas.statuses(admin)
        assert (one.is_in_sync, one.lag_bytes) == (True, 0)
        assert (two.is_in_sync, two.lag_bytes) == (
            False,
            (master.log_end or 0) - (two.log_end or 0),
        )
        assert two.lag_bytes
        assert 4_000 <= (two.lag_ms or 0) < 5_000


async def test_nothing_is_known_of_a_lag_while_the_master_is_away() -> None:
    async with with_replicas() as (running, admin):
        await running.stop_broker(0)
        rows = await replicas.statuses(admin)
        assert [row.broker_id for row in rows] == [1, 2]
        assert {(row.is_master, row.is_in_sync, row.lag_bytes, row.lag_ms) for row in rows} == {
            (False, None, None, None)
        }


async def test_apaches_brokers_are_understood() -> None:
    one, two, three = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
    epochs = (
        b'{"brokerId":0,"brokerName":"broker-a","clusterName":"c","epochList":'
        b'[{"endOffset":900,"epoch":1,"startOffset":0},'
        b'{"endOffset":9223372036854775807,"epoch":4,"startOffset":900}],"maxOffset":3101292}'
    )
    admin = FakeAdmin(
        {0: one, 1: two, 2: three},
        {
            (one, GetHaStatus): MASTER_STATUS,
            (one, GetEpochs): epochs,
            (two, GetHaStatus): REPLICA_STATUS,
            (two, GetRuntimeInfo): (
                b'{"table":{"commitLogMaxOffset":"3099972","dispatchBehindBytes":"0"}}'
            ),
            (three, GetHaStatus): ConnectFailed("nobody listens"),
            (one, ViewMessage): b"no record at all",
        },
    )
    master, replica, silent = await replicas.statuses(admin)
    assert (master.epoch, master.log_end, replica.epoch) == (4, 3101292, None)
    assert replica == ReplicaStatus(
        broker="broker-a",
        broker_id=1,
        address=two,
        is_master=False,
        log_end=3099972,
        is_in_sync=True,
        lag_bytes=1320,
        lag_ms=None,
        last_contact_ms=1_700_000_000_000,
    )
    assert silent.fault == "nobody listens"
    assert (silent.is_in_sync, silent.log_end, silent.lag_bytes) == (False, 0, 3101292)


async def test_a_replica_that_name_servers_do_not_know_is_shown_without_an_id() -> None:
    one, two = "10.0.0.1:10911", "10.0.0.2:10911"
    answers: dict[tuple[str, Any], Any] = {
        (one, GetHaStatus): MASTER_STATUS,
        (two, GetHaStatus): REPLICA_STATUS,
    }
    _, _, stranger = await replicas.statuses(FakeAdmin({0: one, 1: two}, answers))
    assert (stranger.broker_id, stranger.address) == (None, "10.0.0.9:50000")
    assert (stranger.is_in_sync, stranger.lag_bytes) == (False, 3101292)


async def test_a_frozen_replica_is_silent_though_its_master_counts_it_as_in_sync() -> None:
    clock = this_loop().clock
    async with (
        cluster(clock=clock) as running,
        AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin,
    ):
        port = running.brokers[0].broker.replication.stream_server.port
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((0).to_bytes(8, "big"))
        await clock.sleep(9_000)
        _, replica = await replicas.statuses(admin)
        assert (replica.is_in_sync, replica.silent_s) == (True, None)
        await clock.sleep(3_000)
        shown = await replicas.statuses(admin)
        assert (shown[1].is_in_sync, shown[1].silent_s) == (True, 12)
        (line,) = replicas.problems(shown)
        assert line.endswith("is silent: its master has heard nothing of it for 12 s")
        writer.close()


async def test_a_broker_that_does_not_tell_its_settings_is_a_problem() -> None:
    one = "10.0.0.1:10911"
    answers: dict[tuple[str, Any], Any] = {
        (one, GetHaStatus): b'{"master":true,"masterCommitLogMaxOffset":900}',
        (one, GetSettings): CallRefused(16, "no permission"),
    }
    shown = await replicas.statuses(FakeAdmin({0: one}, answers))
    assert replicas.problems(shown) == [
        "broker-a 0 at 10.0.0.1:10911 does not tell how it is: code 16: no permission"
    ]


async def test_the_lag_of_a_log_that_goes_beyond_the_masters_is_not_known() -> None:
    one, two = "10.0.0.1:10911", "10.0.0.2:10911"
    answers: dict[tuple[str, Any], Any] = {
        (one, GetHaStatus): b'{"master":true,"masterCommitLogMaxOffset":900}',
        (two, GetHaStatus): REPLICA_STATUS,
    }
    _, replica = await replicas.statuses(FakeAdmin({0: one, 1: two}, answers))
    assert (replica.is_in_sync, replica.log_end) == (False, 3099972)
    assert (replica.lag_bytes, replica.lag_ms) == (None, None)


def test_connections_belong_to_replicas_of_their_host_and_of_their_position() -> None:
    def connection(addr: str | None, ack: int) -> HaConnection:
        return HaConnection(addr=addr, slave_ack_offset=ack)

    def replica(broker_id: int, host: str, log_end: int = -1) -> ReplicaPosition:
        return ReplicaPosition(broker_id=broker_id, host=host, log_end=log_end)

    ahead, behind = connection("10.0.0.1:5", 900), connection("10.0.0.1:6", 100)
    here = [replica(1, "10.0.0.1", 110), replica(2, "10.0.0.1", 905)]
    assert matched_connections(here, [behind, ahead]) == {1: behind, 2: ahead}
    silent = [replica(1, "10.0.0.1"), replica(2, "10.0.0.1", 105)]
    assert matched_connections(silent, [behind]) == {2: behind}
    elsewhere = connection("172.17.0.9:6", 900)
    hosts = [replica(1, "10.0.0.1", 100), replica(2, "10.0.0.2", 100)]
    assert matched_connections(hosts, [elsewhere, behind]) == {1: behind, 2: elsewhere}
    six = connection("[::1]:7", 1)
    assert matched_connections([replica(1, "::1", 1)], [connection(None, 2), six]) == {1: six}
    assert matched_connections([], [six]) == {}


def test_a_replica_that_says_where_it_is_connected_from_has_that_connection() -> None:
    one = HaConnection(addr="10.0.0.1:5", slave_ack_offset=900)
    two = HaConnection(addr="10.0.0.1:6", slave_ack_offset=100)
    behind_nat = HaConnection(addr="172.17.0.1:7", slave_ack_offset=500)
    unknown = HaConnection(addr=None, slave_ack_offset=1_000)

    def replica(broker_id: int, log_end: int, connected_from: str | None) -> ReplicaPosition:
        return ReplicaPosition(
            broker_id=broker_id, host="10.0.0.1", log_end=log_end, connected_from=connected_from
        )

    replicas = [
        replica(1, 1_000, "10.0.0.1:6"),
        replica(2, 100, "10.0.0.1:5"),
        replica(3, 800, "10.0.9.9:7"),
    ]
    found = matched_connections(replicas, [unknown, one, two, behind_nat])
    assert found == {1: two, 2: one, 3: behind_nat}
