import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace
from tests.admin.conftest import ClusterWithAdmin

from roquet.admin import groups, resizing, topics
from roquet.admin.client import AdminClient
from roquet.admin.resizing import ResizeStep
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.model.errors import CallError, CallRefused, CallTimeout, ConnectFailed, UsageError
from roquet.model.subscription import MessageModel
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.inspection import GetGroupsOfTopic
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time


async def counts(it: ClusterWithAdmin) -> set[tuple[int, int]]:
    await it.settle()
    places = (await topics.show(it.admin, "orders")).places
    return {(place.write_queues, place.read_queues) for place in places}


async def resize(it: ClusterWithAdmin, count: int, **settings: Any) -> list[ResizeStep]:
    steps = resizing.resize(it.admin, "orders", count, clock=it.clock, **settings)
    return [step async for step in steps]


async def test_eight_become_four_under_load_and_no_message_is_left_behind(
    cluster: ClusterWithAdmin,
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=8, write_queues=8))
    await cluster.settle()
    reading = ConsumerConfig(clock=cluster.clock, consume_from=ConsumeFrom.FIRST)
    sent: set[bytes] = set()
    seen: list[bytes] = []
    async with (
        Producer(cluster.namesrv, config=ProducerConfig(clock=cluster.clock)) as producer,
        PushConsumer(cluster.namesrv, group="billing", topic="orders", config=reading) as consumer,
    ):

        async def send() -> None:
            while True:
                body = b"%d" % len(sent)
                assert (await producer.send("orders", body)).ok
                sent.add(body)
                await cluster.clock.sleep(100)

        async def handle(message: Any) -> None:
            await cluster.clock.sleep(50)
            seen.append(message.body)

        work = [asyncio.create_task(send()), asyncio.create_task(consumer.run(handle))]
        await cluster.clock.sleep(5_000)
        steps = await resize(cluster, 4)
        assert {step.doing for step in steps} >= {
            "producers get 4 queues",
            "waiting for producers to refresh their routes",
            "removing queues from 4 on",
        }
        await cluster.clock.sleep(60_000)
        for task in work:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert await counts(cluster) == {(4, 4)}
    assert len(sent) > 800
    assert set(seen) >= {body for body in sent if int(body) < len(sent) - 20}


