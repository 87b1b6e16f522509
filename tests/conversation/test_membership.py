"""Members of a group come, go and fall silent; the others hear of it."""

import asyncio

import pytest
from tests.conversation.conftest import Connect, broker_of

from roquet.broker.app import BrokerServer
from roquet.model.errors import CallRefused
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription
from roquet.net.channel import Channel
from roquet.net.router import Peer, Router
from roquet.wire.calls.bodies import ConsumerIdList
from roquet.wire.calls.heartbeat import ConsumersChanged, GetConsumers, Heartbeat, Unregister
from roquet.wire.fastjson import codec

pytestmark = pytest.mark.virtual_time(False)


class NotificationRecorder:
    """A client's ear for the broker's notices."""

    def __init__(self) -> None:
        self.router = Router()
        self.router.add(ConsumersChanged, self._hear)
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    def _hear(self, call: ConsumersChanged, _peer: Peer) -> None:
        self._heard.put_nowait(call.consumer_group)

    async def next(self) -> str:
        async with asyncio.timeout(5):
            return await self._heard.get()


def beat(client_id: str, expression: str = "*") -> Heartbeat:
    wants = Subscription(topic="flights", sub_string=expression)
    data = ConsumerData(group_name="billing", subscription_data_set=[wants])
    return Heartbeat(body=codec.dumps(HeartbeatData(client_id=client_id, consumer_data_set=[data])))


async def members(channel: Channel) -> list[str]:
    reply = await channel.call(GetConsumers(consumer_group="billing"))
    return codec.loads(reply.body, ConsumerIdList).consumer_id_list


async def test_members_hear_of_those_that_join_and_leave(
    server: BrokerServer, connect: Connect
) -> None:
    notices = NotificationRecorder()
    first, second = await connect(server, notices.router), await connect(server)
    await first.call(beat("c1"))
    assert await notices.next() == "billing"
    await second.call(beat("c2"))
    assert await notices.next() == "billing"
    assert await members(first) == ["c1", "c2"]
    await second.call(Unregister(client_id="c2", consumer_group="billing", producer_group=""))
    assert await notices.next() == "billing"
    assert await members(first) == ["c1"]


async def test_a_member_without_a_connection_is_removed(
    server: BrokerServer, connect: Connect
) -> None:
    notices = NotificationRecorder()
    first, second = await connect(server, notices.router), await connect(server)
    await first.call(beat("c1"))
    await second.call(beat("c2"))
    assert [await notices.next() for _ in range(2)] == ["billing"] * 2
    await second.close()
    assert await notices.next() == "billing"
    assert await members(first) == ["c1"]


async def test_members_hear_of_a_changed_subscription(
    server: BrokerServer, connect: Connect
) -> None:
    notices = NotificationRecorder()
    channel = await connect(server, notices.router)
    await channel.call(beat("c1"))
    await notices.next()
    await channel.call(beat("c1", "UA || AA"))
    assert await notices.next() == "billing"


async def test_silent_members_are_removed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.broker.app.SCAN_MS", 10)
    async with broker_of(client_silence=50) as server:
        channel = await connect(server)
        await channel.call(beat("c1"))
        await until_empty(channel)


async def until_empty(channel: Channel) -> None:
    """Wait until the group has no members."""
    async with asyncio.timeout(5):
        while True:
            try:
                await members(channel)
            except CallRefused as refused:
                assert refused.remark == "no consumer for this group, billing"  # noqa: PT017
                return
            await asyncio.sleep(0.01)
