"""One message of a queue at a time."""

import asyncio
from functools import partial

from tests.client.conftest import consumer_of as push_consumer_of
from tests.client.conftest import consuming as consuming_queues
from tests.client.conftest import fake_cluster, filled

from roquet.client.reading.message import ReceivedMessage
from roquet.model.queue import MessageQueue
from roquet.testing.clock import this_loop

QUEUE = MessageQueue("t", "a", 0)


consumer_of = partial(push_consumer_of, ordered=True)
consuming = partial(consuming_queues, ordered=True)


async def test_the_next_message_waits_for_the_one_before() -> None:
    async with consuming({"a": 2}) as (cluster, consumer):
        filled(cluster, 2, 0)
        filled(cluster, 1, 1)
        messages = await consumer.fetch(3, 1_000)
        assert sorted((m.queue_id, m.body) for m in messages) == [(0, b"0"), (1, b"0")]
        await next(m for m in messages if m.queue_id == 0).ack()
        assert [m.body for m in await consumer.fetch(3, 1_000)] == [b"1"]


async def test_a_failed_message_comes_again_in_its_place_for_ever() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 3)
        seen: list[tuple[int, int]] = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append((int(message.body), this_loop().clock.monotonic_ms()))
            if message.body == b"1" and message.tries < 40:
                raise ValueError("not yet")

        running = asyncio.create_task(consumer.run(handler))
        await asyncio.sleep(60)
        assert [body for body, _ in seen] == [0] + [1] * 41 + [2]
        assert seen[2][1] - seen[1][1] == 1_000
        assert cluster.a.sent_back == []
        await consumer.close()
        await running


async def test_after_its_last_try_it_is_stored_in_the_retry_topic() -> None:
    async with fake_cluster(**{"t": {"a": 1}, "%RETRY%g": {"a": 1}}) as cluster:
        filled(cluster, 2)
        async with consumer_of(cluster, retries_max=2, ordered_pause_ms=50) as consumer:
            seen = []

            async def handler(message: ReceivedMessage) -> None:
                seen.append((message.queue.topic, message.body))
                if message.body == b"0" and message.queue.topic == "t":
                    raise ValueError("never")

            running = asyncio.create_task(consumer.run(handler))
            await asyncio.sleep(1)
            assert seen[:4] == [("t", b"0")] * 3 + [("t", b"1")]
            (call,) = cluster.a.sends
            assert (call.topic, call.reconsume_times, call.max_reconsume_times) == (
                "%RETRY%g",
                2,
                2,
            )
            assert "RETRY_TOPIC\x01t\x02" in call.properties
            assert "DELAY\x015\x02" in call.properties
        await running


async def test_a_lost_lock_stops_the_handing_out() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        lost: list[object] = []
        consumer.on_lost(lost.append)
        filled(cluster, 9)
        (message,) = await consumer.fetch(1)
        cluster.a.locked[QUEUE] = "somebody else"
        await asyncio.sleep(21)
        assert lost == [(QUEUE,)]
        assert consumer.assignment() == []
        assert not message.is_held
        commits = len(cluster.a.commits)
        del cluster.a.locked[QUEUE]
        await asyncio.sleep(2)
        assert consumer.assignment() == []  # the message is still in our hands
        await message.ack()
        await asyncio.sleep(2)
        assert consumer.assignment() == [QUEUE]
        assert len(cluster.a.commits) == commits


async def test_a_queue_is_unlocked_only_when_its_handler_has_ended() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        for queue_id in (0, 1):
            filled(cluster, 3, queue_id)
        first, second = consumer_of(cluster), consumer_of(cluster)
        seen: list[tuple[int, bytes]] = []

        async def slow(message: ReceivedMessage) -> None:
            seen.append((message.queue_id, message.body))
            await asyncio.sleep(50)

        await first.start()
        running = [asyncio.create_task(first.run(slow))]
        await asyncio.sleep(1)
        await second.start()
        running.append(asyncio.create_task(second.run(slow)))
        await asyncio.sleep(45)
        assert set(cluster.a.locked.values()) == {first.client_id}
        assert len(seen) == 2
        await asyncio.sleep(300)
        assert set(cluster.a.locked.values()) == {first.client_id, second.client_id}
        assert sorted(seen) == [(q, b"%d" % n) for q in (0, 1) for n in range(3)]
        await first.close()
        await second.close()
        await asyncio.gather(*running)
        assert cluster.a.locked == {}


async def test_a_seek_waits_for_the_message_in_hand() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 9)
        (message,) = await consumer.fetch(1)
        consumer.seek(QUEUE, 7)
        assert await consumer.fetch(1, 1_000) == []
        await message.nack()
        (message,) = await consumer.fetch(1, 1_000)
        assert message.body == b"7"


async def test_a_paused_ordered_queue_goes_on_where_it_was() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 9)
        (message,) = await consumer.fetch(1)
        consumer.pause(QUEUE)
        await message.ack()
        assert await consumer.fetch(1, 5_000) == []
        consumer.resume(QUEUE)
        (message,) = await consumer.fetch(1)
        assert message.body == b"1"


async def test_a_message_that_waits_for_its_retry_does_not_keep_its_queue() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 2)
        (message,) = await consumer.fetch(1)
        await message.nack(3_600_000)
        await asyncio.sleep(1)
        consumer.unsubscribe("t")
        await asyncio.sleep(1)
        assert cluster.a.locked == {}
        assert cluster.a.committed["g", "t", 0] == 0


async def test_a_close_commits_the_last_message_of_a_queue_being_released() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        filled(cluster, 3)
        consumer = consumer_of(cluster)
        await consumer.start()

        async def slow(message: ReceivedMessage) -> None:
            await asyncio.sleep(5)

        running = asyncio.create_task(consumer.run(slow))
        await asyncio.sleep(1)
        consumer.unsubscribe("t")
        await asyncio.sleep(1)
        assert cluster.a.locked
        await consumer.close()
        await running
        assert cluster.a.committed["g", "t", 0] == 1
        assert cluster.a.locked == {}


async def test_many_seeks_wait_for_the_message_in_hand() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 9)
        (message,) = await consumer.fetch(1)
        for offset in (7, 6, 5):
            consumer.seek(QUEUE, offset)
            await asyncio.sleep(0.1)
        assert await consumer.fetch(1, 1_000) == []
        await message.ack()
        (message,) = await consumer.fetch(2, 1_000)
        assert message.body == b"5"
        consumer.seek(QUEUE, 2)
        assert await consumer.fetch(1, 1_000) == []
        await message.ack()
        assert [m.body for m in await consumer.fetch(2, 1_000)] == [b"2"]


async def test_a_queue_that_was_moved_keeps_its_lock_while_its_message_is_in_hand() -> None:
    async with consuming({"a": 1}) as (cluster, consumer):
        filled(cluster, 9)
        (message,) = await consumer.fetch(1)
        consumer.seek(QUEUE, 7)
        consumer.unsubscribe("t")
        await asyncio.sleep(5)
        assert consumer.assignment() == []
        assert list(cluster.a.locked) == [QUEUE]
        await message.ack()
        await asyncio.sleep(1)
        assert cluster.a.locked == {}
        assert cluster.a.committed["g", "t", 0] == 7
