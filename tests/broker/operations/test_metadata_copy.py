import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, MakeSend
from tests.broker.replication.fake_master import FakeMaster

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.metadata_copy import RETRY_MS, WHOLE_MS
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.role import Role
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.model.topic import DataVersion, GroupTable, SubscriptionGroup, TopicConfig
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.timer.layout import TimerCheckpoint
from roquet.testing.clock import this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.admin.inspection import AllOffsets, AllOffsetsReply, GetAllOffsets
from roquet.wire.calls.admin.stats import GetHaStatus, HaStatus
from roquet.wire.calls.admin.topic import GetTopics, TopicsReply
from roquet.wire.calls.bodies import RequestMode
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time

NAME = "roquet.broker.operations.metadata_copy"


@asynccontextmanager
async def started(port: int, **settings: Any) -> AsyncIterator[Broker]:
    """A broker that is a master until it is told otherwise."""
    config = BrokerConfig(host="127.0.0.1", port=port, **settings)
    async with BrokerServer(config, this_loop().clock) as server:
        yield server.broker


def follow(replica: Broker, master: str, broker_id: int = 1, stream: int | None = 1) -> None:
    """Make a broker a replica of another, and its log a part of the other's by a test's word."""
    role = Role(role=BrokerRole.SLAVE, broker_id=broker_id, master=master)
    replica.replication.role.change(role)
    stream_is(replica, stream)


def stream_is(replica: Broker, number: int | None) -> None:
    """Say the number of the stream's conversation with the master."""
    replica.replication.stream_client.following = number


