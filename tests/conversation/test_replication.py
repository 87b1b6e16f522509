"""A master and its replicas in one process, in virtual time, on a network in memory.

By name: HATest of Apache RocketMQ (bytes of logs, a replica that stops, timeouts), HAClientTest
(another address of the master), SlaveBrokerIT.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.admin.elected_group import address, operate
from tests.broker.conftest import FakePeer
from tests.broker.handlers.messages.test_pull import ask
from tests.conversation.failover_group import CONTROLLER, Group, group, settled

from roquet.admin.client import AdminClient
from roquet.admin.replicas import problems, statuses
from roquet.broker.app import BrokerServer
from roquet.broker.replication.role import Role
from roquet.broker.services.delayed_delivery import decode_records
from roquet.broker.settings.config import BrokerConfig
from roquet.client import (
    CallRefused,
    Message,
    Producer,
    ProducerConfig,
    SendStatus,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from roquet.client.config import ClientConfig
from roquet.model.errors import ConfigError, RecordError, StoreError
from roquet.model.topic import MASTER_ID
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole, ReplicaAck
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, StoreLocation, cluster
from roquet.wire.calls.admin.stats import GetHaStatus, HaStatus
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

SMALL: dict[str, Any] = {
    "log_file_size": 32 * 1024,
    "queue_file_entries": 50,
    "transaction_timeout": 1_000,
}
"""Files so small that a test fills several."""


HERE, THERE = "10.0.0.1", "10.0.0.2"
"""Hosts of a master and of its replica."""


def group_of_brokers(store: StoreLocation = "memory", **settings: Any) -> Cluster:
    return cluster(store=store, clock=this_loop().clock, **{**SMALL, **settings})


def config(seed: int = 3) -> ProducerConfig:
    return ProducerConfig(
        clock=this_loop().clock, rng=Random(seed), client_ip=HERE, send_timeout_ms=10_000
    )


def producer_of(running: Cluster) -> Producer:
    return Producer(running.namesrv_addr, config=config())


@asynccontextmanager
async def on_two_hosts(**settings: Any) -> AsyncIterator[tuple[Cluster, BrokerServer]]:
    """A master on one host, and its replica on another one."""
    network = this_loop().network
    with network.host(HERE):
        async with group_of_brokers(host=HERE, advertise=HERE, **settings) as running:
            with network.host(THERE):
                replica = await running.add_replica(host=THERE, advertise=THERE)
            await this_loop().clock.sleep(1_000)
            yield running, replica


async def caught_up(master: BrokerServer, *replicas: BrokerServer) -> None:
    """Wait until replicas have the master's log, and its messages are in their queues."""
    for _ in range(400):
        end = master.broker.log.store.raw.end
        if all(replica.broker.log.store.raw.dispatched == end for replica in replicas):
            return
        await this_loop().clock.sleep(50)
    ends = [replica.broker.log.store.raw.dispatched for replica in replicas]
    raise AssertionError(f"the master's log ends at {end}, the replicas' at {ends}")


def log_of(server: BrokerServer) -> bytes:
    """All bytes of a broker's log."""
    raw, parts = server.broker.log.store.raw, []
    position = raw.begin
    while part := bytes(raw.read(position, 1 << 20)):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def queues_of(server: BrokerServer) -> dict[tuple[str, int], tuple[int, int, list[bytes]]]:
    """Bounds and records of every queue of a broker."""
    store, found = server.broker.log.store, {}
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            begin, end = store.bounds(topic, queue_id)
            parts: list[bytes] = []
            at = begin
            while at < end:
                messages = store.read(topic, queue_id, at, count_max=1_000)
                parts += map(bytes, messages.parts)
                at = messages.next_offset
            found[topic, queue_id] = (begin, end, parts)
    return found


def commit_progress(server: BrokerServer) -> None:
    """Let a group and a delay level have gone on at a broker."""
    server.broker.tables.offsets.commit("g", "orders", 0, 2)
    server.broker.tables.delay_offsets.advance(3, 5)


def progress_of(server: BrokerServer) -> tuple[int | None, int]:
    """How far that group and that delay level are at a broker."""
    tables = server.broker.tables
    return tables.offsets.get("g", "orders", 0), tables.delay_offsets.get(3)


