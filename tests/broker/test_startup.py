import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend, config_of
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.metadata_copy import MetadataCopy
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.role import Role
from roquet.broker.services.transactions.transactions import GROUP, OP_CODE, OP_PROPERTIES
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.startup import (
    DISPATCH_COUNT,
    hand_over,
    lower_progress,
    prepare_cut,
    take_lead,
    take_over,
)
from roquet.model import names
from roquet.model.errors import CallRefused, StoreError
from roquet.model.topic import TopicConfig
from roquet.net.channel import Channel
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Draft
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.codes import ResponseCode

REPLICA: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}

ALONE = Role(role=BrokerRole.SLAVE, broker_id=1)


async def test_progress_of_messages_that_are_lost_is_taken_back_before_there_are_others(
    tmp_path: Path, peer: FakePeer, message: MakeSend, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        server.broker.bind(SendHandler.send)(message(b"kept"), peer)
        for group, offset in (("ahead", 3), ("within", 0)):
            server.broker.tables.offsets.commit(group, "orders", 0, offset)
        server.broker.tables.offsets.commit("CID_RMQ_SYS_X", "SCHEDULE_TOPIC_XXXX", 0, 9)
    async with BrokerServer(config_of(tmp_path)) as server:
        offsets = server.broker.tables.offsets
        assert [offsets.get(g, "orders", 0) for g in ("ahead", "within")] == [1, 0]
        assert offsets.get("CID_RMQ_SYS_X", "SCHEDULE_TOPIC_XXXX", 0) == 9
        assert "further than 1 queues reach" in caplog.text


async def test_messages_without_a_topic_are_said_and_kept(
    tmp_path: Path, peer: FakePeer, message: MakeSend, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        server.broker.bind(SendHandler.send)(message(), peer)
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).unlink(missing_ok=True)
    with caplog.at_level(logging.WARNING, "roquet.broker.startup"):
        async with BrokerServer(config_of(tmp_path)) as server:
            assert "messages of 1 topics without settings, as orders" in caplog.text
            assert server.broker.log.store.bounds("orders", 0) == (0, 1)


async def test_a_replica_leaves_its_tables_as_they_were_copied(
    tmp_path: Path, peer: FakePeer, message: MakeSend, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        server.broker.bind(SendHandler.send)(message(), peer)
        server.broker.tables.offsets.commit("ahead", "orders", 0, 3)
    async with BrokerServer(config_of(tmp_path, **REPLICA)) as server:
        assert server.broker.tables.offsets.get("ahead", "orders", 0) == 3, "its log comes later"
        with pytest.raises(StoreError, match="this broker is a replica"):
            server.broker.log.ingest.append(message(), 0, peer)
        server.broker.replication.role.current = Role()
        await take_over(server.broker)
        assert server.broker.tables.offsets.get("ahead", "orders", 0) == 1, (
            "its log is all there is"
        )
        server.broker.log.ingest.append(message(), 0, peer)
        assert server.broker.log.store.bounds("orders", 0) == (0, 2)


@in_virtual_time
async def test_a_new_master_tells_nobody_where_queues_end_that_it_is_still_building(
    peer: FakePeer, message: MakeSend
) -> None:
    clock, count = this_loop().clock, 20 * DISPATCH_COUNT
    async with BrokerServer(config_of(), clock) as master:
        for _ in range(count):
            master.broker.bind(SendHandler.send)(message(), peer)
        raw = master.broker.log.store.raw
        copied = bytes(raw.read(0, raw.end))
    async with BrokerServer(config_of(**REPLICA, slave_read_enable=True), clock) as server:
        broker = server.broker
        broker.tables.topics.put(TopicConfig(topic_name="orders"), 0)
        await asyncio.sleep(1)
        broker.log.store.raw.append(0, copied)
        async with await Channel.connect("127.0.0.1", server.port, clock=clock) as channel:
            broker.replication.role.change(Role())
            ends = asyncio.create_task(channel.call(MaxOffset(topic="orders", queue_id=0)))
            pulled = asyncio.create_task(channel.call(ask(count)))
            assert (await ends).offset == count
            reply = await pulled
            assert reply.code == ResponseCode.PULL_NOT_FOUND
            assert reply.next_begin_offset == count, "nobody is sent back"


async def test_where_roles_are_fixed_replicas_are_told_of_all_progress(
    tmp_path: Path, peer: FakePeer, message: MakeSend
) -> None:
    """What is not on the disk yet is hidden from consumers, but nothing is cut from the log."""
    async with BrokerServer(config_of(tmp_path, sync_flush=True)) as server:
        await take_over(server.broker)
        server.broker.log.ingest.append(message(), 0, peer)
        server.broker.tables.delay_offsets.advance(3, 7)
        assert server.broker.log.store.bounds("orders", 0) == (0, 0)
        assert server.broker.delivery.checkpoints.safe_progress().delays.offset_table[3] == 7


async def test_a_master_that_hands_over_saves_how_far_its_services_are(
    tmp_path: Path, peer: FakePeer, message: MakeSend
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        server.broker.tables.delay_offsets.advance(3, 7)
        await hand_over(server.broker)
        assert "7" in (tmp_path / "config" / "delayOffset.json").read_text("utf-8")


async def test_a_topic_made_anew_just_before_the_master_was_lost_keeps_no_replica_from_leading(
    peer: FakePeer, message: MakeSend
) -> None:
    async with BrokerServer(config_of()) as master, BrokerServer(config_of(**REPLICA)) as replica:
        broker = master.broker
        for _ in range(3):
            broker.bind(SendHandler.send)(message(), peer)
        broker.make(TopicDeletion).delete(["orders"])
        broker.bind(SendHandler.send)(message(body=b"of the new one"), peer)
        raw = broker.log.store.raw
        replica.broker.log.store.raw.append(0, raw.read(0, raw.end))
        replica.broker.replication.role.change(Role())
        await take_over(replica.broker)
        store = replica.broker.log.store
        assert store.bounds("orders", 0) == (0, 1)
        (part,) = store.read("orders", 0, 0).parts
        assert b"of the new one" in bytes(part)


async def test_a_master_that_hands_over_forgets_what_it_has_told_no_reader_yet(
    tmp_path: Path,
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        tables = server.broker.tables
        tables.offset_resets.put("group", "orders", 0, 5)
        tables.former_readers.add("orders", [], ["group"])
        await hand_over(server.broker)
        assert tables.offset_resets.get("group", "orders", 0) is None
        assert not tables.former_readers.pending


@in_virtual_time
async def test_a_message_in_the_place_of_a_cut_one_is_durable_only_once_it_is_flushed(
    message: MakeSend, peer: FakePeer
) -> None:
    clock = this_loop().clock
    async with BrokerServer(config_of(flush_interval=1_000_000), clock) as master:
        master.broker.bind(SendHandler.send)(message(b"x" * 1000), peer)
        end = master.broker.log.store.end_position
        half = bytes(master.broker.log.store.raw.read(0, end - 1))
    async with BrokerServer(config_of(**REPLICA, flush_interval=1_000_000), clock) as server:
        log = server.broker.log
        await asyncio.sleep(1)
        log.store.raw.append(0, half)
        await log.flush.step()
        server.broker.replication.role.change(Role())
        await asyncio.sleep(1)
        log.ingest.append(message(b"y"), 0, peer)
        assert log.store.flushed_position == 0 < log.store.end_position < len(half)
        assert not await log.flush.durable(log.store.end_position, clock.monotonic_ms())


@in_virtual_time
async def test_a_role_that_is_taken_back_while_it_is_taken_over_leaves_the_log_closed(
    message: MakeSend, peer: FakePeer
) -> None:
    async with BrokerServer(config_of(**REPLICA), this_loop().clock) as server:
        role = server.broker.replication.role
        replica = role.current
        role.current = Role()
        taking_over = asyncio.create_task(take_over(server.broker))
        await asyncio.sleep(0)
        role.change(replica)
        await taking_over
        with pytest.raises(StoreError, match="this broker is a replica"):
            server.broker.log.ingest.append(message(), 0, peer)


@in_virtual_time
async def test_a_role_that_is_lost_for_a_moment_is_taken_over_once_more(
    message: MakeSend, peer: FakePeer
) -> None:
    async with BrokerServer(config_of(**REPLICA), this_loop().clock) as server:
        role = server.broker.replication.role
        role.current = Role()
        taking_over = asyncio.create_task(take_over(server.broker))
        await asyncio.sleep(0)
        role.change(Role(is_fenced=True))
        role.change(Role())
        assert not await taking_over
        with pytest.raises(StoreError, match="another broker"):
            server.broker.log.ingest.append(message(), 0, peer)
        assert await take_over(server.broker)
        server.broker.log.ingest.append(message(), 0, peer)


@in_virtual_time
async def test_requests_wait_for_the_last_of_several_changes_of_the_role(message: MakeSend) -> None:
    clock = this_loop().clock
    async with BrokerServer(config_of(**REPLICA), clock) as server:
        role = server.broker.replication.role
        role.change(Role())
        await asyncio.sleep(0)
        role.change(Role(is_fenced=True))
        role.change(Role())
        async with await Channel.connect("127.0.0.1", server.port, clock=clock) as channel:
            with pytest.raises(CallRefused, match="busy"):
                await channel.call(message())
            await clock.sleep(1_000)
            await channel.call(message())


@in_virtual_time
async def test_a_damaged_note_of_a_pop_keeps_no_replica_from_leading() -> None:
    async with BrokerServer(config_of(), this_loop().clock) as master:
        topic = names.revive_topic(master.config.cluster_name)
        host = master.broker.log.ingest.store_host
        draft = Draft(topic, 0, b"no checkpoint", b"TAGS\x01ck\x02", store_host=host)
        master.broker.log.store.append(draft, this_loop().clock.now_ms())
        raw = master.broker.log.store.raw
        copied = bytes(raw.read(0, raw.end))
    async with BrokerServer(config_of(**REPLICA), this_loop().clock) as server:
        broker = server.broker
        await asyncio.sleep(1)
        broker.log.store.raw.append(0, copied)
        broker.replication.role.change(Role())
        await asyncio.sleep(1)
        assert broker.delivery.set_aside.counts == {"revive": 1}
        assert broker.delivery.set_aside.total == 1


@in_virtual_time
async def test_a_fenced_master_stores_nothing(message: MakeSend, peer: FakePeer) -> None:
    async with BrokerServer(config_of(), this_loop().clock) as server:
        role = server.broker.replication.role
        role.change(Role(is_fenced=True))
        with pytest.raises(StoreError, match="another broker"):
            server.broker.log.ingest.append(message(), 0, peer)
        await asyncio.sleep(1)
        role.change(Role())
        await asyncio.sleep(1)
        server.broker.log.ingest.append(message(), 0, peer)
        assert server.broker.log.store.bounds("orders", 0) == (0, 1)


async def test_a_replica_keeps_progress_beyond_its_queues_until_it_is_the_master(
    broker: Broker, peer: FakePeer, message: MakeSend, caplog: pytest.LogCaptureFixture
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    broker.tables.offsets.copy({"orders@ahead": {0: 7}, "orders@within": {0: 1}}, None)
    broker.replication.role.change(ALONE)
    assert broker.tables.offsets.get("ahead", "orders", 0) == 7
    broker.replication.role.current = Role()
    await take_lead(broker, 0)
    offsets = [broker.tables.offsets.get(g, "orders", 0) for g in ("ahead", "within")]
    assert offsets == [1, 1]
    assert "groups were further than 1 queues reach" in caplog.text
    lower_progress(broker)
    assert len(caplog.records) == 1


async def test_a_replica_takes_progress_beyond_a_cut_back_and_leaves_the_rest(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    end = broker.log.store.raw.end
    broker.bind(SendHandler.send)(message(), peer)
    offsets = broker.tables.offsets
    offsets.copy(
        {
            "orders@ahead": {0: 2},
            "orders@within": {0: 1},
            "elsewhere@far": {0: 9},
            f"{names.HALF_TOPIC}@{GROUP}": {0: 9},
        },
        None,
    )
    prepare_cut(broker, end)
    assert {key: queues[0] for key, queues in offsets.by_place()} == {
        "orders@ahead": 1,
        "orders@within": 1,
        "elsewhere@far": 9,
        f"{names.HALF_TOPIC}@{GROUP}": 9,
    }
    assert not offsets.unsaved, "nothing tells of the cut after a crash"


async def test_the_tables_of_a_new_master_are_newer_than_those_of_the_one_before(
    broker: Broker,
) -> None:
    topics, groups = broker.tables.topics, broker.tables.groups
    before = (topics.version, groups.version)
    await take_lead(broker, 5)
    for version, former in zip((topics.version, groups.version), before, strict=True):
        assert version.state_version == 5
        assert version.order > former.order
    await take_lead(broker, 0)
    assert broker.tables.topics.version.state_version == 5


async def test_a_new_master_asks_about_half_messages_of_the_one_before(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(
        message(sys_flag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01pg\x02"), peer
    )
    assert broker.log.store.bounds(names.HALF_TOPIC, 0) == (0, 1)
    broker.tables.offsets.copy({f"{names.HALF_TOPIC}@{GROUP}": {0: 0}}, None)
    await take_lead(broker, 0)
    broker.delivery.transactions.step()
    assert broker.tables.offsets.get(GROUP, names.HALF_TOPIC, 0) == 0, "it has no end yet"


async def test_the_copier_does_nothing_at_a_master(broker: Broker) -> None:
    async with ChannelPool() as pool:
        copy = MetadataCopy(broker, pool)
        assert copy.interval_ms() == 1_000
        await copy.step()
        broker.replication.role.change(ALONE)
        assert copy.interval_ms() == 50
        await copy.step()


async def test_a_start_takes_back_progress_of_a_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(
        host="127.0.0.1", port=0, store_dir=tmp_path, log_file_size=1 << 20,
        queue_file_entries=1_000, index_slots=100, index_entries=1_000,
    )  # fmt: skip
    async with BrokerServer(config) as server:
        server.broker.tables.offsets.copy({"orders@g": {0: 7}}, None)
    async with BrokerServer(config) as server:
        assert server.broker.tables.offsets.get("g", "orders", 0) == 0
    assert "further than 1 queues reach" in caplog.text


def op_messages(broker: Broker, count: int) -> None:
    """Store ends of the first half message, each in a message of its own."""
    for _ in range(count):
        draft = Draft(
            names.OP_HALF_TOPIC, 0, b"0,", OP_PROPERTIES, OP_CODE,
            store_host=broker.log.ingest.store_host,
        )  # fmt: skip
        broker.log.store.append(draft, broker.control.clock.now_ms())


async def test_others_have_their_turn_while_a_new_master_reads_what_was_noted(
    broker: Broker,
) -> None:
    op_messages(broker, 300)
    turns, leading = 0, asyncio.create_task(take_lead(broker, 0))
    while not leading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5


async def test_others_have_their_turn_while_progress_in_many_queues_is_lowered(
    broker: Broker,
) -> None:
    broker.tables.offsets.copy({f"t{n}@g": dict.fromkeys(range(20), 7) for n in range(20)}, None)
    turns, leading = 0, asyncio.create_task(take_lead(broker, 0))
    while not leading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 400 / 32
    assert broker.tables.offsets.get("g", "t19", 19) == 0


async def test_a_role_that_is_taken_back_ends_the_lowering_of_progress(broker: Broker) -> None:
    broker.tables.offsets.copy({f"t{n}@g": dict.fromkeys(range(20), 7) for n in range(20)}, None)
    leading = asyncio.create_task(take_lead(broker, 9))
    await asyncio.sleep(0)
    broker.replication.role.change(ALONE)
    await leading
    assert broker.tables.offsets.get("g", "t19", 19) == 7, "a master's progress may be ahead"
    assert broker.tables.topics.version.state_version == 0


async def test_a_role_that_is_taken_back_leaves_the_reading_to_the_next_time(
    broker: Broker,
) -> None:
    op_messages(broker, 300)
    leading = asyncio.create_task(take_lead(broker, 0))
    await asyncio.sleep(0)
    broker.replication.role.change(ALONE)
    await leading
    progress = broker.tables.offsets.get(GROUP, names.OP_HALF_TOPIC, 0)
    broker.delivery.transactions.step()
    assert broker.tables.offsets.get(GROUP, names.OP_HALF_TOPIC, 0) == progress, (
        "ends that were not read yet are not passed over"
    )
