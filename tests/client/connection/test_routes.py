"""The route cache."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster

from roquet.client.config import ClientConfig
from roquet.client.connection.routes import NameServers, Routes
from roquet.model.errors import ConnectFailed, FieldError
from roquet.model.queue import MessageQueue
from roquet.net.pool import ChannelPool
from roquet.testing.clock import this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.route import GetRoute


def routes_of(*addresses: str) -> Routes:
    config: ClientConfig = config_of(ClientConfig)
    return Routes(NameServers(ChannelPool(clock=config.clock), addresses, config), config)


@asynccontextmanager
async def routing(**topics: dict[str, int]) -> AsyncIterator[tuple[FakeCluster, Routes]]:
    """A cluster with these topics, and routes that know none of them yet."""
    async with fake_cluster(**topics) as cluster:
        yield cluster, routes_of(cluster.address)


async def test_a_topics_queues_are_found_once_and_remembered() -> None:
    async with routing(t={"a": 2, "b": 1}) as (cluster, routes):
        assert routes.readable("t") is None
        results = [await routes.find_readable("t") for _ in range(3)]
        queues = [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)]
        assert results == [queues] * 3
        assert routes.writable("t") == queues
        assert cluster.asked == ["t"]
        assert routes.leader("b") == cluster.brokers["b"].address
        assert [broker.broker_name for broker in routes.brokers_of("t")] == ["a", "b"]


async def test_a_forgotten_topic_is_refreshed_no_more_until_somebody_asks() -> None:
    async with routing(t={"a": 1}, u={"a": 1}) as (cluster, routes):
        for topic in ("t", "u"):
            assert await routes.find_readable(topic)
        routes.forget("t")
        assert (routes.readable("t"), routes.writable("t")) == (None, None)
        await routes.refresh_all()
        assert cluster.asked == ["t", "u", "u"]
        assert routes.leader("a") == cluster.a.address
        assert await routes.find_readable("t")


async def test_concurrent_lookups_share_one_request() -> None:
    async with routing(t={"a": 2}) as (cluster, routes):
        await asyncio.gather(*(routes.refresh("t") for _ in range(50)))
        assert cluster.asked == ["t"]


async def test_a_cancelled_lookup_does_not_cancel_the_others() -> None:
    async with routing(t={"a": 2}) as (_cluster, routes):
        first = asyncio.create_task(routes.refresh("t"))
        second = asyncio.create_task(routes.refresh("t"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is not None


async def test_a_dead_name_server_is_passed_over() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        for order in (["127.0.0.1:1", cluster.address], [cluster.address, "127.0.0.1:1"]):
            assert await routes_of(*order).find_readable("t")


async def test_a_frozen_name_server_is_passed_over_soon_and_asked_last_from_then_on() -> None:
    async with fake_cluster(t={"a": 2}) as cluster, fake_cluster() as frozen:
        frozen.answer_ms = 3_600_000
        clock = this_loop().clock
        for order in ([frozen.address, cluster.address], [cluster.address, frozen.address]):
            routes, began_ms = routes_of(*order), clock.monotonic_ms()
            for _ in range(5):
                assert await routes.refresh("t")
            assert clock.monotonic_ms() - began_ms < 400


async def test_the_slow_one_answers_where_the_others_are_down() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        cluster.answer_ms = 1_000
        for order in (["127.0.0.1:1", cluster.address], [cluster.address, "127.0.0.1:1"]):
            assert await routes_of(*order).find_readable("t")


async def test_a_name_server_that_is_not_ready_is_passed_over() -> None:
    async with fake_cluster(t={"a": 2}) as cluster:
        cluster.unready = 1
        assert await routes_of(cluster.address, cluster.address).find_readable("t")


async def test_an_error_without_a_name_server_says_what_to_do() -> None:
    with pytest.raises(ConnectFailed, match=r"no name server answered at 127.0.0.1:1 .*roquet dev"):
        await routes_of("127.0.0.1:1").find_readable("t")


async def test_a_new_topic_borrows_the_queues_it_will_have() -> None:
    async with routing(TBW102={"a": 8, "b": 3}) as (cluster, routes):
        await routes.find_writable("new", 4, deadline_ms=0)
        by_broker = [queue.broker_name for queue in routes.writable("new") or []]
        assert (by_broker.count("a"), by_broker.count("b")) == (4, 3)
        assert routes.readable("new") is None  # it does not exist yet
        cluster.topics["new"] = {"a": 1}
        await routes.refresh_all()
        assert routes.writable("new") == routes.readable("new") == [MessageQueue("new", "a", 0)]


async def test_a_topic_that_cannot_be_created_is_an_error() -> None:
    async with routing(t={"a": 1}) as (_cluster, routes):
        with pytest.raises(ConnectFailed, match="topic 'other' does not exist"):
            await routes.find_writable("other", 4, deadline_ms=1_000)
        assert this_loop().clock.monotonic_ms() == 1_000


async def test_a_waiting_lookup_gets_the_topic_once_it_exists() -> None:
    async with routing(t={"a": 1}) as (cluster, routes):
        waiting = asyncio.create_task(routes.find_writable("late", 4, deadline_ms=3_000))
        await asyncio.sleep(1)
        cluster.topics["late"] = {"a": 1}
        await waiting
        assert routes.writable("late")


async def test_a_known_route_stays_when_the_topic_is_unknown_later() -> None:
    async with routing(t={"a": 1}) as (cluster, routes):
        await routes.refresh("t")
        del cluster.topics["t"]
        assert await routes.refresh("t") is None
        assert routes.readable("t")


async def test_listeners_are_called_for_changed_routes_only() -> None:
    async with routing(t={"a": 1, "b": 1}) as (cluster, routes):
        changed: list[str] = []
        routes.on_change(changed.append)
        for _ in range(3):
            await routes.refresh("t")
        assert changed == ["t"]
        cluster.topics["t"] = {"b": 1, "a": 1}  # the same in another order
        await routes.refresh("t")
        assert changed == ["t"]
        cluster.topics["t"] = {"b": 1}
        await routes.refresh("t")
        assert changed == ["t", "t"]
        with pytest.raises(ConnectFailed, match="no address of broker a"):
            routes.leader("a")


async def test_routes_are_refreshed_every_30_s_and_after_an_invalidation() -> None:
    async with routing(t={"a": 1}) as (cluster, routes):
        await routes.refresh("t")
        keeping = asyncio.create_task(routes.refresh_forever())
        await asyncio.sleep(62)
        assert len(cluster.asked) == 3
        for _ in range(100):
            routes.invalidate()
            await asyncio.sleep(0.001)
        assert len(cluster.asked) == 4
        await asyncio.sleep(1)
        assert len(cluster.asked) == 5
        keeping.cancel()


async def test_a_lasting_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with routing(t={"a": 1}) as (cluster, routes):
        await routes.refresh("t")
        keeping = asyncio.create_task(routes.refresh_forever())
        await cluster.server.stop(0)
        await asyncio.sleep(200)
        assert caplog.text.count("no name server answered") == 1
        assert not keeping.done()
        keeping.cancel()


async def test_an_unreadable_route_changes_and_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with routing(t={"a": 1}, u={"a": 1}) as (cluster, routes):
        await routes.refresh("t")
        await routes.refresh("u")
        ask = NameServers.ask

        async def garbled(servers: NameServers, call: GetRoute) -> Reply:
            return Reply(body=b"[not a route") if call.topic == "t" else await ask(servers, call)

        monkeypatch.setattr(NameServers, "ask", garbled)
        with pytest.raises(FieldError):
            await routes.refresh("t")
        cluster.topics.update(t={"a": 2}, u={"a": 3})
        keeping = asyncio.create_task(routes.refresh_forever())
        await asyncio.sleep(62)
        assert len(routes.readable("t") or ()) == 1
        assert len(routes.readable("u") or ()) == 3
        monkeypatch.undo()
        await asyncio.sleep(31)
        assert len(routes.readable("t") or ()) == 2
        keeping.cancel()


async def test_a_broker_name_has_a_leader_and_followers() -> None:
    async with routing(t={"a": 1}) as (cluster, routes):
        for broker_id in (2, 1):
            await cluster.add_replica("a", broker_id)
        await routes.refresh("t")
        leader, first, second = (cluster.addresses("a")[broker_id] for broker_id in range(3))
        assert routes.addresses("a") == {0: leader, 1: first, 2: second}
        assert (routes.leader("a"), routes.followers("a")) == (leader, [first, second])
        assert routes.any_member("a") == leader
        await cluster.lose_master("a")
        await routes.refresh("t")
        assert routes.writable("t") is None, "followers take no messages"
        assert routes.readable("t") == [MessageQueue("t", "a", 0)]
        assert (routes.any_member("a"), routes.followers("a")) == (first, [first, second])
        with pytest.raises(ConnectFailed, match="no address of broker a"):
            routes.leader("a")
        with pytest.raises(ConnectFailed, match="no address of broker z"):
            routes.any_member("z")


async def test_the_latest_route_says_where_a_broker_is() -> None:
    async with routing(t={"a": 1}, u={"a": 1}) as (cluster, routes):
        await cluster.add_replica("a")
        await routes.refresh("t")
        await routes.refresh("u")
        cluster.promote("a")
        del cluster.topics["u"]
        for topic in ("t", "u", "t"):
            await routes.refresh(topic)
            assert routes.leader("a") == cluster.a.address, "not that of u's old route"
