"""PullConsumer: you hold the offsets."""

import asyncio
import zlib
from typing import Any

import pytest
from tests.client.conftest import Created, config_of, fake_cluster

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.pull import PullConsumer
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.model.errors import CallRefused, ConnectFailed, RecordError, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.results import PullStatus
from roquet.model.subscription import ConsumeType
from roquet.net.router import Peer
from roquet.testing.clock import this_loop
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.records.record import encode_properties

QUEUE = MessageQueue("t", "a", 0)
OTHER = MessageQueue("t", "a", 1)


def consumer_of(address: str, **settings: Any) -> PullConsumer:
    return PullConsumer(address, group="audit", config=config_of(ConsumerConfig, **settings))


async def test_a_pull_gives_messages_and_where_to_go_on() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.put("t", 0, b"x", b"y", b"z")
        assert await consumer.queues("t") == [QUEUE, OTHER]
        result = await consumer.pull(QUEUE, 0, 2)
        assert result.status is PullStatus.FOUND
        assert [m.body for m in result.messages] == [b"x", b"y"]
        assert {m.broker_name for m in result.messages} == {"a"}
        assert (result.next_offset, result.min_offset, result.max_offset) == (2, 0, 3)


async def test_a_pull_ends_where_its_bodies_decompress_to_too_much() -> None:
    bomb = zlib.compress(bytes(20 * 1024 * 1024))
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        for _ in range(5):
            cluster.a.store("t", 0, bomb, b"", 1)
        offsets: list[int] = []
        while (result := await consumer.pull(QUEUE, sum(offsets))).messages:
            assert {len(message.body) for message in result.messages} == {20 * 1024 * 1024}
            offsets.append(len(result.messages))
            assert result.next_offset == sum(offsets)
        assert offsets == [2, 2, 1]


async def test_a_body_that_cannot_be_restored_is_named_by_its_offset() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        for body, sys_flag in ((b"x", 0), (b"not zlib", 1), (b"z", 0)):
            cluster.a.store("t", 0, body, b"", sys_flag)
        with pytest.raises(RecordError, match="t@a:0 offset 1: body is not zlib"):
            await consumer.pull(QUEUE, 0)
        assert [m.body for m in (await consumer.pull(QUEUE, 2)).messages] == [b"z"]


async def test_a_pull_of_an_unknown_queue_asks_where_it_is() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster.address) as consumer:
        assert (await consumer.pull(QUEUE, 0)).status is PullStatus.NO_NEW
        with pytest.raises(ConnectFailed, match="broker zz"):
            await consumer.pull(MessageQueue("t", "zz", 0), 0)


async def test_a_pull_may_wait_for_something_new() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        assert (await consumer.pull(QUEUE, 0, wait_ms=2_000)).status is PullStatus.NO_NEW
        assert this_loop().clock.monotonic_ms() == 2_000
        pulling = asyncio.create_task(consumer.pull(QUEUE, 0, wait_ms=9_000))
        await asyncio.sleep(3)
        cluster.a.put("t", 0, b"x")
        assert (await pulling).messages[0].body == b"x"
        assert this_loop().clock.monotonic_ms() == 5_000


async def test_an_expired_offset_is_reported() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.begins["t", 0] = 10
        cluster.a.put("t", 0, b"x")
        result = await consumer.pull(QUEUE, 3)
        assert (result.status, result.next_offset) == (PullStatus.OFFSET_ILLEGAL, 10)


async def test_only_wanted_tags_are_given() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        for tag in ("Aa", "BB"):
            properties = encode_properties({"TAGS": tag})
            cluster.a.put("t", 0, tag.encode(), properties=properties)
        result = await consumer.pull(QUEUE, 0, tags="BB")
        assert [m.body for m in result.messages] == [b"BB"]
        assert result.next_offset == 2


async def test_bounds_times_and_progress_of_a_queue() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.begins["t", 0] = 10
        cluster.a.put("t", 0, b"x")
        assert await consumer.min_offset(QUEUE) == 10
        assert await consumer.max_offset(QUEUE) == 11
        assert await consumer.offset_by_time(QUEUE, 1_003) == 3
        assert await consumer.committed(QUEUE) is None
        await consumer.commit(QUEUE, 11)
        assert await consumer.committed(QUEUE) == 11