def bodies_of(server: BrokerServer, topic: str) -> list[bytes]:
    """Bodies of all messages of a topic."""
    return [
        record.body
        for (name, _), (_, _, parts) in queues_of(server).items()
        if name == topic
        for record in decode_records([memoryview(part) for part in parts], fail)
    ]


def fail(_: bytes, error: RecordError) -> None:
    raise error


def files_of(directory: Path, *kinds: str) -> dict[str, bytes]:
    """Content of the files below some folders of a broker's directory, without trailing zeros."""
    return {
        str(path.relative_to(directory)): path.read_bytes().rstrip(b"\0")
        for kind in kinds
        for path in sorted((directory / kind).rglob("*"))
        if path.is_file()
    }


def send_call(**fields: Any) -> Send:
    arguments = {"producer_group": "pg", "topic": "orders", "queue_id": 0, "born_timestamp": 1}
    return Send(body=b"x", **{**arguments, **fields})


def no_check(message: StoredMessage) -> TransactionState:
    raise AssertionError(f"nobody should ask about {message}")


async def send_all_kinds(running: Cluster) -> None:
    """Send messages of every kind that a broker stores."""
    async with producer_of(running) as producer:
        for number in range(120):
            body = b"%03d" % number * 100
            await producer.send("orders", body, tag=f"t{number % 3}", keys=(f"k{number}",))
        await producer.send("orders", b"later", delay_level=1)
        await producer.send("orders", b"timed", delay=timedelta(seconds=2))
        await producer.send_batch([Message("orders", b"b%d" % number) for number in range(20)])
    async with TransactionProducer(
        running.namesrv_addr, group="pg", check=no_check, config=config(4)
    ) as transactions:
        async with transactions.transaction("orders", b"good"):
            pass
        async with transactions.transaction("orders", b"bad") as transaction:
            transaction.rollback()
    await this_loop().clock.sleep(5_000)


async def ha_status(server: BrokerServer) -> HaStatus:
    pool = ChannelPool(clock=this_loop().clock)
    reply = await pool.call(server.address, GetHaStatus())
    await pool.close()
    return codec.loads(reply.body, HaStatus)


async def test_a_replica_has_every_byte_and_every_queue_entry_of_its_master() -> None:
    async with group_of_brokers() as running:
        replica = await running.add_replica()
        await send_all_kinds(running)
        await caught_up(running.brokers[0], replica)
        assert log_of(running.brokers[0]) == log_of(replica)
        assert len(log_of(replica)) > 2 * SMALL["log_file_size"]
        mine, theirs = queues_of(running.brokers[0]), queues_of(replica)
        assert {topic for topic, _ in mine} >= {
            "orders", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        }  # fmt: skip
        assert mine == theirs
        found = replica.broker.log.store.query("orders", "k5")
        assert len(found.records) == 1, "keys are indexed, too"


async def test_files_are_equal_after_a_stop(tmp_path: Path) -> None:
    async with group_of_brokers(tmp_path) as running:
        replica = await running.add_replica()
        await send_all_kinds(running)
        await caught_up(running.brokers[0], replica)
    kinds = "commitlog", "consumequeue"
    master = files_of(tmp_path / "broker-a", *kinds)
    assert master == files_of(tmp_path / "broker-a-1", *kinds)
    assert len(master) > 10


async def test_a_replica_that_joins_late_begins_with_the_masters_last_file() -> None:
    async with group_of_brokers() as running:
        await send_all_kinds(running)
        replica = await running.add_replica()
        master = running.brokers[0]
        await caught_up(master, replica)
        end = master.broker.log.store.raw.end
        assert replica.broker.log.store.raw.begin == end - end % SMALL["log_file_size"] > 0
        assert log_of(master).endswith(log_of(replica))


async def test_a_replica_goes_on_where_it_was_after_a_lost_connection() -> None:
    async with on_two_hosts() as (running, replica):
        master = running.brokers[0]
        async with producer_of(running) as producer:
            for number in range(60):
                await producer.send("orders", b"x" * 3_000)
                if number % 20 == 10:
                    this_loop().network.drop(HERE, THERE)
            await caught_up(master, replica)
        assert log_of(master) == log_of(replica)
        assert queues_of(master) == queues_of(replica)


