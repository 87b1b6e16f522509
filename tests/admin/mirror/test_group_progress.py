from collections.abc import Sequence

from tests.admin.mirror.mirrored import BACK, mirror, run_once, send, two_clusters

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.model.queue import MessageQueue
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.admin.topic import GetGroup
from roquet.wire.fastjson import codec

QUEUE = MessageQueue("orders", "broker-a", 0)


async def commit(namesrv: str, offset: int) -> None:
    async with AdminClient(namesrv) as admin:
        changes = {"retry_max_times": 3, "attributes": {"+priority.factor": "50"}}
        await groups.create(admin, "billing", changes)
    async with PullConsumer(namesrv, group="billing") as consumer:
        await consumer.commit(QUEUE, offset)


async def committed(namesrv: str) -> int | None:
    async with PullConsumer(namesrv, group="billing") as consumer:
        return await consumer.committed(QUEUE)


async def unread(namesrv: str) -> Sequence[bytes]:
    """What the group gets next."""
    async with PullConsumer(namesrv, group="billing") as consumer:
        offset = await consumer.committed(QUEUE)
        assert offset is not None
        return [message.body for message in (await consumer.pull(QUEUE, offset)).messages]


async def test_a_group_goes_on_in_the_target_where_it_was() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(target.namesrv_addr, 3, start=50)  # offsets differ
        await commit(target.namesrv_addr, 3)
        await send(source.namesrv_addr, 20)
        await commit(source.namesrv_addr, 12)
        running = await run_once(source, target, groups=("bill*",))
        assert running.faults == {}
        assert await unread(target.namesrv_addr) == [b"%d" % n for n in range(12, 20)]
        await commit(source.namesrv_addr, 14)  # a later run looks in the target
        await run_once(source, target, groups=("bill*",))
        assert await committed(target.namesrv_addr) == 17


async def test_a_group_is_made_in_the_target_with_its_settings() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 2)
        await commit(source.namesrv_addr, 1)
        assert (await run_once(source, target, groups=("bill*",))).faults == {}
        async with AdminClient(target.namesrv_addr) as admin:
            answers, _ = await admin.ask_each(await admin.brokers(), GetGroup(group="billing"))
        (made,) = [codec.loads(reply.body, SubscriptionGroup) for reply in answers.values()]
        assert (made.retry_max_times, made.attributes["priority.factor"]) == (3, "50")


async def test_a_group_skips_no_message_that_producers_sent_to_the_target_meanwhile() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 4)
        await commit(source.namesrv_addr, 2)
        await run_once(source, target, groups=("billing",))
        await send(target.namesrv_addr, 2, start=50)
        await send(source.namesrv_addr, 2, start=4)
        await commit(source.namesrv_addr, 6)
        for _ in range(2):
            await run_once(source, target, groups=("billing",))
            assert await unread(target.namesrv_addr) == [b"50", b"51", b"4", b"5"]


async def test_a_group_that_is_new_in_the_target_skips_no_message_that_producers_sent_there() -> (
    None
):
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 4)
        await send(target.namesrv_addr, 2, start=50)  # producers have moved before the first copy
        await commit(source.namesrv_addr, 4)
        await run_once(source, target, groups=("billing",))
        assert await unread(target.namesrv_addr) == [b"50", b"51", b"0", b"1", b"2", b"3"]


async def test_a_group_goes_on_between_copies_and_messages_of_the_targets_own() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        for start in range(0, 60, 20):
            await send(source.namesrv_addr, 20, start=start)
            await run_once(source, target)
            await send(target.namesrv_addr, 3, start=1_000 + start)
        await commit(target.namesrv_addr, 46)  # it has handled the target's first six
        for done, following in ((41, b"41"), (55, b"55"), (60, b"1040")):
            await commit(source.namesrv_addr, done)
            await run_once(source, target, groups=("billing",))
            assert (await unread(target.namesrv_addr))[0] == following


async def test_progress_in_the_target_does_not_move_back() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 20)
        await commit(source.namesrv_addr, 12)
        await run_once(source, target, groups=("billing",))
        await commit(source.namesrv_addr, 4)
        await run_once(source, target, groups=("billing",))
        assert await committed(target.namesrv_addr) == 12


async def test_a_group_with_members_in_the_target_is_left_alone() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(source.namesrv_addr, 20)
        await commit(source.namesrv_addr, 12)
        await run_once(source, target)
        async with PushConsumer(target.namesrv_addr, group="billing", topic="orders"):
            running = await run_once(source, target, groups=("billing",))
        assert "it has members in the target" in running.faults["billing"]


async def test_a_group_that_moves_between_mirrored_clusters_skips_no_message_of_either() -> None:
    async with two_clusters(default_queue_count=1) as (a, b):
        await send(b.namesrv_addr, 4, start=100)
        async with mirror(b.namesrv_addr, a.namesrv_addr, BACK) as back:
            await back.once()
        await send(a.namesrv_addr, 4)
        await send(b.namesrv_addr, 2, start=104)  # not copied to A yet
        await commit(a.namesrv_addr, 7)  # has read 100 to 103, and 0 to 2
        await run_once(a, b, groups=("billing",))
        assert await unread(b.namesrv_addr) == [b"104", b"105", b"0", b"1", b"2", b"3"]
