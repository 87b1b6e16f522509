import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.role import Role
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.startup import DISPATCH_COUNT, hand_over, take_over
from roquet.model import names
from roquet.model.errors import CallRefused, StoreError
from roquet.model.topic import TopicConfig
from roquet.net.channel import Channel
from roquet.observe.log_levels import apply_log_levels
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Draft
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.codes import ResponseCode


def config_of(directory: Path | None = None, **settings: Any) -> BrokerConfig:
    small = {"log_file_size": 1 << 20, "queue_file_entries": 1000, "index_slots": 100}
    arguments = {"host": "127.0.0.1", "port": 0, "index_entries": 1000, **small, **settings}
    return BrokerConfig(store_dir=directory, **arguments)


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


async def test_how_many_requests_may_wait_changes_while_the_broker_runs() -> None:
    async with BrokerServer(config_of()) as server:
        broker = server.broker
        broker.control.settings.change({"sendThreadPoolQueueCapacity": "77"}, 0)
        assert broker.control.admission.gates["send"].limits.count == 77


@in_virtual_time
async def test_whether_topics_come_by_themselves_changes_for_messages_that_wait(
    message: MakeSend, peer: FakePeer
) -> None:
    async with BrokerServer(config_of(), this_loop().clock) as server:
        broker = server.broker
        later = {"a": "DELAY\x011\x02", "b": "TIMER_DELAY_MS\x012000\x02"}
        for topic, properties in later.items():
            broker.bind(SendHandler.send)(message(topic=topic, properties=properties), peer)
        broker.make(TopicDeletion).delete(["a", "b"])
        broker.control.settings.change({"autoCreateTopicEnable": "false"}, 0)
        await asyncio.sleep(4)
        assert [broker.log.store.bounds(topic, 0) for topic in later] == [(0, 1), (0, 1)]
        assert [broker.tables.topics.get(topic) for topic in later] == [None, None]


async def test_no_retention_is_too_short_for_what_waits(
    tmp_path: Path, peer: FakePeer, message: MakeSend, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        broker = server.broker
        broker.control.settings.change({"fileReservedTime": "1"}, 0)
        assert "messages may wait 7200000 ms at a delay level" in caplog.text
        broker.control.settings.change({"fileReservedTime": "72"}, 0)
        broker.bind(SendHandler.send)(message(properties="TIMER_DELAY_SEC\x0186400\x02"), peer)
        async with asyncio.timeout(5):
            while broker.delivery.timer.checkpoint.offset < 1:  # noqa: ASYNC110 - it calls nobody back
                await asyncio.sleep(0.01)
        with pytest.raises(CallRefused, match="messages wait for their delivery time"):
            broker.control.settings.change({"fileReservedTime": "24"}, 0)
        assert broker.control.settings.config.retention == 72 * 3_600_000
        broker.control.settings.change({"fileReservedTime": "48"}, 0)
    caplog.clear()
    async with BrokerServer(config_of(tmp_path, retention=3_600_000)):
        assert "messages wait for their delivery time for longer" in caplog.text


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


async def test_a_replica_follows_the_address_that_the_settings_name(tmp_path: Path) -> None:
    async with BrokerServer(config_of(**REPLICA, ha_master="127.0.0.1:9")) as server:
        role = server.broker.replication.role
        assert role.current.master_stream == "127.0.0.1:9"
        server.broker.control.settings.change({"haMasterAddress": "127.0.0.1:8"}, 0)
        assert role.current.master_stream == "127.0.0.1:8"
        server.broker.control.settings.change({"haMasterAddress": ""}, 0)
        assert role.current.master_stream == "127.0.0.1:8", "until a name server says another one"


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


async def test_log_levels_follow_the_settings_while_the_broker_runs(tmp_path: Path) -> None:
    net = logging.getLogger("roquet.net")
    try:
        async with BrokerServer(config_of(tmp_path, log_levels="roquet.net:ERROR")) as server:
            assert net.level == logging.ERROR
            server.broker.control.settings.change({"log_levels": "roquet.net:DEBUG"}, 1)
            assert net.level == logging.DEBUG
            server.broker.control.settings.change({"log_levels": ""}, 2)
            assert net.level == logging.NOTSET
    finally:
        apply_log_levels("")
