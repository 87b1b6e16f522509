"""The cluster behind the proxy, with what the proxy remembers of it."""

import asyncio

import pytest

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client import ClientConfig
from roquet.model.errors import CallError
from roquet.model.topic import SubscriptionGroup
from roquet.proxy.cluster import FRESH_MS, ProxiedCluster, SettingsCache
from roquet.proxy.config import ProxyConfig
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.calls.admin.topic import GetGroup


async def test_a_topic_type_is_asked_for_again_when_it_is_old(running: Cluster) -> None:
    clock = this_loop().clock
    cluster = ProxiedCluster(running.namesrv_addr, ProxyConfig(clock=clock))
    cluster.start()
    await cluster.find_route("NORM")
    assert await cluster.topic_type("NORM") is None
    async with AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin:
        await topics.update(admin, "NORM", TopicSettings(attributes="+message.type=FIFO"))
    assert await cluster.topic_type("NORM") is None
    await clock.sleep(FRESH_MS + 1)
    assert await cluster.topic_type("NORM") == "FIFO"
    await cluster.close()


async def test_settings_stay_known_while_no_broker_answers(running: Cluster) -> None:
    clock = this_loop().clock
    cluster = ProxiedCluster(running.namesrv_addr, ProxyConfig(clock=clock))
    cluster.start()
    await cluster.find_route("FIFOT")
    assert await cluster.topic_type("FIFOT") == "FIFO"
    await running.stop_broker(0)
    await clock.sleep(FRESH_MS + 1)
    assert await cluster.topic_type("FIFOT") == "FIFO"
    await cluster.close()


async def test_two_proxies_of_one_host_are_two_clients_to_the_brokers() -> None:
    proxies = [ProxiedCluster("127.0.0.1:1", ProxyConfig(clock=this_loop().clock)) for _ in "ab"]
    ids = {one.session.identity.client_id for one in proxies}
    assert len(ids) == 2
    assert all("@roquet-proxy#" in client_id for client_id in ids)


async def test_an_unknown_topic_and_an_unknown_broker_are_refused(running: Cluster) -> None:
    cluster = ProxiedCluster(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    cluster.start()
    with pytest.raises(ProxyRefusal) as caught:
        await cluster.find_route("nowhere")
    assert caught.value.code is StatusCode.TOPIC_NOT_FOUND
    await cluster.close()


async def test_settings_that_no_broker_was_asked_for_are_not_remembered(running: Cluster) -> None:
    cluster = ProxiedCluster(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    cluster.start()
    assert not (await cluster.group("G_fifo", "")).consume_message_orderly  # no broker is known
    await cluster.find_route("NORM")
    assert (await cluster.group("G_fifo", "NORM")).consume_message_orderly
    await cluster.close()


async def test_settings_are_not_made_up_while_no_broker_answers(running: Cluster) -> None:
    cluster = ProxiedCluster(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    cluster.start()
    await cluster.find_route("NORM")
    await running.stop_broker(0)
    with pytest.raises(CallError):
        await cluster.group("G_fifo", "NORM")
    await running.start_broker(0)
    await asyncio.sleep(60)
    assert (await cluster.group("G_fifo", "NORM")).group_name == "G_fifo"
    await cluster.close()


async def test_names_that_clients_make_up_do_not_pile_up(running: Cluster) -> None:
    cluster = ProxiedCluster(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    cluster.start()
    await cluster.find_route("NORM")
    cache = SettingsCache(cluster.session, SubscriptionGroup, this_loop().clock, entries_max=3)
    for number in range(9):
        group = f"G_{number}"
        await cache.get(group, "NORM", GetGroup(group=group))
    assert len(cache) == 3
    await cluster.close()
