"""What operators change while messages flow: topics deleted and resized, offsets, settings."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.conftest import (
    SMALL,
    Connect,
    ask,
    consumer_of,
    handling,
    producer_of,
    pull_of,
    virtual_cluster,
)

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.config_file import load
from roquet.client import Message, Producer, ReceivedMessage
from roquet.model.errors import CallRefused, RoquetError
from roquet.model.topic import READ_WRITE
from roquet.net.channel import Channel
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.testing.cluster import Cluster
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.offset_reset import ResetOffset
from roquet.wire.calls.admin.settings import UpdateSettings
from roquet.wire.calls.admin.topic import CreateTopic, DeleteTopic
from roquet.wire.calls.bodies import ResetOffsetBody
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.pop import Pop
from roquet.wire.calls.send import Send
from roquet.wire.codes import RequestCode, ResponseCode
from roquet.wire.fastjson import codec

FAR_MS = 4_000_000_000_000


async def resize(running: Cluster, *, reads: int, writes: int) -> None:
    await ask(
        running.brokers[0],
        CreateTopic(topic="t", read_queue_nums=reads, write_queue_nums=writes, perm=READ_WRITE),
    )


# -- offsets -------------------------------------------------------------------------------------


async def test_a_running_group_is_reset_to_the_beginning() -> None:
    async with virtual_cluster() as running:
        async with producer_of(running) as producer:
            await producer.send_many([Message("t", b"%d" % n) for n in range(20)])
        seen: Counter[bytes] = Counter()

        async def handler(message: ReceivedMessage) -> None:
            seen[message.body] += 1

        async with consumer_of(running) as consumer, handling(consumer, handler):
            await asyncio.sleep(30)
            assert set(seen.values()) == {1}
            reply = await ask(running.brokers[0], ResetOffset(group="g", topic="t", timestamp=0))
            assert set(codec.loads(reply.body, ResetOffsetBody).offset_table.values()) == {0}
            await asyncio.sleep(60)
            assert len(seen) == 20
            assert set(seen.values()) == {2}
        broker = running.brokers[0].broker
        found = [broker.tables.offsets.get("g", "t", n) or 0 for n in range(8)]
        assert found == [broker.log.store.bounds("t", n)[1] for n in range(8)]


async def test_a_running_group_is_reset_to_the_end() -> None:
    async with virtual_cluster() as running:
        seen = list[bytes]()

        async def handler(message: ReceivedMessage) -> None:
            seen.append(message.body)
            await asyncio.sleep(1_000 if message.body == b"old" else 0)

        async with producer_of(running) as producer, consumer_of(running) as consumer:
            await producer.send_many([Message("t", b"old") for _ in range(200)])
            task = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(30)
            await ask(running.brokers[0], ResetOffset(group="g", topic="t", timestamp=-1))
            broker = running.brokers[0].broker
            ends = [broker.log.store.bounds("t", n)[1] for n in range(4)]
            assert [broker.tables.offsets.get("g", "t", n) for n in range(4)] == ends
            await asyncio.sleep(60)
            kept = [broker.tables.offsets.get("g", "t", n) for n in range(4)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert sum(1 for body in seen if body == b"old") < 200
        assert kept == ends


async def test_a_group_is_reset_while_handlers_run() -> None:
    async with virtual_cluster() as running:
        seen: Counter[bytes] = Counter()

        async def handler(message: ReceivedMessage) -> None:
            seen[message.body] += 1
            await asyncio.sleep(1)

        async with producer_of(running) as producer, consumer_of(running) as consumer:
            await producer.send_many([Message("t", b"%d" % n) for n in range(400)])
            task = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(15)
            first = set(seen)
            assert 0 < len(first) < 400
            await ask(running.brokers[0], ResetOffset(group="g", topic="t", timestamp=0))
            await asyncio.sleep(90)
        await task
        assert len(seen) == 400
        assert all(seen[body] >= 2 for body in first)
        broker = running.brokers[0].broker
        ends = [broker.log.store.bounds("t", n)[1] for n in range(4)]
        assert [broker.tables.offsets.get("g", "t", n) for n in range(4)] == ends


# -- queues --------------------------------------------------------------------------------------


async def test_a_topic_shrinks_from_eight_queues_to_four_and_loses_nothing() -> None:
    async with virtual_cluster() as running:
        await resize(running, reads=8, writes=8)
        await asyncio.sleep(1)
        sent, seen = set[bytes](), Counter[bytes]()

        async def produce(producer: Producer, count: int) -> None:
            for _ in range(count):
                body = b"%d" % len(sent)
                await producer.send("t", body)
                sent.add(body)
                await asyncio.sleep(0.1)

        async def handler(message: ReceivedMessage) -> None:
            seen[message.body] += 1

        broker = running.brokers[0].broker
        async with producer_of(running) as producer, consumer_of(running) as consumer:
            task = asyncio.create_task(consumer.run(handler))
            await produce(producer, 100)
            await resize(running, reads=8, writes=4)
            await produce(producer, 350)
            drained = [broker.log.store.bounds("t", n)[1] for n in range(4, 8)]
            assert sum(drained) > 0
            await asyncio.sleep(10)
            assert [broker.tables.offsets.get("g", "t", n) for n in range(4, 8)] == drained
            await resize(running, reads=4, writes=4)
            await produce(producer, 50)
            await asyncio.sleep(10)
        await task
        assert set(seen) == sent
        assert [broker.log.store.bounds("t", n)[1] for n in range(4, 8)] == drained


# -- a topic deleted -----------------------------------------------------------------------------


async def test_a_topic_deleted_under_load_is_recreated_by_later_sends() -> None:
    async with virtual_cluster() as running:
        kept, seen, failures = list[bytes](), Counter[bytes](), list[RoquetError]()
        deleted = asyncio.Event()

        async def produce(producer: Producer) -> None:
            for n in range(300):
                is_after = deleted.is_set()
                try:
                    await producer.send("t", b"%d" % n)
                except RoquetError as error:
                    failures.append(error)
                else:
                    kept.extend([b"%d" % n] if is_after else [])
                await asyncio.sleep(0.1)

        async def handler(message: ReceivedMessage) -> None:
            seen[message.body] += 1

        async with producer_of(running) as producer, consumer_of(running) as consumer:
            task = asyncio.create_task(consumer.run(handler))
            producing = asyncio.create_task(produce(producer))
            await asyncio.sleep(20)
            await ask(running.brokers[0], DeleteTopic(topic="t"))
            deleted.set()
            await producing
            await asyncio.sleep(40)
        await task
        assert failures == []
        assert len(kept) > 50
        assert set(kept) <= set(seen)
        broker = running.brokers[0].broker
        assert sum(broker.log.store.bounds("t", n)[1] for n in range(8)) == len(kept)


SEND = Send(
    producer_group="p", topic="t", queue_id=0, born_timestamp=1_700_000_000_000, body=b"old"
)
PULL = pull_of(0, consumer_group="g", topic="t", sys_flag=4, suspend_timeout_millis=0)
POP = Pop(
    consumer_group="popper", topic="t", queue_id=0, max_msg_nums=2, invisible_time=60_000,
    poll_time=0, born_time=FAR_MS, init_mode=0,
)  # fmt: skip


@pytest.mark.virtual_time(False)
async def test_a_kill_right_after_does_not_bring_a_deleted_topic_back(connect: Connect) -> None:
    config = BrokerConfig(**SMALL, store_dir=Path("/data"))
    files = MemoryFiles()
    async with BrokerServer(config, files=files) as server:
        channel = await connect(server)
        for _ in range(10):
            await channel.call(SEND)
        assert (await channel.call(PULL)).max_offset == 10
        await channel.call(
            UpdateOffset(consumer_group="g", topic="t", queue_id=0, commit_offset=10)
        )
        assert (await channel.call(POP)).rest_num == 8
        await channel.call(DeleteTopic(topic="t"))
        left = files.copy()
    async with BrokerServer(config, files=left) as again:
        broker = again.broker
        assert broker.tables.topics.get("t") is None
        assert "t" not in broker.log.store.topics()
        assert broker.tables.offsets.topics("g") == []
        assert broker.tables.offsets.topics("popper") == []
        assert len(broker.delivery.revive.in_flight) == 0
        channel = await connect(again)
        for _ in range(3):
            await channel.call(Send(**(fields(SEND) | {"body": b"new"})))
        found = await channel.call(PULL)
        assert (found.min_offset, found.max_offset, found.body.count(b"new")) == (0, 3, 3)
        assert b"old" not in found.body
        popped = await channel.call(POP)
        assert (popped.body.count(b"new"), popped.rest_num) == (2, 1)


def fields(call: Send) -> dict[str, Any]:
    return {name: getattr(call, name) for name in call.__struct_fields__}


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.virtual_time(False)
async def test_changed_settings_are_in_the_brokers_file(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# a broker of ours\nbrokerPermission = 6\n")
    config = BrokerConfig(**SMALL, source=path)
    async with BrokerServer(config) as server:
        channel = await connect(server)
        await channel.call(UpdateSettings(body=b"brokerPermission=4\nfileReservedTime=5"))
        assert server.broker.control.settings.config.permission == 4
    again = load(path, {})
    assert (again.permission, again.retention) == (4, 5 * 3_600_000)
    assert path.read_text().startswith("# a broker of ours\n")


# -- bad input -----------------------------------------------------------------------------------


class EmptyRequest(Call[Reply], frozen=True, kw_only=True):
    """A request without a field; each test sets its code."""


@pytest.mark.virtual_time(False)
@pytest.mark.parametrize(
    "code",
    [
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    ],
)
async def test_an_incomplete_request_of_an_operator_is_refused_and_changes_nothing(
    channel: Channel, server: BrokerServer, code: RequestCode
) -> None:
    before = server.broker.tables.topics.version, server.broker.tables.groups.version
    EmptyRequest.code = code
    with pytest.raises(CallRefused) as refused:
        await channel.call(EmptyRequest())
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert refused.value.remark
    assert (server.broker.tables.topics.version, server.broker.tables.groups.version) == before
    assert (await channel.call(SEND)).queue_offset == 0
