"""Notices to brokers about the member with the lowest id."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.channel import Channel
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.testing.clock import this_loop
from roquet.wire.calls.replication import NotifyMinBrokerId
from roquet.wire.calls.route import RegisterBroker

pytestmark = pytest.mark.virtual_time


class Listener:
    """A broker that notes the notices which it gets."""

    def __init__(self) -> None:
        self.notices: list[NotifyMinBrokerId] = []
        router = Router()
        router.add(NotifyMinBrokerId, self.note)
        self.server = Server(router, host="127.0.0.1", clock=this_loop().clock)

    def note(self, call: NotifyMinBrokerId, peer: Peer) -> None:
        self.notices.append(call)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def listeners(count: int) -> AsyncIterator[list[Listener]]:
    found = [Listener() for _ in range(count)]
    for each in found:
        await each.server.start()
    try:
        yield found
    finally:
        for each in found:
            await each.server.stop(0)


def at(address: str, broker_id: int) -> RegisterBroker:
    return RegisterBroker(
        broker_name="a",
        broker_addr=address,
        cluster_name="c",
        broker_id=broker_id,
        ha_server_addr=f"{address}0",
        enable_acting_master=True,
    )


def config(*, notifies: bool) -> NameServerConfig:
    return NameServerConfig(host="127.0.0.1", port=0, notify_lowest_id=notifies)


async def test_brokers_are_notified_of_a_smaller_id_and_of_its_loss() -> None:
    clock = this_loop().clock
    async with (
        listeners(2) as (leader, follower),
        NameServer(config(notifies=True), clock) as server,
        await Channel.connect("127.0.0.1", server.port, clock=clock) as first,
    ):
        await first.call(at(follower.address, 1))
        async with await Channel.connect("127.0.0.1", server.port, clock=clock) as second:
            await second.call(at(leader.address, 0))
            await asyncio.sleep(0.1)
            assert not leader.notices
            assert follower.notices == [
                NotifyMinBrokerId(
                    min_broker_id=0,
                    min_broker_addr=leader.address,
                    ha_broker_addr=f"{leader.address}0",
                )
            ]
        await asyncio.sleep(0.1)
        assert follower.notices[1:] == [
            NotifyMinBrokerId(
                min_broker_id=1,
                min_broker_addr=follower.address,
                offline_broker_addr=leader.address,
            )
        ]


async def test_a_broker_that_cannot_be_reached_delays_no_other() -> None:
    clock = this_loop().clock
    async with (
        listeners(1) as (follower,),
        NameServer(config(notifies=True), clock) as server,
        await Channel.connect("127.0.0.1", server.port, clock=clock) as channel,
    ):
        await channel.call(at("127.0.0.1:1", 2))
        await channel.call(at(follower.address, 3))
        await channel.call(at("127.0.0.1:2", 1))
        await asyncio.sleep(0.1)
        assert [notice.min_broker_id for notice in follower.notices] == [1]


async def test_nobody_is_notified_by_default() -> None:
    clock = this_loop().clock
    async with (
        listeners(1) as (follower,),
        NameServer(config(notifies=False), clock) as server,
        await Channel.connect("127.0.0.1", server.port, clock=clock) as channel,
    ):
        await channel.call(at(follower.address, 1))
        await channel.call(at("127.0.0.1:1", 0))
        await asyncio.sleep(1)
        assert not follower.notices
