"""The proxy as a whole: what it serves, and that clients of both protocols share a group."""

import asyncio

import pytest
from tests.proxy.conftest import User, consumer_settings

from roquet.client import ConsumerConfig, PopConsumer
from roquet.metrics.text_format import MetricsPage
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos.pool import POOL
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster


async def test_the_methods_are_some_of_the_services(proxy: Proxy) -> None:
    known = POOL.FindServiceByName("apache.rocketmq.v2.MessagingService").methods_by_name
    assert proxy.methods.keys() <= set(known)


async def test_a_page_of_metrics_says_what_the_proxy_does(proxy: Proxy) -> None:
    user, page = User(proxy), MetricsPage({})
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"x")
        assert len(await user.receive(auto_renew=True)) == 1
        proxy.add_to(page)
    text = b"".join(page.chunks()).decode()
    for line in (
        'rocketmq_proxy_up{proxy_mode="cluster"} 1.0',
        "roquet_proxy_clients 1.0",
        "roquet_proxy_streams 1.0",
        "roquet_proxy_receipts 1.0",
        'roquet_rpc_seconds_count{code="OK",method="ReceiveMessage"} 1',
        'roquet_rpc_seconds_count{code="MESSAGE_NOT_FOUND",method="ReceiveMessage"} 1',
        'roquet_rpc_seconds_count{code="OK",method="SendMessage"} 1',
    ):
        assert f"{line}\n" in text


async def test_a_proxy_is_ready_while_its_cluster_has_a_broker(
    running: Cluster, proxy: Proxy
) -> None:
    clock = this_loop().clock
    assert proxy.unready == "the name servers were not asked yet"
    await clock.sleep(100)
    assert proxy.unready == ""
    await running.stop_broker(0)
    await clock.sleep(6_000)
    assert proxy.unready == "the name servers know of no broker"
    proxy.drain()
    await clock.sleep(6_000)
    assert proxy.unready == "the proxy stops"


async def test_a_proxy_that_stops_is_not_ready_again_by_an_answer_under_way(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = this_loop().clock

    async def slowly() -> str:
        await clock.sleep(1_000)
        return ""

    monkeypatch.setattr(proxy.cluster, "why_unready", slowly)
    await clock.sleep(5_500)
    proxy.drain()
    await clock.sleep(20_000)
    assert proxy.unready == "the proxy stops"


async def test_name_servers_that_do_not_answer_keep_nobody_from_renewing(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = User(proxy)
    async with user.telemetry(consumer_settings()):
        await user.receive(timeout_s=6)
        await user.send("NORM", b"x")
        (message,) = await user.receive(auto_renew=True)
        monkeypatch.setattr(proxy.cluster, "why_unready", asyncio.Event().wait)
        await asyncio.sleep(100)
        assert (await user.ack(message)).status.code == pb.OK


async def test_a_proxy_without_a_name_server_says_so(caplog: pytest.LogCaptureFixture) -> None:
    lonely = Proxy("127.0.0.1:9", ProxyConfig(clock=this_loop().clock))
    lonely.start()
    await this_loop().clock.sleep(20_000)
    assert "no name server answered at 127.0.0.1:9" in lonely.unready
    assert caplog.text.count("nothing can be sent or received now") == 1
    await lonely.close()


async def test_no_socket_is_between_the_proxy_and_a_broker_of_its_process(
    running: Cluster,
) -> None:
    broker, clock = running.brokers[0], this_loop().clock
    inside = Proxy(running.namesrv_addr, ProxyConfig(clock=clock))
    inside.start({broker.address: broker.server})
    await User(inside).send("NORM", b"first")
    this_loop().network.delay(1_000, 1_000)
    begun_ms = clock.now_ms()
    assert (await User(inside).send("NORM", b"x")).status.code == pb.OK
    assert clock.now_ms() == begun_ms
    this_loop().network.delay(0, 0)
    await inside.close()


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
