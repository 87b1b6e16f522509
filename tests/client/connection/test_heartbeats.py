"""Heartbeats to brokers, and the members of a group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster

from roquet.client.config import ClientConfig
from roquet.client.connection.session import Session
from roquet.model.route import BrokerData
from roquet.model.subscription import ConsumerData, HeartbeatData, ProducerData
from roquet.wire.call import Call, R


@asynccontextmanager
async def session_of(address: str, group: str = "g") -> AsyncIterator[Session]:
    session = Session(address, config_of(ClientConfig))
    data = HeartbeatData(
        client_id=session.identity.client_id,
        producer_data_set=[ProducerData(group_name=group)],
        consumer_data_set=[ConsumerData(group_name=group)],
    )
    session.start(lambda: data)
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def beating(**topics: dict[str, int]) -> AsyncIterator[tuple[FakeCluster, Session]]:
    """A cluster with these topics, and a session that knows the route of `t`."""
    async with fake_cluster(**topics) as cluster, session_of(cluster.address) as session:
        await session.routes.refresh("t")
        yield cluster, session


async def test_every_broker_gets_a_heartbeat_at_once_and_every_30_s() -> None:
    async with beating(t={"a": 1, "b": 1}) as (cluster, session):
        a, b = cluster.a, cluster.brokers["b"]
        await asyncio.sleep(1)
        assert a.heartbeats
        assert b.heartbeats
        assert a.heartbeats[0].client_id == session.identity.client_id
        before = len(a.heartbeats)
        await asyncio.sleep(60)
        assert len(a.heartbeats) == before + 2


async def test_heartbeats_go_out_in_the_order_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {"t": dict.fromkeys("abcdef", 1)}
    async with beating(**topics) as (_cluster, session):
        await asyncio.sleep(1)
        addresses: list[str] = []
        call_broker = session.pool.call

        async def recorded(address: str, call: Call[R], timeout_ms: int) -> R:
            addresses.append(address)
            return await call_broker(address, call, timeout_ms)

        monkeypatch.setattr(session.pool, "call", recorded)
        await session.membership.send_heartbeats()
        assert len(addresses) == 6
        assert addresses == sorted(addresses)


async def test_a_new_broker_gets_a_heartbeat_at_once() -> None:
    async with beating(t={"a": 1}) as (cluster, session):
        await asyncio.sleep(5)
        new = await cluster.add("b")
        cluster.topics["t"]["b"] = 1
        await session.routes.refresh("t")
        await asyncio.sleep(0.1)
        assert new.heartbeats


async def test_a_restarted_broker_gets_a_heartbeat_soon(caplog: pytest.LogCaptureFixture) -> None:
    async with beating(t={"a": 1}) as (cluster, session):
        await asyncio.sleep(5)
        port = cluster.a.server.port
        await cluster.a.server.stop(0)
        await asyncio.sleep(60)
        again = await cluster.add("a")
        await again.server.stop(0)
        again.server = type(again.server)(
            again.router, host="127.0.0.1", port=port, clock=session.config.clock
        )
        await again.server.start()
        await asyncio.sleep(5)
        assert again.heartbeats
        assert caplog.text.count(f"heartbeat to 127.0.0.1:{port}") == 1


async def test_members_come_from_any_broker_that_answers() -> None:
    async with fake_cluster(t={"a": 1, "b": 1}) as cluster, session_of(cluster.address) as session:
        assert await session.membership.members("g", "t") == ()  # no broker is known
        await session.routes.refresh("t")
        await session.membership.send_heartbeats()
        await cluster.a.server.stop(0)
        mine = [session.identity.client_id]
        assert [await session.membership.members("g", "t") for _ in range(9)] == [mine] * 9
        assert await session.membership.members("strangers", "t") == ()


async def test_a_leave_is_sent_to_all_brokers_even_if_one_is_down() -> None:
    async with beating(t={"a": 1, "b": 1}) as (cluster, session):
        await session.membership.send_heartbeats()
        await cluster.a.server.stop(0)
        await session.membership.leave(consumer="g")
        (left,) = cluster.brokers["b"].left
        assert (left.client_id, left.consumer_group, left.producer_group) == (
            session.identity.client_id,
            "g",
            None,
        )


@pytest.mark.parametrize("address", ["", "nowhere"])
async def test_an_invalid_address_does_not_end_the_heartbeats(
    caplog: pytest.LogCaptureFixture, address: str
) -> None:
    async with fake_cluster(t={"a": 1}) as cluster, session_of(cluster.address) as session:
        cluster.other_brokers = [
            BrokerData(cluster="c", broker_name="b", broker_addrs={1: address})
        ]
        await session.routes.refresh("t")
        assert not await session.membership.send_heartbeats()
        before = len(cluster.a.heartbeats)
        await asyncio.sleep(61)
        assert len(cluster.a.heartbeats) >= before + 2
        assert caplog.text.count("is not an address") == 1


async def test_consumers_send_heartbeats_to_replicas_and_producers_to_masters_alone() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        replica = await cluster.add_replica("a")
        producer = Session(cluster.address, config_of(ClientConfig))
        data = HeartbeatData(client_id="p", producer_data_set=[ProducerData(group_name="g")])
        producer.start(lambda: data)
        await producer.routes.refresh("t")
        await asyncio.sleep(1)
        assert {beat.client_id for beat in cluster.a.heartbeats} == {"p"}
        assert not replica.heartbeats
        async with session_of(cluster.address) as session:
            await session.routes.refresh("t")
            await asyncio.sleep(1)
            assert {beat.client_id for beat in replica.heartbeats} == {session.identity.client_id}
            await session.membership.leave(consumer="g")
            assert [left.consumer_group for left in replica.left] == ["g"]
        await producer.close()


async def test_a_new_replica_gets_the_heartbeats_of_consumers_at_once() -> None:
    async with beating(t={"a": 1}) as (cluster, session):
        await asyncio.sleep(5)
        replica = await cluster.add_replica("a")
        await session.routes.refresh("t")
        await asyncio.sleep(1)
        assert replica.heartbeats


async def test_members_come_from_a_replica_while_the_master_is_away() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, session_of(cluster.address) as session:
        await cluster.add_replica("a")
        await session.routes.refresh("t")
        await asyncio.sleep(1)
        await cluster.lose_master("a")
        await session.routes.refresh("t")
        assert await session.membership.members("g", "t") == [session.identity.client_id]
