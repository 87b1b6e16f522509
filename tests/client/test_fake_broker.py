"""One contract for the fake broker of these tests and the real one: both answer clients alike."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.client.conftest import fake_cluster

from roquet.model.errors import CallRefused
from roquet.model.flags import PullFlag
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, HeartbeatData
from roquet.net.pool import ChannelPool
from roquet.net.router import Router
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.cluster import cluster as real_cluster
from roquet.wire.call import Call, R
from roquet.wire.calls.bodies import ConsumerIdList, LockBody, LockedQueues
from roquet.wire.calls.heartbeat import (
    ConsumersChanged,
    GetConsumers,
    Heartbeat,
    LockQueues,
    UnlockQueues,
    Unregister,
)
from roquet.wire.calls.offset import MaxOffset, MinOffset, QueryOffset, UpdateOffset
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send, SendBack, SendBatch
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records import record
from roquet.wire.records.batch import encode_item

pytestmark = pytest.mark.virtual_time(False)

QUEUE = MessageQueue("t", "a", 0)


class Client:
    """One client's connection to the broker under test."""

    def __init__(self, address: str) -> None:
        self.notices: list[str] = []
        router = Router()
        router.add(
            ConsumersChanged, lambda call, _peer: self.notices.append(call.consumer_group or "")
        )
        self.pool = ChannelPool(router, clock=this_loop().clock)
        self._address = address

    async def call(self, call: Call[R]) -> R:
        return await self.pool.call(self._address, call, 30_000)

    async def send(self, body: bytes) -> int:
        reply = await self.call(send_of(body))
        return reply.queue_offset

    async def beat(self, client_id: str) -> None:
        data = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name="g")])
        await self.call(Heartbeat(body=codec.dumps(data)))

    async def members(self) -> set[str]:
        reply = await self.call(GetConsumers(consumer_group="g"))
        return set(codec.loads(reply.body, ConsumerIdList).consumer_id_list)

    async def lock(self, client_id: str) -> list[MessageQueue]:
        reply = await self.call(LockQueues(body=lock_body(client_id)))
        return list(codec.loads(reply.body, LockedQueues).lock_ok_mq_set)


Connect = Callable[[], Awaitable[Client]]
Contract = Callable[[Connect], Awaitable[None]]


def send_of(body: bytes) -> Send:
    return Send(
        body=body, producer_group="p", topic="t", default_topic_queue_nums=2, queue_id=0,
        sys_flag=0, born_timestamp=1, flag=0, properties="UNIQ_KEY\x01ID\x02",
    )  # fmt: skip


def pull_of(offset: int, *, suspend_ms: int = 0) -> Pull:
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if suspend_ms else PullFlag(0))
    return Pull(
        consumer_group="g", topic="t", queue_id=0, queue_offset=offset, max_msg_nums=32,
        sys_flag=flags.value, commit_offset=0, suspend_timeout_millis=suspend_ms,
        subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip


def lock_body(client_id: str) -> bytes:
    return codec.dumps(LockBody(consumer_group="g", client_id=client_id, mq_set=[QUEUE]))


@asynccontextmanager
async def fake_broker() -> AsyncIterator[str]:
    async with fake_cluster(t={"a": 2}) as cluster:
        yield cluster.a.address


@asynccontextmanager
async def real_broker() -> AsyncIterator[str]:
    async with real_cluster(clock=this_loop().clock, broker_name="a") as cluster:
        yield cluster.broker_addrs[0]


def against_both(contract: Contract) -> Callable[[str], None]:
    """A test of both brokers; the contract gets a function that makes clients."""

    @pytest.mark.parametrize("kind", ["fake", "real"])
    @in_virtual_time
    async def test(kind: str) -> None:
        async with AsyncExitStack() as stack:
            broker = fake_broker() if kind == "fake" else real_broker()
            address = await stack.enter_async_context(broker)

            async def connect() -> Client:
                client = Client(address)
                stack.push_async_callback(client.pool.close)
                return client

            await contract(connect)

    test.__name__ = contract.__name__
    return test


@against_both
async def test_sends_get_consecutive_offsets(connect: Connect) -> None:
    client = await connect()
    assert [await client.send(b"%d" % n) for n in range(3)] == [0, 1, 2]
    items = b"".join(encode_item(0, b"%d" % n, b"UNIQ_KEY\x01ID\x02") for n in (3, 4))
    batch = SendBatch(
        batch=True,
        body=items, producer_group="p", topic="t", default_topic_queue_nums=2, queue_id=0,
        born_timestamp=1,
    )  # fmt: skip
    reply = await client.call(batch)
    assert (reply.code, reply.queue_id, reply.queue_offset) == (ResponseCode.SUCCESS, 0, 3)
    assert len(reply.msg_id.split(",")) == 2


@against_both
async def test_a_pull_returns_messages_from_its_offset_on(connect: Connect) -> None:
    client = await connect()
    for n in range(3):
        await client.send(b"%d" % n)
    reply = await client.call(pull_of(1))
    bodies = [record.to_message(one).body for one in record.decode_many(reply.body)]
    assert (reply.code, bodies) == (ResponseCode.SUCCESS, [b"1", b"2"])
    assert (reply.next_begin_offset, reply.min_offset, reply.max_offset) == (3, 0, 3)


@against_both
async def test_a_pull_at_the_end_finds_nothing_or_waits(connect: Connect) -> None:
    client = await connect()
    await client.send(b"0")
    reply = await client.call(pull_of(1))
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 1)
    waiting = asyncio.create_task(client.call(pull_of(1, suspend_ms=15_000)))
    await asyncio.sleep(5)
    assert not waiting.done()
    await client.send(b"1")
    assert (await waiting).next_begin_offset == 2


