import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend, config_of
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.role import Role
from roquet.broker.startup import DISPATCH_COUNT, hand_over, take_over
from roquet.model import names
from roquet.model.errors import CallRefused, StoreError
from roquet.model.topic import TopicConfig
from roquet.net.channel import Channel
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Draft
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.codes import ResponseCode


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


REPLICA: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}


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
async def test_requests_wait_for_the_last_of_several_changes_of_the_role(
    message: MakeSend,
) -> None:
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