async def test_a_pull_at_an_offset_of_a_deleted_topic_is_refused_until_it_is_asked_anew() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.put("t", 0, b"x", b"y")
        cluster.a.topic_ids["t"] = "1-1"
        offset = await consumer.min_offset(QUEUE) + 1
        assert (await consumer.pull(QUEUE, offset)).status is PullStatus.FOUND
        cluster.a.topic_ids["t"] = "2-2"
        with pytest.raises(CallRefused):
            await consumer.pull(QUEUE, offset)
        await consumer.commit(QUEUE, offset)
        assert cluster.a.commits[-1].topic_id == "1-1", "the broker refuses it, too"
        assert (await consumer.pull(QUEUE, await consumer.min_offset(QUEUE))).messages


async def test_assigned_queues_are_read_from_the_progress_on() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.put("t", 0, b"x", b"y", b"z")
        cluster.a.put("t", 1, b"q")
        cluster.a.committed["audit", "t", 0] = 1
        cluster.a.committed["audit", "t", 1] = 0
        await consumer.assign([QUEUE, OTHER])
        assert consumer.assignment() == [QUEUE, OTHER]
        assert sorted(m.body for m in await consumer.fetch(3)) == [b"q", b"y", b"z"]


async def test_offsets_are_committed_only_on_commit() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.put("t", 0, b"x", b"y")
        cluster.a.committed["audit", "t", 0] = 0
        await consumer.assign([QUEUE])
        first, _ = await consumer.fetch(2)
        await first.ack()
        await asyncio.sleep(60)
        assert cluster.a.committed["audit", "t", 0] == 0
        await consumer.commit()
        assert cluster.a.committed["audit", "t", 0] == 1


async def test_a_seek_goes_anywhere() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.put("t", 0, *[b"%d" % n for n in range(9)])
        await consumer.assign([QUEUE])
        for offset in (7, 2, 8):
            consumer.seek(QUEUE, offset)
            (message,) = await consumer.fetch(1)
            assert message.queue_offset == offset


async def test_another_assignment_takes_the_place_of_the_first() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster.address) as consumer:
        await consumer.assign([QUEUE])
        await consumer.assign([OTHER])
        assert consumer.assignment() == [OTHER]
        with pytest.raises(UsageError, match="t@a:0 is not assigned"):
            consumer.seek(QUEUE, 0)
        with pytest.raises(UsageError, match="t@a:0 is not assigned"):
            await consumer.commit(QUEUE)


async def test_brokers_know_its_subscriptions() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        await consumer.assign([QUEUE])
        await asyncio.sleep(2)
        (data,) = cluster.a.heartbeats[-1].consumer_data_set
        assert (data.group_name, data.consume_type) == ("audit", ConsumeType.CONSUME_ACTIVELY)
        assert [s.topic for s in data.subscription_data_set] == ["t"]


async def test_a_topic_that_was_just_made_is_waited_for() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        asking = asyncio.create_task(consumer.queues("new"))
        await asyncio.sleep(0.3)
        cluster.topics["new"] = {"a": 1}
        assert await asking == [MessageQueue("new", "a", 0)]


async def test_an_unknown_topic_has_no_queues() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        assert await consumer.queues("other") == []
        assert this_loop().clock.monotonic_ms() == 1_000
        with pytest.raises(UsageError, match="topic name"):
            await consumer.queues("a b")


async def test_a_poll_returns_waiting_messages_and_settles_the_last_poll(created: Created) -> None:
    assigned = created(AssignedQueues)
    async with fake_cluster(t={"a": 1}) as cluster, consumer_of(cluster.address) as consumer:
        cluster.a.committed["audit", "t", 0] = 0
        await consumer.assign([QUEUE])
        assert await consumer.poll(timeout_ms=500) == []
        cluster.a.put("t", 0, *[b"%d" % n for n in range(12)])
        assert [m.body for m in await consumer.poll()] == [b"%d" % n for n in range(10)]
        assert assigned[0].reader(QUEUE).window.committable == 0
        last = await consumer.poll()
        assert [m.body for m in last] == [b"10", b"11"]
        assert assigned[0].reader(QUEUE).window.committable == 10
        await consumer.commit()
        assert cluster.a.committed["audit", "t", 0] == 12