async def test_a_replica_that_was_started_again_goes_on(tmp_path: Path) -> None:
    async with group_of_brokers(tmp_path) as running:
        master = running.brokers[0]
        replica = await running.add_replica()
        async with producer_of(running) as producer:
            await producer.send("orders", b"before")
            await caught_up(master, replica)
            await running.stop_broker(1)
            for _ in range(50):
                await producer.send("orders", b"meanwhile" * 400)
            replica = await running.start_broker(1)
            await caught_up(master, replica)
        assert log_of(master) == log_of(replica)
        assert queues_of(master) == queues_of(replica)


async def test_a_replica_that_has_no_more_sends_a_pull_back_to_the_master_at_once() -> None:
    async with group_of_brokers() as running:
        master, replica = running.brokers[0], await running.add_replica(slave_read_enable=True)
        async with producer_of(running) as producer:
            first = await producer.send("orders", b"first")
            await caught_up(master, replica)
            queue_id = first.queue.queue_id
            tables = replica.broker.tables
            tables.topics.create_for_send("orders", "TBW102", 8, False, 0)
            tables.groups.find("readers", 0)
            pool = ChannelPool(clock=this_loop().clock)
            flags: dict[str, Any] = {"sys_flag": 6, "suspend_timeout_millis": 15_000}
            pull = ask(1, consumer_group="readers", queue_id=queue_id, max_msg_nums=8, **flags)
            began_ms = this_loop().clock.monotonic_ms()
            reply = await pool.call(replica.address, pull, 20_000)
            assert this_loop().clock.monotonic_ms() - began_ms < 1_000
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert reply.suggest_which_broker_id == MASTER_ID
            while (await producer.send("orders", b"second")).queue.queue_id != queue_id:
                pass
            await caught_up(master, replica)
            assert b"second" in bytes((await pool.call(replica.address, pull, 20_000)).body)
            await pool.close()


async def test_a_send_that_needs_two_logs_is_at_the_replica_when_it_is_acknowledged() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    async with group_of_brokers(**settings) as running:
        master, replica = running.brokers[0], await running.add_replica()
        async with producer_of(running) as producer:
            await this_loop().clock.sleep(1_000)
            for _ in range(20):
                receipt = await producer.send("orders", b"safe")
                assert receipt.ok
                assert log_of(replica) == log_of(master)


async def test_without_its_replica_a_send_says_that_it_is_stored_but_not_replicated() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    async with group_of_brokers(**settings) as running:
        replica = await running.add_replica()
        clock = this_loop().clock
        async with producer_of(running) as producer:
            await clock.sleep(1_000)
            assert (await producer.send("orders", b"safe")).ok
            await running.stop_broker(1)
            began_ms = clock.monotonic_ms()
            receipt = await producer.send("orders", b"alone")
            assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT
            assert 3_000 <= clock.monotonic_ms() - began_ms <= 3_010
            assert receipt.offset_message_id
            began_ms = clock.monotonic_ms()
            pool = ChannelPool(clock=clock)
            hasty = send_call(properties="WAIT\x01false\x02")
            assert (await pool.call(running.brokers[0].address, hasty)).code == 0
            assert clock.monotonic_ms() == began_ms, "waitStoreMsgOK=false waits for nobody"
            await pool.close()
        assert (
            replica.broker.log.store.end_position < running.brokers[0].broker.log.store.end_position
        )


async def test_one_report_completes_all_sends_that_wait_for_it() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    async with on_two_hosts(**settings) as (running, _):
        clock, network = this_loop().clock, this_loop().network
        async with producer_of(running) as producer:
            network.partition(HERE, THERE)
            sends = [asyncio.create_task(producer.send("orders", b"x")) for _ in range(50)]
            await clock.sleep(1_000)
            acknowledgements = running.brokers[0].broker.replication.acknowledgements
            assert acknowledgements.waiting == 50
            network.heal()
            assert all(receipt.ok for receipt in await asyncio.gather(*sends))


