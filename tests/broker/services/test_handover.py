import asyncio
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, NewPeer

from roquet.broker.services.handover import Handover
from roquet.broker.tables.clients import Clients
from roquet.model.subscription import ConsumerData, HeartbeatData
from roquet.rules.balance.handover import HANDOVER_MS
from roquet.testing.clock import this_loop

pytestmark = pytest.mark.virtual_time


class GroupHarness:
    """A group whose members join and own queues."""

    def __init__(self, new_peer: NewPeer) -> None:
        self.clients = Clients()
        self.clock = this_loop().clock
        self.handover = Handover(self.clients, self.clock)
        self._new_peer = new_peer

    def join(self, client_id: str) -> Any:
        peer = self._new_peer()
        data = [ConsumerData(group_name="g")]
        self.clients.beat(peer, HeartbeatData(client_id=client_id, consumer_data_set=data))
        self.handover.changed(["g"])
        return peer

    async def take(self, peer: FakePeer) -> int:
        """How long somebody waits who takes the queue."""
        began_ms = self.clock.monotonic_ms()
        taking = self.handover.taking("g", "t", 0, peer)
        if taking is not None:
            await self.handover.wait(taking)
        return self.clock.monotonic_ms() - began_ms


async def test_a_new_owner_continues_at_the_former_owners_commit(new_peer: NewPeer) -> None:
    group = GroupHarness(new_peer)
    loser = group.join("a")
    assert await group.take(loser) == 0
    taker = group.join("b")
    taking = asyncio.create_task(group.take(taker))
    await group.clock.sleep(40)
    group.handover.committed("g", "other", 0, loser)
    group.handover.committed("g", "t", 0, new_peer())  # some tool's
    await group.clock.sleep(40)
    assert not taking.done()
    group.handover.committed("g", "t", 0, loser)
    assert await taking == 80


async def test_a_new_owner_continues_after_a_second(new_peer: NewPeer) -> None:
    group = GroupHarness(new_peer)
    await group.take(group.join("a"))
    assert await group.take(group.join("b")) == HANDOVER_MS


async def test_a_new_owner_continues_when_the_former_leaves_or_the_broker_stops(
    new_peer: NewPeer,
) -> None:
    for stopping in (False, True):
        group = GroupHarness(new_peer)
        loser = group.join("a")
        await group.take(loser)
        taking = asyncio.create_task(group.take(group.join("b")))
        await group.clock.sleep(40)
        if stopping:
            group.handover.close()
        else:
            group.clients.drop(loser)
            group.handover.left("g", "a")
        assert await taking == 40


async def test_a_client_without_a_group_neither_owns_queues_nor_waits(new_peer: NewPeer) -> None:
    group = GroupHarness(new_peer)
    await group.take(group.join("a"))
    group.handover.changed(["g"])
    stranger = new_peer()
    group.handover.seen("g", "t", 0, stranger)
    assert await group.take(stranger) == 0
    assert group.handover.owners("g", "t", 0) == []


async def test_new_queues_are_a_change_too(new_peer: NewPeer) -> None:
    group = GroupHarness(new_peer)
    first, second = group.join("a"), group.join("b")
    await group.take(first)
    group.handover.committed("g", "t", 0, first)
    group.handover.queues_changed()
    assert await group.take(second) == HANDOVER_MS


async def test_owners_are_forgotten_with_the_group(new_peer: NewPeer) -> None:
    group = GroupHarness(new_peer)
    only = group.join("a")
    group.handover.seen("g", "t", 0, only)
    assert group.handover.owners("g", "t", 0) == ["a"]
    group.clients.drop(only)
    group.handover.left("g", "a")
    assert group.handover.owners("g", "t", 0) == []
