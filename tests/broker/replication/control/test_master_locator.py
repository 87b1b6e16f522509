"""Where an elected master streams its log."""

import asyncio

import pytest
from tests.broker.replication.controlled_parts import ControlledParts

from roquet.broker.replication.control.master_locator import MasterLocator
from roquet.broker.replication.role import Role
from roquet.net.pool import ChannelPool
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.replication import ExchangeHaInfo, ExchangeHaInfoReply

ADDRESS = "127.0.0.1:10911"

FOLLOWER = Role(role=BrokerRole.SLAVE, broker_id=2, epoch=3, master=ADDRESS)


class Scene:
    """A replica, and a master that says where its stream is."""

    def __init__(self, stream: str | None) -> None:
        self.stream = stream
        self.asked = 0
        self.parts = ControlledParts()
        router = Router()
        router.add(ExchangeHaInfo, self._answer)
        self.server = Server(router, host="127.0.0.1", port=10911, clock=self.parts.clock)
        pool = ChannelPool(clock=self.parts.clock)
        self.locator = MasterLocator(
            self.parts.mode.role, self.parts.mode.stream_client, pool, self.parts.clock
        )

    def _answer(self, _call: ExchangeHaInfo, _peer: Peer) -> ExchangeHaInfoReply:
        self.asked += 1
        return ExchangeHaInfoReply(master_ha_address=self.stream)


@in_virtual_time
async def test_the_master_is_asked_until_it_says_where_its_stream_is() -> None:
    scene = Scene(None)
    scene.parts.mode.role.change(FOLLOWER)
    async with scene.server:
        task = asyncio.create_task(scene.locator.serve())
        await asyncio.sleep(0.5)
        assert scene.asked > 1
        assert scene.parts.role.master_stream is None
        scene.stream = "127.0.0.1:10912"
        await asyncio.sleep(0.5)
        assert scene.parts.role.master_stream == "127.0.0.1:10912"
        task.cancel()


@pytest.mark.parametrize("stream", ["nowhere", "host:99999999", ":"])
@in_virtual_time
async def test_an_address_that_is_none_is_not_followed(stream: str) -> None:
    scene = Scene(stream)
    scene.parts.mode.role.change(FOLLOWER)
    async with scene.server:
        await scene.locator.step()
    assert scene.asked == 1
    assert scene.parts.role == FOLLOWER


@in_virtual_time
async def test_a_master_that_cannot_be_reached_is_asked_again_later() -> None:
    scene = Scene(None)
    scene.parts.mode.role.change(FOLLOWER)
    await scene.locator.step()
    assert scene.parts.role == FOLLOWER


@pytest.mark.parametrize(
    "role",
    [
        Role(role=BrokerRole.SYNC_MASTER, epoch=3),
        Role(role=BrokerRole.SLAVE, broker_id=2, epoch=3, is_fenced=True),
    ],
)
@in_virtual_time
async def test_nobody_is_asked_without_a_master(role: Role) -> None:
    scene = Scene("127.0.0.1:10912")
    scene.parts.mode.role.change(role)
    async with scene.server:
        await scene.locator.step()
    assert scene.asked == 0


@in_virtual_time
async def test_an_answer_for_an_earlier_role_is_not_taken() -> None:
    scene = Scene("127.0.0.1:10912")
    scene.parts.mode.role.change(FOLLOWER)
    async with scene.server:
        task = asyncio.create_task(scene.locator.step())
        await asyncio.sleep(0)
        later = Role(role=BrokerRole.SLAVE, broker_id=2, epoch=4, master="10.0.0.9:10911")
        scene.parts.mode.role.change(later)
        await task
    assert scene.parts.role == later