async def test_a_replica_may_acknowledge_what_is_on_its_disk_alone() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    async with group_of_brokers(**settings) as running:
        replica = await running.add_replica(
            replica_ack=ReplicaAck.FLUSHED, flush_interval=3_600_000
        )
        async with producer_of(running) as producer:
            await this_loop().clock.sleep(1_000)
            for _ in range(5):
                assert (await producer.send("orders", b"safe")).ok
                store = replica.broker.log.store
                assert store.flushed_position == store.end_position > 0


async def test_a_master_that_stops_is_still_told_of_what_its_replicas_have() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    async with on_two_hosts(**settings) as (running, _):
        network = this_loop().network
        async with producer_of(running) as producer:
            assert (await producer.send("orders", b"first")).ok
            network.delay(50, 50)
            send = asyncio.create_task(producer.send("orders", b"last"))
            await this_loop().clock.sleep(70)
            await running.stop_broker(0)
            assert (await send).ok


async def test_the_number_of_logs_can_change_while_sends_wait() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 3}
    async with group_of_brokers(**settings) as running:
        await running.add_replica()
        master = running.brokers[0].broker
        async with producer_of(running) as producer:
            await this_loop().clock.sleep(1_000)
            send = asyncio.create_task(producer.send("orders", b"x"))
            await this_loop().clock.sleep(1_000)
            assert not send.done()
            master.control.settings.change({"inSyncReplicas": "2"}, 0)
            assert (await send).ok


@pytest.mark.parametrize(
    ("call", "code", "remark"),
    [
        (
            send_call(),
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while",
        ),
        (
            CreateTopic(topic="t", read_queue_nums=1, write_queue_nums=1, perm=6),
            ResponseCode.SYSTEM_ERROR,
            "this broker is a replica, whose tables are copies of its master's: change them at the"
            " master",
        ),
    ],
)
async def test_a_replica_refuses_what_is_the_masters(call: Any, code: int, remark: str) -> None:
    async with group_of_brokers() as running:
        replica = await running.add_replica()
        pool = ChannelPool(clock=this_loop().clock)
        with pytest.raises(CallRefused) as refused:
            await pool.call(replica.address, call)
        await pool.close()
        assert (refused.value.code, refused.value.remark) == (code, remark)
        assert replica.broker.log.store.end_position == 0


async def test_the_status_tells_how_far_replicas_are() -> None:
    async with group_of_brokers() as running:
        master, replica = running.brokers[0], await running.add_replica()
        async with producer_of(running) as producer:
            await producer.send("orders", b"x")
        await caught_up(master, replica)
        end = master.broker.log.store.end_position
        status = await ha_status(master)
        (connection,) = status.ha_connection_info
        assert (status.master, status.in_sync_slave_nums) == (True, 1)
        assert status.master_commit_log_max_offset == end
        assert (connection.slave_ack_offset, connection.diff, connection.in_sync) == (end, 0, True)
        assert connection.transfer_from_where == end
        status = await ha_status(replica)
        client = status.ha_client_runtime_info
        assert client is not None
        assert (status.master, client.master_addr) == (False, master.stream_address)
        assert (client.max_offset, client.is_activated) == (end, True)
        assert client.local_addr == connection.addr
        assert client.last_read_timestamp >= client.last_write_timestamp > 0


async def test_a_replica_delivers_nothing_and_asks_about_no_transaction() -> None:
    async with group_of_brokers(transaction_check_interval=1_000) as running:
        master, replica = running.brokers[0], await running.add_replica()
        async with producer_of(running) as producer:
            await producer.send("orders", b"later", delay_level=1)
            await producer.send("orders", b"timed", delay=timedelta(seconds=2))
            await caught_up(master, replica)
            await running.stop_broker(0)
            end = replica.broker.log.store.end_position
            await this_loop().clock.sleep(60_000)
            assert replica.broker.log.store.end_position == end