@against_both
async def test_a_pull_beyond_the_end_is_moved(connect: Connect) -> None:
    client = await connect()
    await client.send(b"0")
    reply = await client.call(pull_of(7))
    assert reply.code == ResponseCode.PULL_OFFSET_MOVED
    assert 0 <= reply.next_begin_offset <= 1


@against_both
async def test_offsets_are_committed_and_queried(connect: Connect) -> None:
    client = await connect()
    await client.beat("one")  # a real broker commits for known groups only
    await client.send(b"0")
    first = await client.call(MinOffset(topic="t", queue_id=0))
    end = await client.call(MaxOffset(topic="t", queue_id=0))
    assert (first.offset, end.offset) == (0, 1)
    query = QueryOffset(consumer_group="g", topic="t", queue_id=0, set_zero_if_not_found=False)
    with pytest.raises(CallRefused) as refusal:
        await client.call(query)
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND
    await client.call(UpdateOffset(consumer_group="g", topic="t", queue_id=0, commit_offset=1))
    assert (await client.call(query)).offset == 1


@against_both
async def test_members_of_a_group_hear_of_each_other(connect: Connect) -> None:
    one, other = await connect(), await connect()
    with pytest.raises(CallRefused):
        await one.members()
    await one.beat("one")
    await asyncio.sleep(1)
    one.notices.clear()
    await other.beat("other")
    await asyncio.sleep(1)
    assert one.notices == ["g"]
    assert await one.members() == {"one", "other"}
    await other.call(Unregister(client_id="other", consumer_group="g"))
    await asyncio.sleep(1)
    assert one.notices == ["g", "g"]
    assert await one.members() == {"one"}


@against_both
async def test_a_closed_connection_leaves_the_group(connect: Connect) -> None:
    one, other = await connect(), await connect()
    await one.beat("one")
    await other.beat("other")
    await other.pool.close()
    await asyncio.sleep(1)
    assert await one.members() == {"one"}


@against_both
async def test_a_queue_is_locked_for_one_member(connect: Connect) -> None:
    client = await connect()
    await client.send(b"0")
    assert await client.lock("one") == [QUEUE]
    assert await client.lock("one") == [QUEUE]
    assert await client.lock("other") == []
    await client.call(UnlockQueues(body=lock_body("other")))
    assert await client.lock("other") == []
    await client.call(UnlockQueues(body=lock_body("one")))
    assert await client.lock("other") == [QUEUE]


@against_both
async def test_a_stored_message_can_be_sent_back(connect: Connect) -> None:
    client = await connect()
    await client.beat("one")
    await client.send(b"0")
    (stored,) = record.decode_many((await client.call(pull_of(0))).body)
    back = SendBack(
        offset=stored.position, group="g", delay_level=0, origin_msg_id="ID", origin_topic="t",
        broker_name="a",
    )  # fmt: skip
    assert (await client.call(back)).code == ResponseCode.SUCCESS
