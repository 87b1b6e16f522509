"""Committed offsets, and where a group starts to read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import FakeBroker, FakeCluster, config_of, fake_cluster, session_of

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.reading.offsets import GroupOffsets
from roquet.model.errors import CallRefused, ConnectFailed
from roquet.model.queue import MessageQueue
from roquet.net.router import Peer
from roquet.testing.clock import this_loop
from roquet.wire.calls.offset import OffsetByTime, OffsetReply, QueryOffset, UpdateOffset
from roquet.wire.codes import ResponseCode

QUEUE = MessageQueue("t", "a", 0)
RETRY = MessageQueue("%RETRY%g", "a", 0)


@asynccontextmanager
async def offsets_of(
    cluster: FakeCluster, *, commits_starts: bool = True, **settings: Any
) -> AsyncIterator[GroupOffsets]:
    config: ConsumerConfig = config_of(ConsumerConfig, **settings)
    async with session_of(cluster.address, config, "t") as session:
        yield GroupOffsets(session, config, "g", commits_starts=commits_starts)


async def test_progress_is_kept_at_the_broker() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, offsets_of(cluster) as offsets:
        assert await offsets.committed(QUEUE) is None
        await offsets.commit(QUEUE, 12)
        assert await offsets.committed(QUEUE) == 12
        await offsets.commit_nowait(QUEUE, 13)
        assert await offsets.committed(QUEUE) == 13


async def test_the_bounds_of_a_queue() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, offsets_of(cluster) as offsets:
        cluster.a.begins["t", 0] = 5
        cluster.a.put("t", 0, b"x", b"y")
        assert (await offsets.min_offset(QUEUE), await offsets.max_offset(QUEUE)) == (5, 7)
        assert await offsets.by_time(QUEUE, 123_456) == 456


@pytest.mark.parametrize(
    ("where", "queue", "expected"),
    [
        (ConsumeFrom.LAST, QUEUE, 2),
        (ConsumeFrom.FIRST, QUEUE, 0),
        (ConsumeFrom.TIMESTAMP, QUEUE, 77),
        (ConsumeFrom.LAST, RETRY, 0),
        (ConsumeFrom.FIRST, RETRY, 0),
        (ConsumeFrom.TIMESTAMP, RETRY, 2),
    ],
    ids=range(6),
)
async def test_a_new_group_begins_where_java_lets_it(
    where: ConsumeFrom, queue: MessageQueue, expected: int
) -> None:
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        offsets_of(cluster, consume_from=where, consume_timestamp_ms=1_077) as offsets,
    ):
        cluster.a.put(queue.topic, 0, b"x", b"y")
        assert await offsets.start_offset(queue) == expected


async def test_a_group_goes_on_at_its_committed_offset() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, offsets_of(cluster) as offsets:
        cluster.a.committed["g", "t", 0] = 99
        assert await offsets.start_offset(QUEUE) == 99


async def test_the_default_start_time_is_half_an_hour_ago() -> None:
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        offsets_of(cluster, consume_from=ConsumeFrom.TIMESTAMP) as offsets,
    ):
        asked_ms: list[int] = []

        def by_time(call: OffsetByTime, peer: Peer) -> OffsetReply:
            asked_ms.append(call.timestamp)
            return OffsetReply(offset=5)

        cluster.a.handlers[OffsetByTime] = by_time
        assert await offsets.start_offset(QUEUE) == 5
        assert asked_ms == [1_700_000_000_000 - 1_800_000]


async def test_an_unknown_broker_is_an_error() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, offsets_of(cluster) as offsets:
        with pytest.raises(ConnectFailed, match="broker zz"):
            await offsets.start_offset(MessageQueue("t", "zz", 0))


@pytest.mark.parametrize("where", [ConsumeFrom.LAST, ConsumeFrom.FIRST, ConsumeFrom.TIMESTAMP])
async def test_an_offset_belongs_to_the_topic_id_it_came_with(where: ConsumeFrom) -> None:
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        offsets_of(cluster, consume_from=where) as offsets,
    ):
        cluster.a.topic_ids["t"] = "1-1"
        await offsets.start_offset(QUEUE)
        assert offsets.topic_ids == {QUEUE: "1-1"}
        cluster.a.topic_ids["t"] = "2-2"
        await offsets.max_offset(QUEUE)
        assert offsets.topic_ids == {QUEUE: "1-1"}, "nobody begins there"
        await offsets.commit(QUEUE, 5)
        assert cluster.a.commits[-1].topic_id == "1-1"


async def test_a_recreated_topic_starts_at_its_first_offset() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, offsets_of(cluster) as offsets:
        assert await offsets.restart_offset(QUEUE) is None, "nothing is known of it"
        cluster.a.topic_ids["t"] = "1-1"
        await offsets.start_offset(QUEUE)
        assert await offsets.restart_offset(QUEUE) is None, "it is the same"
        cluster.a.topic_ids["t"], cluster.a.begins["t", 0] = "2-2", 3
        assert await offsets.restart_offset(QUEUE) == 3
        assert await offsets.restart_offset(QUEUE) is None, "it is known by now"
        cluster.a.topic_ids.clear()
        await offsets.start_offset(QUEUE)
        assert offsets.topic_ids == {}, "a broker that gives no ids"


async def without_master(cluster: FakeCluster, *, is_in_route: bool) -> FakeBroker:
    """Stop the master of "a"; return its replica."""
    replica = await cluster.add_replica("a")
    if is_in_route:
        await cluster.a.server.stop(0)
    else:
        await cluster.lose_master("a")
    return replica


@pytest.mark.parametrize("is_in_route", [True, False])
async def test_a_replica_keeps_offsets_while_the_master_is_away(is_in_route: bool) -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        replica = await without_master(cluster, is_in_route=is_in_route)
        async with offsets_of(cluster) as offsets:
            await offsets.commit(QUEUE, 12)
            assert replica.committed == {("g", "t", 0): 12}
            assert await offsets.committed(QUEUE) == 12
            await offsets.commit_nowait(QUEUE, 13)
            assert await offsets.committed(QUEUE) == 13


async def test_offsets_are_kept_at_the_master_while_it_is_there() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        replica = await cluster.add_replica("a")
        async with offsets_of(cluster) as offsets:
            assert await offsets.committed(QUEUE) is None, "the master knows that there is none"
            await offsets.commit(QUEUE, 12)
            await offsets.commit_nowait(QUEUE, 13)
            assert await offsets.committed(QUEUE) == 13
            assert not replica.commits


async def test_a_replica_that_knows_no_offset_does_not_start_a_group_elsewhere() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        await without_master(cluster, is_in_route=True)
        async with offsets_of(cluster) as offsets:
            with pytest.raises(ConnectFailed):
                await offsets.start_offset(QUEUE)


async def test_a_commit_that_the_master_refuses_goes_nowhere_else() -> None:
    def refuse(call: UpdateOffset, peer: Peer) -> None:
        raise CallRefused(ResponseCode.NO_PERMISSION, "no")

    async with fake_cluster(t={"a": 1}) as cluster:
        replica = await cluster.add_replica("a")
        cluster.a.handlers[UpdateOffset] = refuse
        async with offsets_of(cluster) as offsets:
            with pytest.raises(CallRefused):
                await offsets.commit(QUEUE, 12)
        assert not replica.commits


async def test_without_any_broker_a_commit_fails() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, offsets_of(cluster) as offsets:
        await cluster.a.server.stop(0)
        with pytest.raises(ConnectFailed):
            await offsets.commit_nowait(QUEUE, 12)


QUEUES = [MessageQueue("t", "a", number) for number in range(2)]


async def taken(committed: dict[int, int], **settings: Any) -> dict[int, int]:
    """The offsets at the broker after a member's start, in a topic with ends 3 and 4."""
    async with fake_cluster(t={"a": 2}) as cluster, offsets_of(cluster, **settings) as offsets:
        cluster.a.begins = {("t", 0): 3, ("t", 1): 4}
        cluster.a.committed = {("g", "t", number): offset for number, offset in committed.items()}
        await offsets.take_start_offsets({"t": 0, "%RETRY%g": 0}, is_start=True)
        return {queue_id: offset for (_, _, queue_id), offset in cluster.a.committed.items()}