async def test_an_address_that_leads_to_the_replica_itself_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group_of_brokers() as running:
        replica = await running.add_replica(ha_master="127.0.0.1:9", ha_port=31_000)
        replica.broker.control.settings.change({"haMasterAddress": "127.0.0.1:31000"}, 0)
        await this_loop().clock.sleep(20_000)
        assert caplog.text.count("that is this broker itself") == 1


async def test_another_size_of_log_files_is_found_out(caplog: pytest.LogCaptureFixture) -> None:
    async with group_of_brokers() as running, producer_of(running) as producer:
        for _ in range(30):
            await producer.send("orders", b"x" * 3_000)
        replica = await running.add_replica(log_file_size=48 * 1024)
        await this_loop().clock.sleep(20_000)
        assert "give this replica the master's mappedFileSizeCommitLog" in caplog.text
        assert replica.broker.log.store.end_position == 0
        assert (await producer.send("orders", b"the master goes on")).ok


async def test_a_replica_with_a_longer_log_than_its_master_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings: dict[str, Any] = {
        "broker_role": BrokerRole.SYNC_MASTER,
        "in_sync_replicas": 2,
        "slave_timeout": 500,
    }
    async with group_of_brokers(**settings) as running:
        replica = await running.add_replica()
        async with producer_of(running) as producer:
            await this_loop().clock.sleep(1_000)
            for _ in range(3):
                await producer.send("orders", b"of a past that is gone")
        await caught_up(running.brokers[0], replica)
        await running.stop_broker(0)
        master = await running.start_broker(0)  # in memory: it begins anew
        commit_progress(master)
        await this_loop().clock.sleep(20_000)
        assert caplog.text.count("the logs are of different pasts") == 1
        assert progress_of(replica) == (None, 0), "that is progress in another log"
        async with producer_of(running) as producer:
            receipt = await producer.send("orders", b"new")
            assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT, "its report counts for nothing"


async def test_a_master_that_lost_its_log_and_outgrew_its_replica_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings: dict[str, Any] = {
        "broker_role": BrokerRole.SYNC_MASTER,
        "in_sync_replicas": 2,
        "slave_timeout": 100,
    }
    async with group_of_brokers(**settings) as running:
        replica = await running.add_replica()
        async with producer_of(running) as producer:
            await this_loop().clock.sleep(1_000)
            for _ in range(3):
                await producer.send("orders", b"of a past that is gone")
        await caught_up(running.brokers[0], replica)
        log_before = log_of(replica)
        await running.stop_broker(0)
        master = await running.start_broker(0)  # in memory: it begins anew
        commit_progress(master)
        await this_loop().clock.sleep(10_000)
        for _ in range(20):
            master.broker.log.ingest.append(send_call(), 0, FakePeer())
        assert master.broker.log.store.raw.end > len(log_before)
        await this_loop().clock.sleep(20_000)
        assert caplog.text.count("the logs are of different pasts") == 2, "shorter, then longer"
        assert log_of(replica) == log_before
        assert progress_of(replica) == (None, 0), "that is progress in another log"
        async with producer_of(running) as producer:
            receipt = await producer.send("orders", b"new")
            assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT, "it has no replica"
        assert log_of(replica) == log_before


async def test_no_reader_gets_messages_of_a_replica_that_its_master_has_lost_and_replaced() -> None:
    async with group_of_brokers() as running:
        replica = await running.add_replica(slave_read_enable=True)
        async with producer_of(running) as producer:
            for number in range(16):
                await producer.send("orders", b"gone %d" % number)
        await caught_up(running.brokers[0], replica)
        replica.broker.tables.topics.create_for_send("orders", "TBW102", 8, False, 0)
        flags: dict[str, Any] = {"sys_flag": 6, "suspend_timeout_millis": 0}
        pull = ask(consumer_group="readers", max_msg_nums=8, **flags)
        async with ChannelPool(clock=this_loop().clock) as pool:
            assert b"gone" in bytes((await pool.call(replica.address, pull)).body)
            await running.stop_broker(0)
            assert b"gone" in bytes((await pool.call(replica.address, pull)).body)
            master = await running.start_broker(0)  # in memory: it begins anew
            for _ in range(20):
                master.broker.log.ingest.append(send_call(), 0, FakePeer())
            await this_loop().clock.sleep(1_500)
            reply = await pool.call(replica.address, pull)
            assert (reply.code, reply.body) == (ResponseCode.PULL_RETRY_IMMEDIATELY, b"")
            assert reply.suggest_which_broker_id == MASTER_ID


