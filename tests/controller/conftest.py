"""A controller in virtual time, and brokers that talk to it through the network in memory."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.controller.state_store.interface import StateStore
from roquet.controller.state_store.memory import MemoryStore
from roquet.net.channel import Channel
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.rules.election.group import ReplicaGroup
from roquet.testing.clock import this_loop
from roquet.wire.calls import controller as calls
from roquet.wire.calls.replication import NotifyRoleChanged
from roquet.wire.calls.route import BrokerHeartbeat, BrokerHeartbeatReply
from roquet.wire.fastjson import codec

CONFIG = ControllerConfig(port=9878, advertise="127.0.0.1", lease_ms=1_000)
LEASE_MS = 1_000
WAIT_MS = 1_022
"""Time after which a lease of 1 s is over on any clock."""


@asynccontextmanager
async def controller(
    store: StateStore | None = None, **settings: Any
) -> AsyncIterator[ControllerServer]:
    config = replace(CONFIG, **settings)
    clock = this_loop().clock
    async with ControllerServer(config, clock, store=store or MemoryStore()) as server:
        yield server


class Broker:
    """A broker as a controller sees it: it sends requests and is told of elections."""

    def __init__(self, channel: Channel, server: Server, broker_id: int, name: str) -> None:
        self.channel = channel
        self.cluster = "C"
        self.address = f"127.0.0.1:{server.port}"
        self.server = server
        self.broker_id = broker_id
        self.name = name
        self.notices: list[NotifyRoleChanged] = []

    async def apply(self) -> None:
        """Get the id and say where it is."""
        code = f"{self.address};17"
        await self.channel.call(
            calls.ApplyBrokerId(
                cluster_name=self.cluster,
                broker_name=self.name,
                applied_broker_id=self.broker_id,
                register_check_code=code,
            )
        )
        await self.register()

    async def register(self) -> calls.RegisterWithControllerReply:
        return await self.channel.call(
            calls.RegisterWithController(
                cluster_name=self.cluster,
                broker_name=self.name,
                broker_id=self.broker_id,
                broker_address=self.address,
            )
        )

    async def beat(self, **fields: Any) -> BrokerHeartbeatReply:
        given = {"epoch": -1, "max_offset": 0, "heartbeat_timeout_mills": 10_000, **fields}
        return await self.channel.call(
            BrokerHeartbeat(
                cluster_name=self.cluster,
                broker_name=self.name,
                broker_addr=self.address,
                broker_id=self.broker_id,
                **given,
            )
        )

    async def elect(self) -> calls.ElectMasterReply:
        return await self.channel.call(
            calls.ElectMaster(cluster_name="C", broker_name=self.name, broker_id=self.broker_id)
        )

    async def join(self) -> None:
        """Apply, and send a heartbeat."""
        await self.apply()
        await self.beat()

    async def lead(self) -> None:
        """Join, and have a master elected."""
        await self.join()
        await self.elect()

    async def designate(self, broker_id: int, **fields: Any) -> calls.ElectMasterReply:
        """Ask as an operator that this broker is elected."""
        call = calls.ElectMaster(cluster_name="C", broker_name=self.name, broker_id=broker_id)
        return await self.channel.call(replace(call, designate_elect=True, **fields), 10_000)

    async def alter(self, epoch: int, version: int, *members: int) -> frozenset[int]:
        """Ask for another set; returns the set that the controller answers."""
        body = calls.SyncStateSet(sync_state_set=list(members), sync_state_set_epoch=version)
        reply = await self.channel.call(
            calls.AlterSyncStateSet(
                broker_name=self.name,
                master_broker_id=self.broker_id,
                master_epoch=epoch,
                body=codec.dumps(body),
            )
        )
        return frozenset(codec.loads(reply.body, calls.SyncStateSet).sync_state_set)

    async def replica_info(self) -> calls.GetReplicaInfoReply:
        return await self.channel.call(calls.GetReplicaInfo(broker_name=self.name))


@asynccontextmanager
async def broker(
    broker_id: int, *, port: int = 9878, name: str = "bc", address: str | None = None
) -> AsyncIterator[Broker]:
    """A broker with a connection to the controller at this port.

    It is told of elections unless it names another address.
    """
    async with AsyncExitStack() as stack:
        router = Router()
        server = await stack.enter_async_context(
            Server(router, host="127.0.0.1", clock=this_loop().clock)
        )
        channel = await Channel.connect("127.0.0.1", port, clock=this_loop().clock)
        await stack.enter_async_context(channel)
        found = Broker(channel, server, broker_id, name)
        found.address = address or found.address

        def noted(call: NotifyRoleChanged, _peer: Peer) -> None:
            found.notices.append(call)

        router.add(NotifyRoleChanged, noted)
        yield found


def stored(server: ControllerServer, name: str = "bc") -> ReplicaGroup:
    """The group as the leader has it."""
    group = server.controller.leadership.leader_state().group(name)
    assert group is not None
    return group


async def sleep_ms(ms: int) -> None:
    await this_loop().clock.sleep(ms)


@pytest.fixture
async def server() -> AsyncIterator[ControllerServer]:
    """A controller at the port of `CONFIG`, whose store is its memory."""
    async with controller() as server:
        yield server


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Closes what a test opens; named behind `server`, before that controller ends."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def one(server: ControllerServer) -> AsyncIterator[Broker]:
    """Broker 1, which has asked for nothing yet."""
    async with broker(1) as one:
        yield one


Trio: TypeAlias = tuple[Broker, Broker, Broker]


@asynccontextmanager
async def open_trio() -> AsyncIterator[Trio]:
    """Brokers 1 to 3 with heartbeats; 1 leads in epoch 1 with a set of all three."""
    async with broker(1) as one, broker(2) as two, broker(3) as three:
        for each in (one, two, three):
            await each.join()
        await one.elect()
        assert await one.alter(1, 1, 1, 2, 3) == {1, 2, 3}
        yield one, two, three


@pytest.fixture
async def trio(server: ControllerServer) -> AsyncIterator[Trio]:
    async with open_trio() as brokers:
        yield brokers
