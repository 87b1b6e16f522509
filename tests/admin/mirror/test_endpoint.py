import pytest
from msgspec.structs import replace
from tests.admin.mirror.mirrored import send

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.topics import TopicSettings
from roquet.model.errors import CallError, CallRefused, ConnectFailed
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import cluster
from roquet.wire.calls.send import Send

QUEUE = MessageQueue("orders", "broker-a", 0)


async def test_records_come_as_they_are_stored_and_in_ranges() -> None:
    async with cluster(default_queue_count=1) as running:
        await send(running.namesrv_addr, 10)
        async with MirrorEndpoint(running.namesrv_addr, group="roquet-mirror-to-B") as endpoint:
            records, reply = await endpoint.records(QUEUE, 3, 2)
            assert [one.body for one in records] == [b"3", b"4"]
            assert (reply.next_begin_offset, reply.min_offset, reply.max_offset) == (5, 0, 10)
            between = [one.body async for one in endpoint.records_between(QUEUE, 8, 10)]
            assert between == [b"8", b"9"]


async def test_a_queue_is_locked_for_one_member_until_it_ends() -> None:
    async with cluster(default_queue_count=1) as running:
        await send(running.namesrv_addr, 1)
        namesrv = running.namesrv_addr
        async with MirrorEndpoint(namesrv, group="roquet-mirror-from-A") as second:
            async with MirrorEndpoint(namesrv, group="roquet-mirror-from-A") as first:
                await first.lock(QUEUE)
                await first.lock(QUEUE)
                with pytest.raises(CallError, match="another mirror copies this queue"):
                    await second.lock(QUEUE)
            await second.lock(QUEUE)


async def test_a_send_is_tried_once_and_on_a_known_connection() -> None:
    async with (
        cluster(default_queue_count=1, auto_create_topic=False) as running,
        MirrorEndpoint(running.namesrv_addr, group="roquet-mirror-from-A") as endpoint,
        AdminClient(running.namesrv_addr) as admin,
    ):
        await topics.create(admin, "orders", TopicSettings(read_queues=1, write_queues=1))
        call = Send(producer_group="g", topic="none", queue_id=0, born_timestamp=0, body=b"x")
        channel = await endpoint.channel(QUEUE)
        with pytest.raises(CallRefused, match="none"):
            await endpoint.send(QUEUE, call, channel)
        await channel.close()
        with pytest.raises(ConnectFailed, match="anew"):
            await endpoint.send(QUEUE, replace(call, topic="orders"), channel)
        assert await endpoint.max_offset(QUEUE) == 0