def test_a_replica_needs_an_id_of_its_own() -> None:
    with pytest.raises(ConfigError, match="give this replica brokerId=1"):
        BrokerConfig(broker_role=BrokerRole.SLAVE)
    with pytest.raises(ConfigError, match="write brokerId=0 for a master"):
        BrokerConfig(broker_id=2)


async def test_a_replica_that_becomes_the_master_goes_on_from_its_log() -> None:
    async with group_of_brokers(slave_timeout=500) as running:
        master, replica = running.brokers[0], await running.add_replica()
        async with producer_of(running) as producer:
            await producer.send("orders", b"later", delay_level=2)
            for number in range(10):
                await producer.send("orders", b"%d" % number)
        await caught_up(master, replica)
        await running.stop_broker(0)
        role = replica.broker.replication.role
        role.change(Role())
        await this_loop().clock.sleep(30_000)
        async with producer_of(running) as producer:
            assert (await producer.send("orders", b"after")).ok
        assert sorted(bodies_of(replica, "orders")) == sorted(
            [b"later", b"after", *(b"%d" % number for number in range(10))]
        )


async def test_a_master_that_becomes_a_replica_ends_its_services_and_takes_nothing() -> None:
    async with group_of_brokers() as running:
        broker = running.brokers[0].broker
        async with producer_of(running) as producer:
            await producer.send("orders", b"later", delay_level=2)
        broker.replication.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
        end = broker.log.store.end_position
        pool = ChannelPool(clock=this_loop().clock)
        with pytest.raises(CallRefused, match="REJECTREQUEST"):
            await pool.call(running.brokers[0].address, send_call())
        await pool.close()
        await this_loop().clock.sleep(60_000)
        assert broker.log.store.end_position == end, "the delayed message is not delivered here"
        with pytest.raises(StoreError, match="this broker is a replica"):
            broker.log.ingest.append(send_call(), 0, FakePeer())


async def seen(running: Group) -> list[str]:
    return problems(await operate(running, statuses))


async def test_a_replica_that_a_master_with_a_fixed_role_needs_and_that_is_gone_is_amiss() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    clock = this_loop().clock
    async with (
        group_of_brokers(**settings) as running,
        AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin,
    ):
        await running.add_replica()
        await clock.sleep(5_000)
        assert problems(await statuses(admin)) == []
        await running.stop_broker(1)
        await clock.sleep(5_000)
        (line,) = problems(await statuses(admin))
        assert line.startswith("broker-a: 1 log is in sync, and messages need 2 (inSyncReplicas")


async def test_a_member_that_its_controller_misses_is_amiss_though_name_servers_forgot_it() -> None:
    async with settled() as running:
        await running.loop.clock.sleep(5_000)
        assert await seen(running) == []
        await running.kill(3)
        await running.settled(2)
        await running.loop.clock.sleep(5_000)
        away = f"g 3 at {address(3)} is away: its controller does not hear of it"
        assert await seen(running) == [away]
        gone = (await operate(running, statuses))[-1]
        assert (gone.broker_id, gone.is_in_sync, gone.is_alive) == (3, False, False)


async def test_a_controller_that_is_away_is_amiss() -> None:
    async with group(2) as running:
        await running.settled(2)
        await running.kill_controller()
        await running.loop.clock.sleep(10_000)
        (line,) = await seen(running)
        assert line.startswith(f"g: no controller leads: {CONTROLLER}:9878: ")
        assert line.endswith("; its master takes no message once its lease is over")


@pytest.mark.parametrize("seconds", [10, 12])
async def test_a_replica_that_is_stopped_does_not_complain_of_copies_that_it_gives_up(
    seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with group_of_brokers() as running:
        await running.add_replica()
        this_loop().network.delay(300, 500)
        await this_loop().clock.sleep(seconds * 1_000)
        await running.stop_broker(1)
    assert "no copy of" not in caplog.text