async def test_auto_commit_saves_offsets_periodically() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        async with consumer_of(cluster.address, auto_commit=True) as consumer:
            cluster.a.committed["audit", "t", 0] = 0
            cluster.a.put("t", 0, b"x", b"y")
            await consumer.assign([QUEUE])
            await consumer.poll(1)
            await consumer.poll(1)
            await asyncio.sleep(21)
            assert cluster.a.committed["audit", "t", 0] == 1
        assert cluster.a.committed["audit", "t", 0] == 1  # the last poll may not have been handled


async def test_members_that_subscribe_share_a_topic() -> None:
    async with (
        fake_cluster(t={"a": 2}, u={"a": 1}) as cluster,
        consumer_of(cluster.address, consume_from=ConsumeFrom.FIRST) as first,
        consumer_of(cluster.address, consume_from=ConsumeFrom.FIRST) as second,
    ):
        await first.subscribe("t")
        await second.subscribe("t")
        await asyncio.sleep(2)
        assert sorted([*first.assignment(), *second.assignment()]) == [QUEUE, OTHER]
        assert len(first.assignment()) == 1
        with pytest.raises(UsageError, match="assigned by the group"):
            await first.assign([QUEUE])
        second.unsubscribe("t")
        await asyncio.sleep(2)
        assert second.assignment() == []


async def test_a_subscription_calls_listeners_of_assigned_and_revoked_queues() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        heard: list[tuple[str, Any]] = []
        consumer = consumer_of(cluster.address, consume_from=ConsumeFrom.FIRST)
        consumer.on_assigned(lambda queues: heard.append(("came", queues)))
        consumer.on_revoked(lambda queues: heard.append(("went", queues)))
        async with consumer:
            await consumer.subscribe("t")
            await asyncio.sleep(2)
            assert heard == [("came", (QUEUE, OTHER))]
            (said,) = cluster.a.heartbeats[-1].consumer_data_set
            assert said.strategy == "AVG"
        assert heard[1:] == [("went", (QUEUE, OTHER))]


async def test_assigned_by_hand_means_no_group_assignment() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        heard: list[object] = []
        consumer = consumer_of(cluster.address)
        consumer.on_revoked(heard.append)
        async with consumer:
            await consumer.assign([QUEUE])
            await asyncio.sleep(1)
            (said,) = cluster.a.heartbeats[-1].consumer_data_set
            assert said.strategy is None
        assert heard == []


async def test_a_commit_of_all_skips_queues_revoked_meanwhile(created: Created) -> None:
    assigned = created(AssignedQueues)
    async with fake_cluster(t={"a": 2}) as cluster:
        config = {"consume_from": ConsumeFrom.FIRST}
        async with consumer_of(cluster.address, **config) as first:
            await first.subscribe("t")
            for number in (0, 1):
                cluster.a.put("t", number, b"x")
            await asyncio.sleep(2)
            assert len(await first.poll()) == 2
            update = cluster.a.update_offset

            def slowly(call: UpdateOffset, peer: Peer) -> None:
                update(call, peer)
                if call.queue_id == 0:  # another member takes a queue
                    assigned[0].drop([OTHER])

            cluster.a.handlers[UpdateOffset] = slowly
            await first.commit()
            assert cluster.a.committed == {("audit", "t", 0): 1}


async def test_a_consumer_with_assigned_queues_cannot_subscribe() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, consumer_of(cluster.address) as consumer:
        await consumer.assign([QUEUE])
        with pytest.raises(UsageError, match="cannot subscribe"):
            await consumer.subscribe("t")
        await consumer.assign([])
        assert consumer.assignment() == []