async def test_queues_stay_until_the_slowest_group_is_through(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await cluster.settle()
    reading = ConsumerConfig(clock=cluster.clock, consume_from=ConsumeFrom.FIRST)
    async with PushConsumer(cluster.namesrv, group="billing", topic="orders", config=reading):
        await cluster.settle()
    async with Producer(cluster.namesrv, config=ProducerConfig(clock=cluster.clock)) as producer:
        for _ in range(8):
            await producer.send("orders", b"x")
    waiting: list[ResizeStep] = []
    async for step in resizing.resize(
        cluster.admin, "orders", 1, settle_ms=1_000, clock=cluster.clock
    ):
        if step.waiting:
            waiting.append(step)
        if len(waiting) == 1:
            assert step.waiting in ({}, {"billing": 4})
            assert await counts(cluster) == {(1, 2)}
            async with PushConsumer(
                cluster.namesrv, group="billing", topic="orders", config=reading
            ) as consumer:
                for message in await consumer.fetch(8, 10_000):
                    await message.ack()
                await cluster.clock.sleep(10_000)
    assert waiting
    assert await counts(cluster) == {(1, 1)}


async def test_more_queues_can_be_read_before_they_are_written(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await cluster.settle()
    steps = resizing.resize(cluster.admin, "orders", 5, clock=cluster.clock)
    doing = [(step.doing, await counts(cluster)) async for step in steps]
    assert doing == [("consumers get 5 queues", {(2, 2)}), ("producers get 5 queues", {(2, 5)})]
    assert await counts(cluster) == {(5, 5)}


async def test_a_broker_that_does_not_say_how_far_a_group_is_stops_it(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await cluster.settle()
    ask_each = AdminClient.ask_each

    async def one_is_silent(
        admin: AdminClient, brokers: Mapping[str, str], call: Call[Reply]
    ) -> tuple[dict[str, Reply], dict[str, CallError]]:
        answers, failed = await ask_each(admin, brokers, call)
        if isinstance(call, GetConsumeStats):
            failed["broker-b"] = CallTimeout("no answer")
        return answers, failed

    config = ConsumerConfig(clock=cluster.clock)
    async with PushConsumer(cluster.namesrv, group="billing", topic="orders", config=config):
        await cluster.clock.sleep(10_000)
        monkeypatch.setattr(AdminClient, "ask_each", one_is_silent)
        with pytest.raises(ConnectFailed, match="broker-b does not say how far billing is"):
            await resizing.backlog(cluster.admin, "orders", 1)


async def test_nonsense_is_refused(cluster: ClusterWithAdmin) -> None:
    for count in (0, -1, 16_385):
        with pytest.raises(UsageError, match="from 1 to 16384"):
            await resize(cluster, count)
    with pytest.raises(UsageError, match="no broker has a topic"):
        await resize(cluster, 4)


async def test_members_that_broadcast_are_named_and_not_waited_for(
    cluster: ClusterWithAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await cluster.settle()
    sharing = ConsumerConfig(clock=cluster.clock, consume_from=ConsumeFrom.FIRST)
    model = MessageModel.BROADCASTING
    own = replace(sharing, message_model=model, offsets_dir=tmp_path)
    async with (
        Producer(cluster.namesrv, config=ProducerConfig(clock=cluster.clock)) as producer,
        PushConsumer(cluster.namesrv, group="news", topic="orders", config=own) as news,
        PushConsumer(cluster.namesrv, group="billing", topic="orders", config=sharing) as billing,
    ):
        for _ in range(8):
            await producer.send("orders", b"x")
        for consumer in (news, billing):
            for message in await consumer.fetch(8, 10_000):
                await message.ack()
        await cluster.clock.sleep(10_000)
        groups = (await topics.show(cluster.admin, "orders")).groups
        assert groups == ["billing", "news"]
        assert await resizing.broadcasting_groups(cluster.admin, groups) == ["news"]
        with monkeypatch.context() as patched:
            patched.setattr(resizing, "broadcasting_groups", AsyncMock(return_value=[]))
            backlog = await resizing.backlog(cluster.admin, "orders", 1)
            assert backlog["news"] == 4, "as far as the brokers know"
        steps = await resize(cluster, 1, settle_ms=1_000)
    assert steps[0].doing == "producers get 1 queue"
    assert not any("news" in step.waiting for step in steps)
    assert await counts(cluster) == {(1, 1)}


async def test_a_broker_that_does_not_say_who_broadcasts_stops_it(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = await cluster.admin.brokers()
    await cluster.running.stop_broker(1)
    monkeypatch.setattr(cluster.admin, "brokers", AsyncMock(return_value=brokers))
    with pytest.raises(ConnectFailed, match="broker-b does not say who is in billing"):
        await resizing.broadcasting_groups(cluster.admin, ["billing"])


@pytest.mark.parametrize("refused", [GetGroupsOfTopic, GetConnections])
async def test_no_queue_is_removed_while_a_broker_does_not_tell_who_reads(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch, refused: type[Call[Any]]
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await groups.create(cluster.admin, "billing", {})
    await cluster.settle()
    for broker in cluster.running.broker_addrs:
        call = UpdateOffset(consumer_group="billing", topic="orders", queue_id=1, commit_offset=0)
        await cluster.admin.ask(broker, call)
    ask = AdminClient.ask

    async def asked(admin: AdminClient, address: str, call: Call[Any], *rest: Any) -> Any:
        if isinstance(call, refused) and address == cluster.running.broker_addrs[1]:
            raise CallRefused(ResponseCode.NO_PERMISSION, "no")
        return await ask(admin, address, call, *rest)

    monkeypatch.setattr(AdminClient, "ask", asked)
    with pytest.raises(ConnectFailed, match=r"broker-b .*code 16: no"):
        await resize(cluster, 1, settle_ms=0)
    assert {read for _, read in await counts(cluster)} == {2}
