"""SimulatedServers: brokers that crash come back with what they had written."""

import asyncio
from pathlib import Path

import pytest

from roquet.client import Producer, ProducerConfig
from roquet.model.errors import ConnectFailed
from roquet.model.topic import READ_WRITE
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.admin.topic import CreateTopic
from simulation.hosts import Hosts
from simulation.servers import NAMESRV, SimulatedServers

TOPIC = CreateTopic(topic="t", read_queue_nums=1, write_queue_nums=1, perm=READ_WRITE)
HOST = "10.0.1.1"


@in_virtual_time
async def test_a_broker_that_crashed_comes_back_with_what_it_had() -> None:
    loop = this_loop()
    servers = SimulatedServers(0, 1, loop, Hosts(loop), (TOPIC,), Path("/store"))
    await servers.start()
    await asyncio.sleep(1)
    config = ProducerConfig(clock=loop.clock, client_ip="10.0.4.1", instance="one")
    async with Producer(NAMESRV, config=config) as producer:
        assert (await producer.send("t", b"1")).ok
        returned: list[str] = []
        assert await servers.crash(HOST, 5_000, returned.append)
        assert not servers.all_up
        assert not await servers.crash(HOST, 5_000, returned.append)
        await asyncio.sleep(6)
        assert servers.all_up
        assert returned == [HOST]
        assert servers.brokers[HOST].broker.log.store.bounds("t", 0) == (0, 1)
    assert [len(servers.began_ms[HOST]), len(servers.died_ms[HOST])] == [2, 1]
    assert servers.began_ms[HOST][1] == servers.died_ms[HOST][0] + 5_000


@in_virtual_time
async def test_a_topic_that_the_operator_did_not_create_is_not_created_by_a_send() -> None:
    loop = this_loop()
    servers = SimulatedServers(0, 1, loop, Hosts(loop), (TOPIC,))
    await servers.start()
    config = ProducerConfig(clock=loop.clock, client_ip="10.0.4.1", instance="one")
    async with Producer(NAMESRV, config=config) as producer:
        with pytest.raises(ConnectFailed, match="no broker would create it"):
            await producer.send("other", b"1")
