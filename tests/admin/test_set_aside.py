import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from roquet.admin import set_aside
from roquet.admin.client import AdminClient
from roquet.admin.dead_letters import open_reader
from roquet.store.store import Draft
from roquet.testing.cluster import cluster

TIMER = "rmq_sys_wheel_timer"


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Name servers hear of a new topic a moment later, and timers have their turns."""
    async with asyncio.timeout(20):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_kept_messages_of_all_brokers_are_found_and_put_back_once() -> None:
    async with cluster(brokers=2) as running, AdminClient(running.namesrv_addr) as admin:

        async def are_known(count: int) -> bool:
            route = await admin.route(set_aside.TOPIC)
            total = sum(server.broker.delivery.set_aside.total for server in running.brokers)
            return total == count and route is not None and len(route.queue_datas) == 2

        assert not await set_aside.topic_exists(admin)
        for server in running.brokers:
            for _ in range(2):
                server.broker.log.ingest.as_it_is(Draft(TIMER, 0, b"body", b"\xff"))
        await until(partial(are_known, 4))
        async with open_reader(running.namesrv_addr) as reader:
            found, ends = await set_aside.list_messages(reader)
            assert [one.offset for one in found].count(0) == 2
            assert {one.broker for one in found} == {"broker-a", "broker-b"}
            assert all(one.size > 91 and one.service == "timer" for one in found)
            await set_aside.save_retried(reader, ends)
            assert await set_aside.list_messages(reader, not_retried_only=True) == ([], ends)
        assert await set_aside.retry(admin, found[:1]) == []
        await until(partial(are_known, 5))
