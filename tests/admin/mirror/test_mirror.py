import asyncio

from tests.admin.mirror.mirrored import BACK, bodies, messages, mirror, run_once, two_clusters

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model.message import Message


async def send(namesrv: str, count: int, topic: str = "orders", start: int = 0) -> None:
    async with Producer(namesrv, config=ProducerConfig(new_topic_queues=2)) as producer:
        for number in range(start, start + count):
            await producer.send(
                topic, b"%d" % number, tag="T", keys=(f"k{number}",), properties={"n": str(number)}
            )


async def test_messages_are_copied_queue_by_queue_with_tags_keys_and_properties() -> None:
    async with two_clusters(default_queue_count=2) as (source, target):
        await send(source.namesrv_addr, 20)
        running = await run_once(source, target)
        assert running.faults == {}
        assert [one.fault for one in running.queues] == [None] * len(running.queues)
        before = await messages(source.namesrv_addr, "orders")
        after = await messages(target.namesrv_addr, "orders")
        assert before.keys() == after.keys()
        for queue, own in before.items():
            copies = after[queue]
            assert [m.body for m in copies] == [m.body for m in own]
            assert [m.message_id for m in copies] == [m.message_id for m in own]
            assert [(m.tag, m.keys, m.properties["n"]) for m in copies] == [
                (m.tag, m.keys, m.properties["n"]) for m in own
            ]
            assert [int(m.properties["ROQUET_BORN_MS"]) for m in copies] == [m.born_ms for m in own]


async def test_a_second_run_copies_only_what_is_new() -> None:
    async with two_clusters(default_queue_count=2) as (source, target):
        await send(source.namesrv_addr, 10)
        await run_once(source, target)
        await send(source.namesrv_addr, 10, start=10)
        running = await run_once(source, target)
        assert sum(one.copied for one in running.queues) == 10
        assert await bodies(target.namesrv_addr, "orders") == await bodies(
            source.namesrv_addr, "orders"
        )


async def test_two_mirrors_in_both_directions_make_no_loop() -> None:
    async with two_clusters(default_queue_count=1) as (a, b):
        await send(a.namesrv_addr, 5)
        await send(b.namesrv_addr, 5, start=100)
        async with (
            mirror(a.namesrv_addr, b.namesrv_addr) as there,
            mirror(b.namesrv_addr, a.namesrv_addr, BACK) as back,
        ):
            tasks = [asyncio.create_task(one.follow()) for one in (there, back)]
            await asyncio.sleep(1.5)
            await send(a.namesrv_addr, 5, start=5)
            await send(b.namesrv_addr, 5, start=105)
            await asyncio.sleep(1.5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert there.faults == back.faults == {}
        expected = sorted(b"%d" % n for n in [*range(10), *range(100, 110)])
        for one in (a, b):
            (found,) = (await bodies(one.namesrv_addr, "orders")).values()
            assert sorted(found) == expected


async def test_a_group_goes_on_in_the_target_where_it_was() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(target.namesrv_addr, 3, start=50)  # offsets differ
        await send(source.namesrv_addr, 20)
        async with AdminClient(source.namesrv_addr) as admin:
            await groups.create(admin, "billing", {"retry_max_times": 3})
        async with PullConsumer(source.namesrv_addr, group="billing") as consumer:
            (queue,) = await consumer.queues("orders")
            await consumer.commit(queue, 12)
        running = await run_once(source, target, groups=("bill*",))
        assert running.faults == {}
        async with PullConsumer(target.namesrv_addr, group="billing") as consumer:
            (queue,) = await consumer.queues("orders")
            offset = await consumer.committed(queue)
            assert offset == 15
            assert (await consumer.pull(queue, offset)).messages[0].body == b"12"
        # Later runs search in the target.
        async with PullConsumer(source.namesrv_addr, group="billing") as consumer:
            await consumer.commit(queue, 14)
        await run_once(source, target, groups=("bill*",))
        async with PullConsumer(target.namesrv_addr, group="billing") as consumer:
            assert await consumer.committed(queue) == 17


async def test_bodies_cross_as_they_are_compressed() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        config = ProducerConfig(compress_over=100)
        async with Producer(source.namesrv_addr, config=config) as producer:
            for number in range(6):
                await producer.send(Message("orders", (b"%d" % number) * (1 + 1000 * (number % 2))))
        await run_once(source, target)
        before = await messages(source.namesrv_addr, "orders")
        after = await messages(target.namesrv_addr, "orders")
        for queue, own in before.items():
            assert [m.body for m in after[queue]] == [m.body for m in own]
            assert [m.sys_flag for m in after[queue]] == [m.sys_flag for m in own]