async def test_a_first_member_commits_where_the_group_starts_in_every_queue() -> None:
    assert await taken({}) == {0: 3, 1: 4}
    assert await taken({0: 1, 1: 0}) == {0: 1, 1: 0}, "it has offsets"
    since = {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": 1_002}
    assert await taken({}, **since) == {0: 2, 1: 2}
    assert await taken({}, consume_from=ConsumeFrom.FIRST) == {}


async def test_a_group_with_offsets_elsewhere_starts_at_the_first_message_of_new_queues() -> None:
    assert await taken({0: 3}) == {0: 3, 1: 0}


async def test_a_member_that_starts_while_another_commits_starts_where_that_one_does() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, offsets_of(cluster) as offsets:
        cluster.a.begins = {("t", 0): 3, ("t", 1): 4}
        cluster.a.committed["g", "t", 0] = 3
        starting = asyncio.create_task(offsets.take_start_offsets({"t": 0}, is_start=True))
        await asyncio.sleep(0.5)
        cluster.a.committed["g", "t", 1] = 4
        await starting
        assert cluster.a.committed == {("g", "t", 0): 3, ("g", "t", 1): 4}
        assert not cluster.a.commits


async def test_offsets_that_are_only_pulled_by_hand_are_found_and_not_committed() -> None:
    async with (
        fake_cluster(t={"a": 2}) as cluster,
        offsets_of(cluster, commits_starts=False) as offsets,
    ):
        await offsets.take_start_offsets({"t": 0}, is_start=True)
        cluster.a.put("t", 0, b"x", b"y")
        assert await offsets.start_offset(QUEUE) == 0
        assert not cluster.a.commits


async def test_a_topic_that_is_subscribed_later_starts_with_its_subscription() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, offsets_of(cluster) as offsets:
        await offsets.take_start_offsets({}, is_start=True)
        cluster.a.begins["t", 0] = 900
        await offsets.take_start_offsets({"t": 1_700_000_000_456})
        assert cluster.a.committed["g", "t", 0] == 456
        await offsets.take_start_offsets({})
        cluster.a.committed.clear()
        await offsets.take_start_offsets({"t": 1_700_000_000_789})
        assert cluster.a.committed["g", "t", 0] == 789, "it was unsubscribed meanwhile"


async def test_a_broker_that_is_away_at_the_start_is_asked_later_for_what_came_since(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, offsets_of(cluster) as offsets:
        started_ms = this_loop().clock.now_ms()
        frozen, other = cluster.brokers["b"], cluster.a
        query = frozen.handlers.pop(QueryOffset)

        async def hang(call: QueryOffset, peer: Peer) -> None:
            await asyncio.sleep(3600)

        frozen.handlers[QueryOffset] = hang
        other.begins["t", 0] = frozen.begins["t", 0] = 5_000
        await offsets.take_start_offsets({"t": 0}, is_start=True)
        assert this_loop().clock.now_ms() - started_ms <= 3_000
        frozen.handlers[QueryOffset] = query
        await offsets.take_start_offsets({"t": 0})
        assert other.committed["g", "t", 0] == 5_000
        assert frozen.committed["g", "t", 0] == started_ms % 1_000


async def test_queues_that_appear_later_begin_at_their_first_message_by_any_clock() -> None:
    async with (
        fake_cluster(t={"a": 1}) as cluster,
        session_of(cluster.address, config_of(ConsumerConfig), "t") as session,
    ):
        config: ConsumerConfig = config_of(ConsumerConfig)
        offsets = GroupOffsets(session, config, "g", commits_starts=True)
        asked_ms: list[int] = []

        def by_time(call: OffsetByTime, peer: Peer) -> OffsetReply:
            asked_ms.append(call.timestamp)
            return OffsetReply(offset=5)

        cluster.a.handlers[OffsetByTime] = by_time
        await offsets.take_start_offsets({"t": 0, "u": 0}, is_start=True)
        cluster.topics.update(t={"a": 2}, u={"a": 1})
        await asyncio.gather(*map(session.routes.refresh, "tu"))
        await offsets.take_start_offsets({"t": 0, "u": 0})
        assert asked_ms == [0, 0]
        assert cluster.a.committed == {("g", "t", 0): 0, ("g", "t", 1): 5, ("g", "u", 0): 5}
        await offsets.take_start_offsets({"t": 0, "u": 0})
        assert len(cluster.a.commits) == 3, "nothing is new"


async def test_a_start_offset_that_could_not_be_committed_is_used_once() -> None:
    def refuse(call: UpdateOffset, peer: Peer) -> None:
        raise CallRefused(ResponseCode.SYSTEM_BUSY, "later")

    async with (
        fake_cluster(t={"a": 1}) as cluster,
        session_of(cluster.address, config_of(ConsumerConfig), "t") as session,
    ):
        config: ConsumerConfig = config_of(ConsumerConfig)
        offsets = GroupOffsets(session, config, "g", commits_starts=True)
        cluster.a.begins["t", 0], cluster.a.handlers[UpdateOffset] = 999, refuse
        await offsets.take_start_offsets({"t": 0}, is_start=True)
        assert await offsets.start_offset(QUEUE) == 999
        began_ms = session.started_ms
        assert await offsets.start_offset(QUEUE) == began_ms % 1_000, "the topic may be another one"
