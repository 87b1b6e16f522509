"""Failed messages come again, and after their last try they are dead letters."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests.conversation.conftest import consumer_of, handling, puller_of, send, virtual_cluster

from roquet.client import MessageQueue, ReceivedMessage
from roquet.rules.allocate import from_config
from roquet.testing.cluster import Cluster

Handler = Callable[[ReceivedMessage], Any]


async def dead_letters(running: Cluster) -> list[bytes]:
    async with puller_of(running, "look") as consumer:
        found = []
        for queue in await consumer.queues("%DLQ%g"):
            found += [m.body for m in (await consumer.pull(queue, 0)).messages]
        return found


async def test_a_message_that_always_fails_ends_with_the_dead_letters() -> None:
    async with virtual_cluster(brokers=2) as running:
        await send(running, b"good", b"bad")
        seen: list[tuple[bytes, str, int, float]] = []

        async def handler(message: ReceivedMessage) -> None:
            now = asyncio.get_running_loop().time()
            seen.append((message.body, message.topic, message.reconsume_times, now))
            if message.body == b"bad":
                raise ValueError("always")

        async with consumer_of(running, retries_max=3) as consumer, handling(consumer, handler):
            await asyncio.sleep(300)
        bad = [one for one in seen if one[0] == b"bad"]
        assert [(topic, times) for _, topic, times, _ in bad] == [("t", n) for n in range(4)]
        gaps = [b[3] - a[3] for a, b in pairwise(bad)]
        assert [round(gap, -1) for gap in gaps] == [10, 30, 60]
        assert len(seen) == 5
        assert await dead_letters(running) == [b"bad"]


async def test_a_message_may_be_given_up_or_put_off_by_its_handler() -> None:
    async with virtual_cluster() as running:
        await send(running, b"late", b"dead")
        times: list[float] = []

        async def handler(message: ReceivedMessage) -> None:
            if message.body == b"dead":
                await message.dead_letter()
                return
            times.append(asyncio.get_running_loop().time())
            if message.tries == 0:
                await message.nack(300_000)

        async with consumer_of(running) as consumer, handling(consumer, handler):
            await asyncio.sleep(400)
        assert await dead_letters(running) == [b"dead"]
        assert 300 <= times[1] - times[0] < 302


async def test_a_handler_that_hangs_leaves_its_message_to_another_member() -> None:
    async with virtual_cluster() as running:
        await send(running, b"x")
        handled: list[str] = []

        async def hang(message: ReceivedMessage) -> None:
            await asyncio.sleep(1e6)

        async def work(message: ReceivedMessage) -> None:
            handled.append(message.message_id)

        first = consumer_of(running)
        await first.start()
        tasks = [asyncio.create_task(first.run(hang))]
        await asyncio.sleep(5)
        await asyncio.sleep(17 * 60)
        await first.close()  # whose handler hangs once more
        second = consumer_of(running)
        await second.start()
        tasks.append(asyncio.create_task(second.run(work)))
        await asyncio.sleep(60)
        assert len(handled) == 1
        await second.close()
        await asyncio.wait(tasks)


async def test_tags_may_be_changed_while_it_runs() -> None:
    async with virtual_cluster() as running:
        await send(running, b"a", tag="A")
        async with consumer_of(running) as consumer:
            consumer.subscribe("t", "A")
            assert [m.body for m in await consumer.fetch(1)] == [b"a"]
            consumer.subscribe("t", "B")
            await asyncio.sleep(0.1)
            await send(running, b"a2", tag="A")
            await send(running, b"b", tag="B")
            assert [m.body for m in await consumer.fetch(2, 5_000)] == [b"b"]


async def test_members_with_a_strategy_of_the_brokers_share_every_queue() -> None:
    for strategy in ("STICKY", "LAG_WEIGHTED", "AVG_BY_CIRCLE", "CONSISTENT_HASH"):
        async with virtual_cluster(brokers=2) as running:
            await send(running, *[b"%d" % n for n in range(20)])
            members = [consumer_of(running, strategy=strategy) for _ in range(3)]
            for member in members:
                await member.start()
                await asyncio.sleep(1)
            await asyncio.sleep(45)
            owned = Counter(queue for member in members for queue in member.assignment())
            assert len(owned) == 8, strategy
            assert set(owned.values()) == {1}, strategy
            await send(running, *[b"%d" % n for n in range(20, 40)])
            bodies = [
                message.body
                for member in members
                for message in await member.fetch(len(member.assignment()) * 40, 2_000)
            ]
            assert sorted(map(int, bodies)) == list(range(40)), strategy
            for member in members:
                await member.close()


async def test_a_fixed_list_has_its_failed_messages_come_again_where_it_names_the_retry_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with virtual_cluster() as running:
        broker = running.brokers[0].broker.control.settings.config.broker_name
        own = [MessageQueue("t", broker, n) for n in range(4)]
        for listed, tries in ((own, 1), ([*own, MessageQueue("%RETRY%g", broker, 0)], 2)):
            caplog.clear()
            await send(running, b"bad")
            seen: list[bytes] = []

            async def handler(message: ReceivedMessage, seen: list[bytes] = seen) -> None:
                seen.append(message.body)
                if message.tries == 0:
                    raise ValueError("once")

            async with (
                consumer_of(running, strategy=from_config(listed)) as consumer,
                handling(consumer, handler),
            ):
                await asyncio.sleep(25)
                assert len(seen) >= tries
                if tries == 1:
                    assert len(seen) == 1
            told = caplog.text.count("the list of CONFIG has no queue of %RETRY%g")
            assert told == (tries == 1)
        assert len(seen) == 3  # what failed under the first list has come again, too


async def test_a_custom_strategy_assigns_a_topic_to_one_member() -> None:
    def pinned(queues: Sequence[MessageQueue], members: Sequence[str]) -> Any:
        return {members[-1]: queues}

    async with virtual_cluster() as running:
        await send(running, b"x")
        members = [consumer_of(running, strategy=pinned) for _ in range(2)]
        for member in members:
            await member.start()
        await asyncio.sleep(25)
        assert sorted(len(member.assignment()) for member in members) == [0, 4]
        for member in members:
            await member.close()
