"""A topic is deleted and made anew, longer than before, while readers of the old one live on."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.conftest import SMALL, Connect, consumer_of, pull_of, send, virtual_cluster

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client import PushConsumer, ReceivedMessage
from roquet.model.errors import CallRefused
from roquet.model.subscription import ConsumerData, HeartbeatData, MessageModel, Subscription
from roquet.net.channel import Channel
from roquet.net.pool import ChannelPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.calls.admin.topic import CreateTopic, DeleteTopic
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.offset import QueryOffset, UpdateOffset
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

CREATE = CreateTopic(topic="t", read_queue_nums=1, write_queue_nums=1, perm=6)


async def recreate(running: Cluster, *, is_known: bool) -> None:
    """Delete the topic and make it anew; `is_known` false stands for a broker started again."""
    pool = ChannelPool(clock=this_loop().clock)
    try:
        for call in (DeleteTopic(topic="t"), CREATE):
            await pool.call(running.brokers[0].address, call)
    finally:
        await pool.close()
    if not is_known:
        running.brokers[0].broker.tables.former_readers.pending.clear()


def member_of(running: Cluster, folder: Path, model: MessageModel) -> PushConsumer:
    return consumer_of(running, message_model=model, offsets_dir=folder)


@pytest.mark.parametrize("model", [MessageModel.CLUSTERING, MessageModel.BROADCASTING])
@pytest.mark.parametrize("is_known", [True, False], ids=["same broker", "broker started again"])
@pytest.mark.parametrize("lives_on", [True, False], ids=["lives on", "was away"])
async def test_a_consumer_reads_all_of_a_recreated_topic(
    tmp_path: Path, model: MessageModel, is_known: bool, lives_on: bool
) -> None:
    seen: Counter[bytes] = Counter()

    async def handler(message: ReceivedMessage) -> None:
        seen[message.body] += 1

    async with virtual_cluster() as running:
        await recreate_first(running)
        await send(running, *[b"old" + b"%d" % n for n in range(200)])
        first = member_of(running, tmp_path, model)
        async with first:
            task = asyncio.create_task(first.run(handler))
            await asyncio.sleep(30)
            assert len(seen) == 200
            if lives_on:
                await recreate(running, is_known=is_known)
                await send(running, *[b"new" + b"%d" % n for n in range(300)])
                await asyncio.sleep(60)
        await task
        if not lives_on:
            await recreate(running, is_known=is_known)
            await send(running, *[b"new" + b"%d" % n for n in range(300)])
            async with member_of(running, tmp_path, model) as second:
                task = asyncio.create_task(second.run(handler))
                await asyncio.sleep(60)
            await task
        assert len(seen) == 500, "none of the new ones is passed over"
        if model is MessageModel.CLUSTERING:
            assert running.brokers[0].broker.tables.offsets.get("g", "t", 0) == 300


async def recreate_first(running: Cluster) -> None:
    """The topic, made for the first time, with the one queue that it has later as well."""
    pool = ChannelPool(clock=this_loop().clock)
    try:
        await pool.call(running.brokers[0].address, CREATE)
    finally:
        await pool.close()


@pytest.mark.virtual_time(False)
async def test_a_running_apache_member_is_sent_to_the_beginning_of_a_recreated_topic(
    server: BrokerServer, connect: Connect
) -> None:
    """It knows no ids: its pull at 2 and its commit of 2 are of the topic before."""
    member, operator = await connect(server), await connect(server)
    subscription = Subscription(topic="t", sub_string="*")
    data = ConsumerData(group_name="g", subscription_data_set=[subscription])
    beat = HeartbeatData(client_id="c1", consumer_data_set=[data])
    await member.call(Heartbeat(body=codec.dumps(beat)))
    await operator.call(CREATE)
    await fill(operator, b"old", 2)
    commit = UpdateOffset(consumer_group="g", topic="t", queue_id=0, commit_offset=2)
    await member.call(commit)
    await operator.call(DeleteTopic(topic="t"))
    await operator.call(CREATE)
    await fill(operator, b"new", 3)
    assert "made anew" in ((await member.call(commit)).remark or "")
    moved = await member.call(pull_at(2))
    assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    asked = QueryOffset(consumer_group="g", topic="t", queue_id=0)
    assert (await operator.call(asked)).offset == 0
    found = await member.call(pull_at(0))
    assert (found.code, found.next_begin_offset) == (ResponseCode.SUCCESS, 3)
    await member.call(commit)
    assert (await operator.call(asked)).offset == 2


@pytest.mark.virtual_time(False)
async def test_a_reconnected_apache_member_is_sent_to_the_beginning_too(
    server: BrokerServer, connect: Connect
) -> None:
    """Its new connection says nothing of it but the group: that is enough, once for each queue."""
    member, operator = await connect(server), await connect(server)
    await operator.call(CREATE)
    await fill(operator, b"old", 2)
    commit = UpdateOffset(consumer_group="g", topic="t", queue_id=0, commit_offset=2)
    assert (await member.call(pull_at(0))).code == ResponseCode.SUCCESS
    await member.call(commit)
    await operator.call(DeleteTopic(topic="t"))
    await operator.call(CREATE)
    await fill(operator, b"new", 3)
    await member.close()
    again = await connect(server)
    assert "made anew" in ((await again.call(commit)).remark or "")
    moved = await again.call(pull_at(2))
    assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    assert (await again.call(pull_at(0))).next_begin_offset == 3
    await again.call(commit)
    once_more = await connect(server)
    asked = QueryOffset(consumer_group="g", topic="t", queue_id=0)
    assert (await operator.call(asked)).offset == 2
    assert (await once_more.call(pull_at(2))).next_begin_offset == 3, "it is told once"


@pytest.mark.parametrize("is_deleted", [False, True], ids=["killed", "deleted and killed"])
async def test_a_member_takes_a_retry_topic_that_a_kill_lost_for_no_other_one(
    connect: Connect, is_deleted: bool
) -> None:
    """A heartbeat creates it, and it is saved later: the next process creates it again."""
    beat = HeartbeatData(client_id="c1", consumer_data_set=[ConsumerData(group_name="g")])
    asked = QueryOffset(
        consumer_group="g", topic="%RETRY%g", queue_id=0, set_zero_if_not_found=True
    )
    files = MemoryFiles()
    given: dict[str, Any] = {**SMALL, "store_dir": Path("/held")}
    async with BrokerServer(BrokerConfig(**given), this_loop().clock, files=files) as server:
        member = await connect(server)
        await member.call(Heartbeat(body=codec.dumps(beat)))
        known = (await member.call(asked)).topic_id
        if is_deleted:
            await fill(member, b"failed", 1, "%RETRY%g")
            await member.call(DeleteTopic(topic="%RETRY%g"))
        left = files.copy()
    await asyncio.sleep(1)
    async with BrokerServer(BrokerConfig(**given), this_loop().clock, files=left) as server:
        assert server.broker.tables.topics.get("%RETRY%g") is None
        member = await connect(server)
        await member.call(Heartbeat(body=codec.dumps(beat)))
        commit = UpdateOffset(
            consumer_group="g", topic="%RETRY%g", queue_id=0, commit_offset=0, topic_id=known
        )
        if is_deleted:
            with pytest.raises(CallRefused, match="deleted and made anew"):
                await member.call(commit)
        else:
            assert (await member.call(commit)).code == 0


async def fill(channel: Channel, body: bytes, count: int, topic: str = "t") -> None:
    given: dict[str, Any] = {"producer_group": "p", "topic": topic, "queue_id": 0}
    for _ in range(count):
        await channel.call(Send(**given, born_timestamp=1_700_000_000_000, body=body))


def pull_at(offset: int) -> Pull:
    return pull_of(offset, consumer_group="g", topic="t", sys_flag=4, suspend_timeout_millis=0)
