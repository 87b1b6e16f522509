"""The proxy as a whole: what it serves, and that clients of both protocols share a group."""

import asyncio

from tests.proxy.conftest import User, consumer_settings

from roquet.client import ConsumerConfig, PopConsumer
from roquet.proxy.protos.pool import POOL
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster


async def test_the_methods_are_some_of_the_services(proxy: Proxy) -> None:
    known = POOL.FindServiceByName("apache.rocketmq.v2.MessagingService").methods_by_name
    assert proxy.methods.keys() <= set(known)


async def test_members_of_both_protocols_handle_each_message_once(
    running: Cluster, proxy: Proxy
) -> None:
    user, clock = User(proxy), this_loop().clock
    seen: list[bytes] = []

    async def receive() -> None:
        while True:
            for message in await user.receive(timeout_s=10, count=4):
                seen.append(message.body)
                await user.ack(message)

    async def pop() -> None:
        config = ConsumerConfig(clock=clock)
        async with PopConsumer(
            running.namesrv_addr, group="g", topic="NORM", config=config
        ) as popper:
            async for message in popper.messages():
                seen.append(message.body)
                await message.ack()

    async with user.telemetry(consumer_settings()):
        tasks = [asyncio.create_task(receive()), asyncio.create_task(pop())]
        await asyncio.sleep(10)
        for number in range(60):
            await user.send("NORM", b"%d" % number)
        await asyncio.sleep(120)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(60)]


async def test_unacknowledged_messages_come_soon_after_the_proxy_has_stopped(
    running: Cluster, proxy: Proxy
) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"x")
        assert len(await user.receive(auto_renew=True)) == 1
    await proxy.close()
    config = ConsumerConfig(clock=this_loop().clock)
    async with PopConsumer(running.namesrv_addr, group="g", topic="NORM", config=config) as popper:
        assert (await popper.next(10_000)) is not None
