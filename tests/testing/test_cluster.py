import asyncio
from pathlib import Path

import pytest

from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.model.errors import ConfigError, UsageError
from roquet.model.route import TopicRoute
from roquet.net.channel import Channel
from roquet.testing.cluster import BlockingCluster, Cluster, cluster
from roquet.wire.calls.route import GetRoute
from roquet.wire.fastjson import codec

FROM_THE_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


async def brokers_of(running: Cluster, topic: str) -> list[str]:
    async with await Channel.connect("127.0.0.1", running.namesrvs[0].port) as channel:
        reply = await channel.call(GetRoute(topic=topic))
        return [b.broker_name for b in codec.loads(reply.body, TopicRoute).broker_datas]


async def test_what_is_sent_to_a_cluster_is_received_from_it() -> None:
    async with cluster(brokers=2) as running:
        async with Producer(running.namesrv_addr) as producer:
            await producer.send("orders", b"one")
        async with PushConsumer(
            running.namesrv_addr, group="billing", topic="orders", config=FROM_THE_FIRST
        ) as consumer:
            message = await consumer.next(10_000)
        assert message is not None
        assert message.body == b"one"


async def test_every_broker_registers_with_every_name_server_before_the_test_begins() -> None:
    async with cluster(brokers=3, namesrvs=2) as running:
        assert [len(s.state.brokers.registrations) for s in running.namesrvs] == [3, 3]
        assert await brokers_of(running, "TBW102") == ["broker-a", "broker-b", "broker-c"]
        assert len(running.namesrv_addr.split(";")) == 2


async def test_a_broker_may_join_and_another_may_leave() -> None:
    async with cluster() as running:
        await running.add_broker()
        await running.stop_broker(0)
        assert await brokers_of(running, "TBW102") == ["broker-b"]


async def test_a_broker_with_files_comes_back_with_its_messages(tmp_path: Path) -> None:
    async with cluster(store=tmp_path) as running:
        async with Producer(running.namesrv_addr) as producer:
            await producer.send("orders", b"kept")
            address = running.broker_addrs[0]
            await running.stop_broker(0)
            await running.start_broker(0)
            assert running.broker_addrs[0] == address
        async with PushConsumer(
            running.namesrv_addr, group="billing", topic="orders", config=FROM_THE_FIRST
        ) as consumer:
            message = await consumer.next(10_000)
        assert message is not None
        assert message.body == b"kept"
    assert (tmp_path / "broker-a" / "commitlog").is_dir()


async def test_a_replica_has_its_masters_name_and_a_place_of_its_own(tmp_path: Path) -> None:
    async with cluster(store=tmp_path) as running:
        first, second = await running.add_replica(), await running.add_replica()
        ids = [(broker.config.broker_name, broker.config.broker_id) for broker in running.brokers]
        assert ids == [("broker-a", 0), ("broker-a", 1), ("broker-a", 2)]
        assert first.config.store_dir != second.config.store_dir
        assert (await running.add_broker()).config.broker_name == "broker-b"
        master = running.brokers[0].stream_address
        assert first.broker.replication.role.current.master_stream == master


async def test_settings_reach_the_brokers() -> None:
    async with cluster(default_queue_count=3) as running:
        assert running.brokers[0].config.default_queue_count == 3


async def test_a_setting_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match="no_such_thing"):
        async with cluster(no_such_thing=1):
            pass


async def test_wrong_numbers_are_named() -> None:
    for wrong in ({"brokers": "2"}, {"brokers": -1}, {"namesrvs": 1.5}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            cluster(**wrong)
    async with cluster() as running:
        for index in (1, -1, "broker-a"):
            with pytest.raises(UsageError, match="broker: "):
                await running.stop_broker(index)  # type: ignore[arg-type]


async def test_after_the_end_connections_are_refused() -> None:
    async with cluster() as running:
        ports = [running.namesrvs[0].port, running.brokers[0].port]
    for port in ports:
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)


def test_a_plain_test_can_use_a_cluster_too() -> None:
    with BlockingCluster(brokers=2) as running:
        running.stop_broker(1)
        running.start_broker(1)
        running.add_broker()
        assert running.add_replica(of=1).config.broker_name == "broker-b"
        running.stop_broker(3)
        assert [b.config.broker_name for b in running.brokers] == [
            "broker-a",
            "broker-b",
            "broker-c",
            "broker-b",
        ]
        assert len(running.broker_addrs) == 4
        assert running.namesrv_addr.startswith("127.0.0.1:")


def test_a_cluster_that_cannot_start_leaves_no_thread() -> None:
    with pytest.raises(ConfigError), BlockingCluster(no_such_thing=1):
        pass


async def test_many_brokers_have_names_of_their_own() -> None:
    async with cluster(brokers=0) as running:
        running.brokers = [None] * 26  # type: ignore[list-item]
        added = await running.add_broker()
        assert added.config.broker_name == "broker-aa"
