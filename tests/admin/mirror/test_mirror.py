import asyncio
from itertools import count

import pytest
from tests.admin.mirror.mirrored import (
    BACK,
    bodies,
    messages,
    mirror,
    run_once,
    send,
    two_clusters,
    until_copied,
)

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.mirror import mirror as mirror_module
from roquet.admin.mirror.queue_copier import QueueCopier
from roquet.client.producer import Producer
from roquet.model.errors import ConnectFailed, UsageError
from roquet.testing.cluster import cluster


async def test_messages_are_copied_queue_by_queue_with_tags_keys_and_properties() -> None:
    async with two_clusters(default_queue_count=2) as (source, target):
        await send(source.namesrv_addr, 20)
        running = await run_once(source, target)
        assert running.faults == {}
        assert {one.fault for one in running.queues} == {None}
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
        expected = await bodies(source.namesrv_addr, "orders")
        assert await bodies(target.namesrv_addr, "orders") == expected


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


async def test_a_topic_that_cannot_be_copied_says_why_and_the_others_go_on() -> None:
    async with (
        cluster(default_queue_count=1) as source,
        cluster(default_queue_count=1, max_message_size=1_000) as target,
    ):
        await send(source.namesrv_addr, 3)
        await send(source.namesrv_addr, 2, topic="other")
        async with Producer(source.namesrv_addr) as producer:
            await producer.send("other", bytes(2_000))
            await producer.send("other", b"behind it")
        running = await run_once(source, target)
        faults = {one.topic: (one.fault or "", one.copied) for one in running.queues}
        assert faults["orders"] == ("", 3)
        fault, copied = faults["other"]
        assert "offset 2: the target refuses it" in fault
        assert fault.endswith("--skip-refused leaves such messages out")
        assert copied == 2


async def test_a_message_that_the_target_never_takes_may_be_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        cluster(default_queue_count=1) as source,
        cluster(default_queue_count=1, max_message_size=1_000) as target,
    ):
        await send(source.namesrv_addr, 2)
        async with Producer(source.namesrv_addr) as producer:
            await producer.send("orders", bytes(2_000))
            await producer.send("orders", b"long", properties={"long": "x" * 32_600})
            await producer.send("orders", b"behind them")
        for run in range(2):
            (queue,) = (await run_once(source, target, skip_refused=True)).queues
            assert (queue.fault, queue.lag) == (None, 0)
            assert (queue.copied, queue.refused) == ((3, 2) if run == 0 else (0, 0))
        assert await bodies(target.namesrv_addr, "orders") == {0: [b"0", b"1", b"behind them"]}
        assert caplog.text.count("the target refuses it") == 2
        assert "orders@broker-a:0 offset 3" in caplog.text


async def test_a_refusal_of_more_than_a_message_leaves_nothing_out() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 2)
        await run_once(source, target)
        await send(source.namesrv_addr, 1, start=2)
        for broker in target.brokers:
            broker.broker.control.settings.change({"brokerPermission": "4"}, 0)
        (queue,) = (await run_once(source, target, skip_refused=True)).queues
        assert (queue.copied, queue.refused) == (0, 0)
        assert "offset 2: the target refuses it" in str(queue.fault)


async def test_a_message_whose_copy_has_too_long_properties_says_so() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        async with Producer(source.namesrv_addr) as producer:
            await producer.send("orders", b"a", properties={"ROQUET_MIRRORED": "B/orders/a/0/0/x"})
            await producer.send("orders", b"b", properties={"long": "x" * 32_600})
        (queue,) = (await run_once(source, target, topics=("orders",))).queues
        assert "offset 1: the target refuses it" in str(queue.fault)
        assert "properties" in str(queue.fault)
        assert await bodies(target.namesrv_addr, "orders") == {0: [b"a"]}


async def test_a_target_topic_that_was_given_fewer_queues_gets_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror_module, "STOPPED_PAUSE_MS", 300)
    monkeypatch.setattr(mirror_module, "PERIOD_MS", 300)
    fewer = topics.TopicSettings(read_queues=1, write_queues=1)
    async with two_clusters() as (source, target):
        await send(source.namesrv_addr, 6)
        async with (
            mirror(source.namesrv_addr, target.namesrv_addr) as running,
            AdminClient(target.namesrv_addr) as admin,
        ):
            task = asyncio.create_task(running.follow())
            await until_copied(target, 6)
            await topics.update(admin, "orders", fewer)
            await send(source.namesrv_addr, 6, start=6)
            await until_copied(target, 12)
            task.cancel()
        expected = await bodies(source.namesrv_addr, "orders")
        assert await bodies(target.namesrv_addr, "orders") == expected


async def test_a_long_run_goes_on_after_a_late_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "GIVE_UP_MS", 200)
    step, steps = QueueCopier.step, count(1)

    async def failing_step(copier: QueueCopier) -> bool:
        if next(steps) == 20:
            raise ConnectFailed("the target is away")
        return await step(copier)

    monkeypatch.setattr(QueueCopier, "step", failing_step)
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 150)
        (queue,) = (await run_once(source, target, rate=50)).queues
        assert (queue.copied, queue.fault) == (150, None)


async def test_a_pattern_that_no_topic_matches_is_wrong_use() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        with pytest.raises(UsageError, match=r"no topic none\*"):
            await run_once(source, target, topics=("none*",))


async def test_source_and_target_are_two_clusters() -> None:
    async with two_clusters() as (source, _):
        with pytest.raises(UsageError, match="one cluster"):
            await run_once(source, source)
