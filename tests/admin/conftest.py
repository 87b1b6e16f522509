from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.failover_group import Group, group

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.model.topic import DataVersion, TopicConfig
from roquet.net.address import split_address
from roquet.net.channel import Channel
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.bodies import RegisterBrokerBody, TopicsOfBroker
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.fastjson import codec


class ClusterWithAdmin:
    """Two brokers, and an admin client that is connected to them."""

    def __init__(self, running: Cluster, admin: AdminClient) -> None:
        self.running = running
        self.admin = admin
        self.namesrv = running.namesrv_addr
        self.clock = this_loop().clock

    async def add_replica(self, name: str, address: str, *topics: str) -> Channel:
        """Register a replica with id 1 of a broker name; the connection keeps it registered."""
        host, port = split_address(self.namesrv)
        channel = await Channel.connect(host, port, clock=self.clock)
        table = {topic: TopicConfig(topic_name=topic) for topic in ("any", "other", *topics)}
        wrapper = TopicsOfBroker(topic_config_table=table, data_version=DataVersion())
        await channel.call(
            RegisterBroker(
                broker_name=name,
                broker_addr=address,
                cluster_name="DefaultCluster",
                broker_id=1,
                enable_acting_master=False,
                body=codec.dumps(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)),
            )
        )
        return channel

    async def settle(self) -> None:
        """Wait until the name server knows of changes."""
        await self.clock.sleep(1_000)


@asynccontextmanager
async def open_cluster(**settings: Any) -> AsyncIterator[ClusterWithAdmin]:
    clock = this_loop().clock
    async with (
        cluster(brokers=2, clock=clock, auto_create_topic=False, **settings) as running,
        AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin,
    ):
        yield ClusterWithAdmin(running, admin)


@pytest.fixture(name="cluster")
async def _cluster() -> AsyncIterator[ClusterWithAdmin]:
    async with open_cluster() as running:
        yield running


@pytest.fixture
async def running() -> AsyncIterator[Group]:
    """Three brokers of one name, and the controller that elects their master."""
    async with group() as running:
        yield running