@asynccontextmanager
async def pair(**settings: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master and its replica, after the first copy."""
    async with started(10_911, **settings) as master, started(20_911) as replica:
        follow(replica, "127.0.0.1:10911")
        await asyncio.sleep(3)
        yield master, replica


@asynccontextmanager
async def fake_pair() -> AsyncIterator[tuple[FakeMaster, Broker]]:
    """A replica of a master that reports no changes, before the first copy."""
    master = FakeMaster(this_loop().clock)
    async with master.server, started(20_911) as replica:
        master.has_topics(*(topic.topic_name for topic in replica.tables.topics))
        follow(replica, master.address)
        yield master, replica


def store_at(master: Broker, message: MakeSend, peer: FakePeer, **fields: Any) -> None:
    """Store a message at the master."""
    master.bind(SendHandler.send)(message(**fields), peer)


def stream_one(master: Broker, replica: Broker) -> None:
    """Copy the record that follows the replica's log."""
    source, copy = master.log.store.raw, replica.log.store.raw
    size = int.from_bytes(source.read(copy.end, 4), "big")
    copy.append(copy.end, source.read(copy.end, size))
    copy.dispatch()


def has_topic(broker: Broker, topic: str) -> bool:
    return broker.tables.topics.get(topic) is not None


def now_ms() -> int:
    return this_loop().clock.now_ms()


async def test_topics_and_groups_are_at_the_replica_a_tenth_of_a_second_after_the_master() -> None:
    async with pair() as (master, replica):
        master.tables.topics.put(TopicConfig(topic_name="orders", write_queue_nums=3), now_ms())
        master.tables.groups.put(SubscriptionGroup(group_name="g", retry_max_times=3), now_ms())
        master.tables.request_modes.put(RequestMode(topic="orders", consumer_group="g", mode="POP"))
        await asyncio.sleep(0.15)
        assert replica.tables.topics.get("orders") == master.tables.topics.get("orders")
        assert replica.tables.topics.ids["orders"] == master.tables.topics.ids["orders"]
        assert replica.tables.topics.version == master.tables.topics.version
        assert replica.tables.groups.get("g") == master.tables.groups.get("g")
        assert replica.tables.groups.version == master.tables.groups.version
        assert replica.tables.request_modes.get("orders", "g") is not None
        await master.tables.groups.change(lambda: master.tables.groups.begin_remove("g", 0))
        await asyncio.sleep(0.15)
        assert replica.tables.groups.get("g") is None


async def test_progress_is_copied_once_the_own_log_holds_what_the_master_had(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        stream_one(master, replica)
        master.tables.offsets.commit("g", "orders", 0, 1)
        await asyncio.sleep(0.2)
        assert replica.tables.offsets.get("g", "orders", 0) == 1
        store_at(master, message, peer)
        master.tables.offsets.commit("g", "orders", 0, 2)
        await asyncio.sleep(5)
        assert replica.tables.offsets.get("g", "orders", 0) == 1
        stream_one(master, replica)
        await asyncio.sleep(0.2)
        assert replica.tables.offsets.get("g", "orders", 0) == 2


async def test_no_progress_is_taken_from_a_master_of_another_past() -> None:
    """What its positions say is of another log: a promotion would skip messages for ever."""
    async with fake_pair() as (master, replica):
        await asyncio.sleep(3)
        stream_is(replica, None)
        await asyncio.sleep(3)
        before = replica.delivery.timer.context.timers.replayed
        master.offsets = AllOffsets(offset_table={"orders@g": {0: 4}})
        master.delay_offsets = DelayOffsetTable(offset_table={2: 3})
        master.timer = TimerCheckpoint(read_ms=now_ms() // 1_000 * 1_000, master_offset=0)
        await asyncio.sleep(2 * WHOLE_MS / 1000)
        assert replica.tables.offsets.get("g", "orders", 0) is None
        assert replica.tables.delay_offsets.get(2) == 0
        assert replica.delivery.timer.context.timers.replayed == before
        stream_is(replica, 2)
        await asyncio.sleep(0.2)
        assert replica.tables.offsets.get("g", "orders", 0) == 4
        assert replica.tables.delay_offsets.get(2) == 3
        assert replica.delivery.timer.context.timers.replayed != before


async def test_progress_of_a_new_master_waits_until_the_own_log_is_cut(
    message: MakeSend, peer: FakePeer
) -> None:
    async with started(10_911) as master, started(20_911) as replica:
        for _ in range(2):
            store_at(master, message, peer)
            store_at(replica, message, peer)
        store_at(replica, message, peer)
        follow(replica, "127.0.0.1:10911", stream=None)
        master.tables.offsets.commit("g", "orders", 0, 2)
        await asyncio.sleep(3)
        raw = replica.log.store.raw
        raw.truncate(raw.end // 3)
        assert replica.tables.offsets.get("g", "orders", 0) is None
        stream_is(replica, 1)
        await asyncio.sleep(3)
        assert replica.tables.offsets.get("g", "orders", 0) is None
        stream_one(master, replica)
        await asyncio.sleep(0.2)
        assert replica.tables.offsets.get("g", "orders", 0) == 2


async def test_an_answer_that_waits_is_dropped_with_the_stream_it_was_asked_for(
    message: MakeSend, peer: FakePeer
) -> None:
    """The master may have lost the end of its log since then."""
    async with fake_pair() as (master, replica), started(10_911) as later:
        master.offsets = AllOffsets(offset_table={"orders@g": {0: 4}})
        master.delay_offsets = DelayOffsetTable(offset_table={2: 3})
        master.log_end = 1
        await asyncio.sleep(3)
        master.offsets, master.delay_offsets = AllOffsets(), DelayOffsetTable()
        stream_is(replica, 2)
        store_at(later, message, peer)
        stream_one(later, replica)
        await asyncio.sleep(3)
        assert replica.tables.offsets.get("g", "orders", 0) is None
        assert replica.tables.delay_offsets.get(2) == 0


async def test_changes_without_a_stream_are_made_up_for_by_the_next_one() -> None:
    async with pair() as (master, replica):
        for group in ("gone", "moved", "same"):
            master.tables.offsets.commit(group, "orders", 0, 5)
        await asyncio.sleep(0.2)
        stream_is(replica, None)
        await asyncio.sleep(0.2)
        master.tables.offsets.remove_group("gone")
        master.tables.offsets.commit("moved", "orders", 0, 6)
        master.tables.topics.put(TopicConfig(topic_name="new"), now_ms())
        await asyncio.sleep(1)
        offsets = replica.tables.offsets
        groups = ("gone", "moved", "same")
        assert [offsets.get(group, "orders", 0) for group in groups] == [5, 5, 5]
        assert has_topic(replica, "new"), "a topic is known here at once all the same"
        stream_is(replica, 2)
        await asyncio.sleep(0.4)
        assert [offsets.get(group, "orders", 0) for group in groups] == [None, 6, 5]


async def test_a_replica_that_is_always_behind_gets_the_progress_of_a_while_ago(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        for number in range(1, 41):
            store_at(master, message, peer)
            master.tables.offsets.commit("g", "orders", 0, number)
            await asyncio.sleep(0.1)
            stream_one(master, replica)
        copied = replica.tables.offsets.get("g", "orders", 0)
        assert copied is not None
        assert 10 < copied < 40
        stream_one(master, replica)
        await asyncio.sleep(0.2)
        assert replica.tables.offsets.get("g", "orders", 0) == 40


async def test_progress_that_was_removed_or_moved_back_is_so_at_the_replica() -> None:
    async with pair() as (master, replica):
        for group in ("gone", "back"):
            master.tables.offsets.commit(group, "orders", 0, 5)
        await asyncio.sleep(0.2)
        master.tables.offsets.remove_group("gone")
        master.tables.offsets.commit("back", "orders", 0, 2)
        await asyncio.sleep(0.2)
        found = [replica.tables.offsets.get(group, "orders", 0) for group in ("gone", "back")]
        assert found == [None, 2]


async def test_a_topic_made_anew_at_the_master_is_another_topic_at_the_replica(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        stream_one(master, replica)
        master.tables.offsets.commit("g", "orders", 0, 1)
        await asyncio.sleep(0.2)
        before = master.tables.topics.ids["orders"]
        assert replica.tables.topics.ids["orders"] == before
        master.make(TopicDeletion).delete(["orders"])
        this_loop().clock.jump(1)
        master.tables.topics.put(TopicConfig(topic_name="orders"), now_ms())
        await asyncio.sleep(0.3)
        assert replica.log.store.bounds("orders", 0) == (0, 0)
        assert replica.tables.offsets.get("g", "orders", 0) is None
        assert replica.tables.topics.ids["orders"] == master.tables.topics.ids["orders"] != before
        assert replica.log.store.deleted_topics == master.log.store.deleted_topics


async def test_a_topic_that_the_master_deleted_is_deleted(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        stream_one(master, replica)
        master.tables.topics.put(TopicConfig(topic_name="empty"), now_ms())
        await asyncio.sleep(0.2)
        assert has_topic(replica, "empty")
        topics = ["orders", "empty"]
        master.make(TopicDeletion).delete(topics)
        await asyncio.sleep(0.2)
        assert [has_topic(replica, topic) for topic in topics] == [False, False]
        assert replica.log.store.topics() == []


async def test_no_messages_are_deleted_by_a_master_of_another_past(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        stream_one(master, replica)
        master.tables.topics.put(TopicConfig(topic_name="empty"), now_ms())
        await asyncio.sleep(0.2)
        stream_is(replica, None)
        topics = ["orders", "empty"]
        master.make(TopicDeletion).delete(topics)
        await asyncio.sleep(10)
        assert [has_topic(replica, topic) for topic in topics] == [True, False]
        assert replica.log.store.bounds("orders", 0) == (0, 1)
        stream_is(replica, 2)
        await asyncio.sleep(0.4)
        assert [has_topic(replica, topic) for topic in topics] == [False, False]
        assert replica.log.store.bounds("orders", 0) == (0, 0)


async def test_progress_in_a_deleted_topic_that_waits_for_the_log_goes_with_the_topic(
    message: MakeSend, peer: FakePeer
) -> None:
    async with fake_pair() as (master, replica), started(10_911) as former:
        own = [topic.topic_name for topic in replica.tables.topics]
        master.has_topics(*own, "orders", "others", counter=5)
        master.offsets = AllOffsets(offset_table={"orders@g": {0: 4}, "others@g": {0: 1}})
        await asyncio.sleep(0.2)
        store_at(former, message, peer)
        master.log_end = former.log.store.end_position
        await asyncio.sleep(WHOLE_MS / 1000)
        master.has_topics(*own, "others", counter=6)
        master.offsets = AllOffsets()
        await asyncio.sleep(WHOLE_MS / 1000)
        assert not has_topic(replica, "orders")
        stream_one(former, replica)
        await asyncio.sleep(0.2)
        assert replica.tables.offsets.get("g", "others", 0) == 1
        assert replica.tables.offsets.get("g", "orders", 0) is None


async def test_a_master_that_lost_its_topics_does_not_take_the_replicas_messages(
    message: MakeSend, peer: FakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        stream_one(master, replica)
        await asyncio.sleep(0.2)
        with caplog.at_level(logging.ERROR, NAME):
            master.tables.topics.remove("orders", now_ms())
            await asyncio.sleep(0.2)
            master.tables.topics.put(TopicConfig(topic_name="other"), now_ms())
            await asyncio.sleep(0.2)
        assert has_topic(replica, "orders")
        assert has_topic(replica, "other")
        assert replica.log.store.bounds("orders", 0) == (0, 1)
        assert len(caplog.records) == 1
        assert "1 topics of which there are messages here, as orders" in caplog.text


async def test_delivery_progress_of_delays_and_timers_is_copied(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer, properties="DELAY\x011\x02")
        store_at(master, message, peer, properties="TIMER_DELAY_SEC\x011\x02")
        await asyncio.sleep(5)
        assert master.tables.delay_offsets.get(1) == 1
        assert replica.tables.delay_offsets.get(1) == 0
        while replica.log.store.end_position < master.log.store.end_position:
            stream_one(master, replica)
        await asyncio.sleep(2)
        assert replica.tables.delay_offsets.get(1) == 1
        followed = replica.delivery.timer.checkpoint.read_ms
        assert 0 <= master.delivery.timer.checkpoint.read_ms - followed <= 2_000


async def test_progress_of_a_master_that_leads_no_more_is_not_applied() -> None:
    """It may rest on messages at the end of its log, which others do not have."""
    async with fake_pair() as (master, replica):
        await asyncio.sleep(3)
        master.delay_offsets = DelayOffsetTable(offset_table={2: 3})
        master.answers[GetHaStatus] = lambda _: Reply(body=codec.dumps(HaStatus()))
        await asyncio.sleep(10)
        assert replica.tables.delay_offsets.get(2) == 0
        del master.answers[GetHaStatus]
        await asyncio.sleep(10)
        assert replica.tables.delay_offsets.get(2) == 3


async def test_a_replica_that_became_the_master_applies_no_answer_any_more(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        master.tables.offsets.commit("g", "orders", 0, 1)
        await asyncio.sleep(0.2)
        replica.replication.role.change(Role())
        stream_one(master, replica)
        master.tables.topics.put(TopicConfig(topic_name="late"), now_ms())
        await asyncio.sleep(10)
        assert replica.tables.offsets.get("g", "orders", 0) is None
        assert not has_topic(replica, "late")


async def test_a_master_that_came_back_is_copied_from_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with started(20_911) as replica:
        async with started(10_911) as master:
            follow(replica, "127.0.0.1:10911")
            await asyncio.sleep(3)
        with caplog.at_level(logging.WARNING, NAME):
            await asyncio.sleep(30)
        assert len(caplog.records) <= 8, "each item complains once"
        async with started(10_911) as master:
            master.tables.topics.put(TopicConfig(topic_name="new"), now_ms())
            await asyncio.sleep(2 * RETRY_MS / 1000)
            assert has_topic(replica, "new")
            master.tables.topics.put(TopicConfig(topic_name="newer"), now_ms())
            await asyncio.sleep(0.2)
            assert has_topic(replica, "newer")


@pytest.mark.parametrize(
    ("settings", "broker_id", "reason"),
    [
        ({"cluster_name": "other"}, 1, "the master is broker broker-a of cluster other"),
        ({"broker_name": "b"}, 1, "the master is broker b of cluster DefaultCluster"),
        ({}, 0, "the master is this broker itself"),
    ],
)
async def test_a_broker_that_is_not_its_master_is_not_copied(
    settings: dict[str, Any], broker_id: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(10_911, **settings) as master, started(20_911) as replica:
        master.tables.topics.put(TopicConfig(topic_name="foreign"), now_ms())
        with caplog.at_level(logging.WARNING, NAME):
            follow(replica, "127.0.0.1:10911", broker_id)
            await asyncio.sleep(20)
        assert not has_topic(replica, "foreign")
        assert len(caplog.records) == 1
        assert reason in caplog.text


async def test_another_master_is_asked_at_intervals() -> None:
    async with fake_pair() as (master, replica):
        await asyncio.sleep(3)
        own = [topic.topic_name for topic in replica.tables.topics]
        master.has_topics(*own, "orders", counter=2)
        master.groups = GroupTable(
            subscription_group_table={"g": SubscriptionGroup(group_name="g")},
            data_version=DataVersion(counter=9),
        )
        master.offsets = AllOffsets(offset_table={"orders@g": {0: 4, 1: -1}, "orders": {0: 1}})
        await asyncio.sleep(WHOLE_MS / 1000)
        assert has_topic(replica, "orders")
        assert replica.tables.topics.ids["orders"].startswith("adopted-")
        assert replica.tables.groups.get("g") is not None
        assert replica.tables.offsets.queues("g", "orders") == {0: 4}
        await asyncio.sleep(60)
        assert master.count(GetAllOffsets) <= 9


async def test_another_masters_progress_waits_for_the_log_as_well() -> None:
    async with fake_pair() as (master, replica):
        master.offsets = AllOffsets(offset_table={"orders@g": {0: 4}})
        master.log_end = 1
        await asyncio.sleep(20)
        assert replica.tables.offsets.get("g", "orders", 0) is None


async def test_a_topic_that_another_master_lacks_is_deleted_unless_its_table_went_back(
    message: MakeSend, peer: FakePeer
) -> None:
    async with fake_pair() as (master, replica), started(10_911) as former:
        own = [topic.topic_name for topic in replica.tables.topics]
        master.has_topics(*own, "orders", counter=5)
        await asyncio.sleep(3)
        store_at(former, message, peer)
        stream_one(former, replica)
        master.log_end = replica.log.store.end_position
        master.has_topics(*own, counter=3)
        await asyncio.sleep(WHOLE_MS / 1000)
        assert has_topic(replica, "orders")
        assert replica.log.store.bounds("orders", 0) == (0, 1)
        await asyncio.sleep(WHOLE_MS / 1000)
        assert replica.log.store.bounds("orders", 0) == (0, 1), "nor with the next copy"
        master.has_topics(*own, counter=6)
        await asyncio.sleep(WHOLE_MS / 1000)
        assert not has_topic(replica, "orders")
        assert replica.log.store.bounds("orders", 0) == (0, 0)


async def test_a_master_that_was_started_again_without_its_tables_deletes_nothing(
    message: MakeSend, peer: FakePeer
) -> None:
    async with fake_pair() as (master, replica), started(10_911) as former:
        own = [topic.topic_name for topic in replica.tables.topics]
        master.has_topics(*own, "orders", counter=5)
        await asyncio.sleep(3)
        store_at(former, message, peer)
        stream_one(former, replica)
        role = replica.replication.role
        role.change(msgspec.structs.replace(role.current, master=None))
        await asyncio.sleep(3)
        master.log_end = replica.log.store.end_position
        master.has_topics(*own, counter=1)
        follow(replica, master.address)
        await asyncio.sleep(2 * WHOLE_MS / 1000)
        assert has_topic(replica, "orders")
        assert replica.log.store.bounds("orders", 0) == (0, 1)


async def test_an_item_that_fails_is_logged_once_and_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fake_pair() as (master, replica):
        master.answers[GetTopics] = lambda _: TopicsReply(body=b'{"topicConfigTable":[1]}')
        master.offsets = AllOffsets(offset_table={"orders@g": {0: 4}})
        own = len(list(replica.tables.topics))
        with caplog.at_level(logging.WARNING, NAME):
            await asyncio.sleep(30)
        assert len(list(replica.tables.topics)) == own
        assert replica.tables.offsets.get("g", "orders", 0) == 4
        assert len(caplog.records) == 1
        assert "no copy of the topics of 127.0.0.1:20000" in caplog.text
        del master.answers[GetTopics]
        await asyncio.sleep(WHOLE_MS / 1000)
        master.answers[GetTopics] = lambda _: TopicsReply(body=b"?")
        with caplog.at_level(logging.WARNING, NAME):
            await asyncio.sleep(2 * WHOLE_MS / 1000)
        assert len(caplog.records) == 2


async def test_groups_of_a_table_that_went_back_are_added_and_none_is_removed() -> None:
    async with fake_pair() as (master, replica):
        for names, counter in ((("a",), 5), (("b",), 4)):
            table = {name: SubscriptionGroup(group_name=name) for name in names}
            master.groups = GroupTable(
                subscription_group_table=table, data_version=DataVersion(counter=counter)
            )
            await asyncio.sleep(WHOLE_MS / 1000 + 1)
        assert replica.tables.groups.get("a") is not None
        assert replica.tables.groups.get("b") is not None
        assert replica.tables.groups.version.counter == 5


async def test_a_timer_of_another_master_is_followed() -> None:
    async with fake_pair() as (master, replica):
        at = now_ms() // 1_000 * 1_000 - 5_000
        master.timer = TimerCheckpoint(read_ms=at, master_offset=0)
        await asyncio.sleep(2)
        assert replica.delivery.timer.context.timers.replayed == (0, at)


async def test_changes_that_wait_for_the_log_are_joined_and_lose_nothing(
    message: MakeSend, peer: FakePeer
) -> None:
    async with pair() as (master, replica):
        store_at(master, message, peer)
        for number in range(40):
            master.tables.offsets.commit(f"g{number}", "orders", 0, 1)
            await asyncio.sleep(0.1)
        assert replica.tables.offsets.groups_of("orders") == []
        stream_one(master, replica)
        await asyncio.sleep(0.2)
        assert len(replica.tables.offsets.groups_of("orders")) == 40


async def test_a_reply_with_our_fields_that_make_no_sense_counts_as_one_without() -> None:
    async with fake_pair() as (master, replica):
        body = codec.dumps(AllOffsets(offset_table={"orders@g": {0: 4}}))
        master.answers[GetAllOffsets] = lambda _: AllOffsetsReply(
            editions="-1", log_end=-5, body=body
        )
        await asyncio.sleep(5)
        assert replica.tables.offsets.get("g", "orders", 0) == 4
