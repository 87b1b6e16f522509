import pytest
from tests.admin.mirror.mirrored import send

from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.model.errors import CallRefused, ConnectFailed
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import cluster
from roquet.wire.calls.send import Send

QUEUE = MessageQueue("orders", "broker-a", 0)


async def test_records_come_as_they_are_stored_and_in_ranges() -> None:
    async with cluster(default_queue_count=1) as running:
        await send(running.namesrv_addr, 10)
        async with MirrorEndpoint(running.namesrv_addr, group="roquet-mirror-to-B") as endpoint:
            pulled = await endpoint.records(QUEUE, 3, 2)
            assert [one.body for one in pulled.records] == [b"3", b"4"]
            assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (5, 0, 10)
            between = [one.body async for one in endpoint.records_between(QUEUE, 8, 10)]
            assert between == [b"8", b"9"]


async def test_a_queue_is_locked_for_one_member_until_it_ends() -> None:
    async with cluster(default_queue_count=1) as running:
        await send(running.namesrv_addr, 1)
        namesrv = running.namesrv_addr
        async with MirrorEndpoint(namesrv, group="roquet-mirror-from-A") as second:
            async with MirrorEndpoint(namesrv, group="roquet-mirror-from-A") as first:
                assert await first.lock(QUEUE)
                assert await first.lock(QUEUE)
                assert not await second.lock(QUEUE)
            assert await second.lock(QUEUE)


async def test_a_send_is_tried_once_and_its_error_is_raised() -> None:
    async with (
        cluster(default_queue_count=1, auto_create_topic=False) as running,
        MirrorEndpoint(running.namesrv_addr, group="roquet-mirror-from-A") as endpoint,
    ):
        call = Send(producer_group="g", topic="none", queue_id=0, born_timestamp=0, body=b"x")
        with pytest.raises((CallRefused, ConnectFailed)):
            await endpoint.send(MessageQueue("none", "broker-a", 0), call)
