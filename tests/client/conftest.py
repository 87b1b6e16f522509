"""Fake brokers and a fake name server behind the real protocol, with faults to order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

import pytest

from roquet.client.config import ClientConfig, ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.connection.session import Session
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.push import PushConsumer
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import M, ReceivedMessage
from roquet.client.reading.pull_request import Puller
from roquet.client.reading.queue_reader import ReaderContext
from roquet.client.reading.retry import RetryLocally, RetrySender
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.model.subscription import HeartbeatData
from roquet.net import error_replies
from roquet.net.router import DispatchResult, HandlerReply, Peer, RequestHandler, Router
from roquet.net.server import Server
from roquet.rules.topic_id import is_other_topic
from roquet.testing.clock import this_loop
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.client_forwarding import GetRunningInfo, RunningInfo
from roquet.wire.calls.bodies import (
    AssignmentQuery,
    ConsumerIdList,
    LockBody,
    LockedQueues,
    QueueAssignments,
)
from roquet.wire.calls.heartbeat import (
    ConsumersChanged,
    GetConsumers,
    Heartbeat,
    HeartbeatReply,
    LockQueues,
    QueryAssignment,
    UnlockQueues,
    Unregister,
)
from roquet.wire.calls.offset import (
    MaxOffset,
    MinOffset,
    OffsetByTime,
    OffsetReply,
    QueryOffset,
    UpdateOffset,
)
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send, SendBack, SendBatch, SendReply
from roquet.wire.codes import FLAG_ONEWAY, ResponseCode
from roquet.wire.command import Command
from roquet.wire.fastjson import codec
from roquet.wire.fields import encode_reply
from roquet.wire.records import record

C = TypeVar("C", bound=ClientConfig)
T = TypeVar("T")

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


class InspectedRouter(Router):
    """A router that shows each request to `inspect`, whose error refuses it."""

    inspect: Callable[[Command], object] | None = None

    def dispatch(self, command: Command, peer: Peer) -> DispatchResult:
        try:
            if self.inspect is not None:
                self.inspect(command)
        except CallRefused as refused:
            reply = error_replies.refusal(refused)
            assert reply is not None
            return None if command.flag & FLAG_ONEWAY else encode_reply(reply, command)
        return super().dispatch(command, peer)


class FakeBroker:
    """A broker that keeps messages in lists.

    Each send raises the next of `faults`, or stores its messages and raises the next of
    `late_faults`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[tuple[str, int], list[bytes]] = {}
        self.begins: dict[tuple[str, int], int] = {}
        self.sends: list[Send] = []
        self.pulls: list[Pull] = []
        self.faults: list[Exception] = []
        self.late_faults: list[Exception] = []
        self.committed: dict[tuple[str, str, int], int] = {}
        self.commits: list[UpdateOffset] = []
        self.members: dict[str, dict[str, Peer]] = {}
        self.notifies = True
        """Whether members hear when others come or go."""
        self.heartbeats: list[HeartbeatData] = []
        self.left: list[Unregister] = []
        self.send_ms = 0
        self.pull_faults: list[Exception] = []
        self.topic_ids: dict[str, str] = {}
        """Topic ids to return, as Roquet's brokers do."""
        self.pull_answers: list[PullReply] = []
        self.holds_pulls = True
        self.arrived = asyncio.Event()
        self.sent_back: list[SendBack] = []
        self.back_faults: list[Exception] = []
        self.locked: dict[MessageQueue, str] = {}
        self.lock_calls = 0
        self.lock_faults: list[Exception] = []
        self.decides: Callable[[AssignmentQuery], QueueAssignments] | None = None
        self.router = InspectedRouter()
        self.handlers: dict[type[Call[Any]], RequestHandler[Any]] = {
            Send: self.send,
            SendBatch: self.send_batch,
            Pull: self.pull,
            Heartbeat: self.heartbeat,
            Unregister: self.unregister,
            GetConsumers: self.consumers,
            QueryOffset: self.query_offset,
            UpdateOffset: self.update_offset,
            MinOffset: self.min_offset,
            MaxOffset: self.max_offset,
            OffsetByTime: self.by_time,
            SendBack: self.send_back,
            LockQueues: self.lock,
            UnlockQueues: self.unlock,
            QueryAssignment: self.query_assignment,
        }
        """A test may replace a handler at any time."""
        for call_type in self.handlers:
            self.router.add(call_type, partial(self.handle, call_type))
        self.server = Server(self.router, host="127.0.0.1", clock=this_loop().clock)

    def handle(self, call_type: type[Call[Any]], call: Call[Any], peer: Peer) -> HandlerReply:
        return self.handlers[call_type](call, peer)

    def member(self, client_id: str, group: str = "g") -> Peer:
        """The connection of a group's member."""
        return self.members[group][client_id]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def bodies(self, topic: str, queue_id: int) -> list[bytes]:
        """The bodies in a queue."""
        held = self.queues.get((topic, queue_id), [])
        return [record.to_message(record.decode(one)).body for one in held]

    def put(self, topic: str, queue_id: int, *bodies: bytes, properties: bytes = b"") -> None:
        """Store messages without a send."""
        for body in bodies:
            self.store(topic, queue_id, body, properties)

    def store(
        self, topic: str, queue_id: int, body: bytes, properties: bytes, sys_flag: int = 0
    ) -> int:
        queue = self.queues.setdefault((topic, queue_id), [])
        offset = self.begins.get((topic, queue_id), 0) + len(queue)
        queue.append(
            record.pack(
                queue_id, 0, offset, offset * 100, sys_flag, 1, HOST, 2, HOST, 0, 0,
                body, topic.encode(), properties,
            )
        )  # fmt: skip
        self.arrived.set()
        return offset

    async def send(self, call: Send, peer: Peer) -> SendReply:
        return await self.take(call, [(call.body, call.properties.encode(), call.sys_flag)])

    async def send_batch(self, call: SendBatch, peer: Peer) -> SendReply:
        items = record.decode_batch(call.body)
        return await self.take(call, [(item.body, item.properties, 0) for item in items])

    async def take(self, call: Send, items: list[tuple[bytes, bytes, int]]) -> SendReply:
        self.sends.append(call)
        if self.send_ms:
            await asyncio.sleep(self.send_ms / 1000)
        if self.faults:
            raise self.faults.pop(0)
        offsets = [self.store(call.topic, call.queue_id, *item) for item in items]
        if self.late_faults:
            raise self.late_faults.pop(0)
        ids = ",".join(f"{self.name}-{call.queue_id}-{offset}" for offset in offsets)
        return SendReply(msg_id=ids, queue_id=call.queue_id, queue_offset=offsets[0])

    async def pull(self, call: Pull, peer: Peer) -> PullReply:
        self.pulls.append(call)
        self.refuse_pull(call)
        if self.pull_answers:
            return self.pull_answers.pop(0)
        key = (call.topic, call.queue_id)
        if call.sys_flag & 1:
            self.committed[(call.consumer_group, *key)] = call.commit_offset
        begin = self.begins.get(key, 0)
        deadline = asyncio.get_running_loop().time() + call.suspend_timeout_millis / 1000
        while call.queue_offset == begin + len(self.queues.get(key, [])):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or not call.sys_flag & 2 or not self.holds_pulls:
                return self.answer(call, ResponseCode.PULL_NOT_FOUND, call.queue_offset)
            self.arrived.clear()
            try:
                await asyncio.wait_for(self.arrived.wait(), left)
            except TimeoutError:
                continue
        self.refuse_another(call)
        held = self.queues.get(key, [])
        if not begin <= call.queue_offset < begin + len(held):
            return self.answer(call, ResponseCode.PULL_OFFSET_MOVED, begin)
        records = held[call.queue_offset - begin :][: call.max_msg_nums]
        end = call.queue_offset + len(records)
        return self.answer(call, ResponseCode.SUCCESS, end, b"".join(records))

    def refuse_pull(self, call: Pull) -> None:
        if self.pull_faults:
            raise self.pull_faults.pop(0)
        self.refuse_another(call)

    def refuse_another(self, call: Pull) -> None:
        if is_other_topic(call.topic_id, self.topic_ids.get(call.topic)):
            raise CallRefused(ResponseCode.TOPIC_NOT_EXIST, "deleted and made anew")

    def answer(self, call: Pull, code: int, next_offset: int, body: bytes = b"") -> PullReply:
        key = (call.topic, call.queue_id)
        begin = self.begins.get(key, 0)
        return PullReply(
            code=code,
            body=body,
            next_begin_offset=next_offset,
            min_offset=begin,
            max_offset=begin + len(self.queues.get(key, [])),
        )

    def heartbeat(self, call: Heartbeat, peer: Peer) -> HeartbeatReply:
        data = codec.loads(call.body, HeartbeatData)
        self.heartbeats.append(data)
        for consumer in data.consumer_data_set:
            members = self.members.setdefault(consumer.group_name, {})
            if members.get(data.client_id) is not peer:
                members[data.client_id] = peer
                peer.on_close(partial(self.gone, consumer.group_name, data.client_id))
                self.notify(consumer.group_name)
        return HeartbeatReply()

    def gone(self, group: str, client_id: str, peer: Peer) -> None:
        if self.members[group].get(client_id) is peer:
            del self.members[group][client_id]
            self.notify(group)

    def notify(self, group: str) -> None:
        for peer in self.members[group].values() if self.notifies else ():
            peer.oneway(ConsumersChanged(consumer_group=group))

    def unregister(self, call: Unregister, peer: Peer) -> None:
        self.left.append(call)
        if call.consumer_group:
            self.gone(call.consumer_group, call.client_id, peer)

    def consumers(self, call: GetConsumers, peer: Peer) -> Reply:
        members = list(self.members.get(call.consumer_group, {}))
        if not members:
            raise CallRefused(1, f"no consumer for this group, {call.consumer_group}")
        return Reply(body=codec.dumps(ConsumerIdList(consumer_id_list=members)))

    def query_offset(self, call: QueryOffset, peer: Peer) -> OffsetReply:
        offset = self.committed.get((call.consumer_group, call.topic, call.queue_id))
        if offset is None:
            raise CallRefused(ResponseCode.QUERY_NOT_FOUND, "not found")
        return self.offset_reply(call.topic, offset)

    def offset_reply(self, topic: str, offset: int) -> OffsetReply:
        return OffsetReply(offset=offset, topic_id=self.topic_ids.get(topic))

    def update_offset(self, call: UpdateOffset, peer: Peer) -> None:
        self.commits.append(call)
        self.committed[call.consumer_group, call.topic, call.queue_id] = call.commit_offset

    def min_offset(self, call: MinOffset, peer: Peer) -> OffsetReply:
        return self.offset_reply(call.topic, self.begins.get((call.topic, call.queue_id), 0))

    def max_offset(self, call: MaxOffset, peer: Peer) -> OffsetReply:
        key = (call.topic, call.queue_id)
        end = self.begins.get(key, 0) + len(self.queues.get(key, []))
        return self.offset_reply(call.topic, end)

    def by_time(self, call: OffsetByTime, peer: Peer) -> OffsetReply:
        return self.offset_reply(call.topic, call.timestamp % 1_000)

    def send_back(self, call: SendBack, peer: Peer) -> None:
        if self.back_faults:
            raise self.back_faults.pop(0)
        self.sent_back.append(call)

    def lock(self, call: LockQueues, peer: Peer) -> Reply:
        self.lock_calls += 1
        if self.lock_faults:
            raise self.lock_faults.pop(0)
        asked = codec.loads(call.body, LockBody)
        for queue in asked.mq_set:
            self.locked.setdefault(queue, asked.client_id)
        ours = [queue for queue in asked.mq_set if self.locked[queue] == asked.client_id]
        return Reply(body=codec.dumps(LockedQueues(lock_ok_mq_set=ours)))

    def unlock(self, call: UnlockQueues, peer: Peer) -> None:
        asked = codec.loads(call.body, LockBody)
        for queue in asked.mq_set:
            if self.locked.get(queue) == asked.client_id:
                del self.locked[queue]

    def query_assignment(self, call: QueryAssignment, peer: Peer) -> Reply:
        if self.decides is None:
            raise CallRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 400")
        return Reply(body=codec.dumps(self.decides(codec.loads(call.body, AssignmentQuery))))


class FakeCluster:
    """A name server with the routes in `topics`, and its brokers."""

    def __init__(self) -> None:
        self.brokers: dict[str, FakeBroker] = {}
        self.topics: dict[str, dict[str, int]] = {}
        self.asked: list[str] = []
        self.unready = 0
        self.other_brokers: list[BrokerData] = []
        """Brokers without queues that every route names as well."""
        self.replicas: dict[str, dict[int, FakeBroker]] = {}
        """Replicas of brokers, by id."""
        self.masterless: set[str] = set()
        """Names whose master no route names."""
        self.answer_ms = 0
        """Time that an answer of the name server takes."""
        router = Router()
        router.add(GetRoute, self.answer_route)
        self.server = Server(router, host="127.0.0.1", clock=this_loop().clock)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def a(self) -> FakeBroker:
        """The broker named `a`, the only one of most tests."""
        return self.brokers["a"]

    async def answer_route(self, call: GetRoute, peer: Peer) -> Reply:
        if self.answer_ms:
            await asyncio.sleep(self.answer_ms / 1000)
        return self.route(call, peer)

    def route(self, call: GetRoute, peer: Peer) -> Reply:
        self.asked.append(call.topic)
        if self.unready:
            self.unready -= 1
            raise CallRefused(1, "name server not ready")
        queues = self.topics.get(call.topic)
        if not queues:
            raise CallRefused(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info: {call.topic}")
        route = TopicRoute(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=count, write_queue_nums=count)
                for name, count in queues.items()
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs=self.addresses(name))
                for name in queues
            ]
            + self.other_brokers,
        )
        return Reply(body=codec.dumps(route))

    async def add(self, name: str) -> FakeBroker:
        """Add a broker."""
        broker = self.brokers[name] = FakeBroker(name)
        await broker.server.start()
        return broker

    def addresses(self, name: str) -> dict[int, str]:
        """The addresses of a broker name in routes."""
        master = {} if name in self.masterless else {0: self.brokers[name].address}
        return master | {i: each.address for i, each in self.replicas.get(name, {}).items()}

    async def add_replica(self, name: str, broker_id: int = 1) -> FakeBroker:
        """Add a replica of a broker; it holds nothing yet."""
        replica = self.replicas.setdefault(name, {})[broker_id] = FakeBroker(name)
        await replica.server.start()
        return replica

    async def lose_master(self, name: str) -> None:
        """Stop a master, and remove its address from all routes."""
        await self.brokers[name].server.stop(0)
        self.masterless.add(name)

    def promote(self, name: str, broker_id: int = 1) -> FakeBroker:
        """Make a replica the master."""
        master = self.brokers[name] = self.replicas[name].pop(broker_id)
        self.masterless.discard(name)
        return master

    async def kill(self, name: str) -> None:
        """Stop a broker, and remove it from all routes."""
        await self.brokers[name].server.stop(0)
        for queues in self.topics.values():
            queues.pop(name, None)


@asynccontextmanager
async def fake_cluster(**topics: dict[str, int]) -> AsyncIterator[FakeCluster]:
    """A cluster in virtual time with these topics: the number of queues on each broker."""
    cluster = FakeCluster()
    for name in sorted({name for queues in topics.values() for name in queues}):
        await cluster.add(name)
    cluster.topics.update(topics)
    await cluster.server.start()
    try:
        yield cluster
    finally:
        replicas = [each for group in cluster.replicas.values() for each in group.values()]
        for broker in [*cluster.brokers.values(), *replicas]:
            await broker.server.stop(0)
        await cluster.server.stop(0)


class Created(Protocol):
    """`created(Inbox)`: the list of all objects of a class that are made from now on."""

    def __call__(self, kind: type[T]) -> list[T]:
        """Begin to record."""


async def running_info(
    broker: FakeBroker, client_id: str, group: str = "g", *, stacks: bool = False
) -> RunningInfo:
    """The running info that a member of a group tells a broker."""
    call = GetRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=stacks)
    reply = await broker.member(client_id, group).call(call)
    return codec.loads(reply.body, RunningInfo)


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> Created:
    def record_objects(kind: type[T]) -> list[T]:
        made: list[T] = []
        init = kind.__init__

        def recorded(self: T, *args: object, **fields: object) -> None:
            made.append(self)
            init(self, *args, **fields)

        monkeypatch.setattr(kind, "__init__", recorded)
        return made

    return record_objects


async def until(holds: Callable[[], object], within_s: float = 120, step_s: float = 0.05) -> None:
    """Let virtual time pass until a condition holds; fail when it does not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not holds():
        assert loop.time() < deadline, "it never came true"
        await asyncio.sleep(step_s)


def config_of(kind: type[C], **settings: Any) -> C:
    """Settings of this class, with the loop's clock and a seeded random source."""
    clock = this_loop().clock
    return kind(clock=clock, rng=Random(7), client_ip="127.0.0.1", **settings)


def producer_of(cluster: FakeCluster, **settings: Any) -> Producer:
    """A producer of group `shop`."""
    return Producer(cluster.address, group="shop", config=config_of(ProducerConfig, **settings))


def consumer_of(cluster: FakeCluster, **settings: Any) -> PushConsumer:
    """A consumer of topic `t` in group `g`, which starts at the first message."""
    config = config_of(ConsumerConfig, consume_from=ConsumeFrom.FIRST, **settings)
    return PushConsumer(cluster.address, group="g", topic="t", config=config)


@asynccontextmanager
async def producing(
    queues: dict[str, int], **settings: Any
) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    """A cluster with the topic `t`, of so many queues on each broker, and a producer."""
    async with fake_cluster(t=queues) as cluster, producer_of(cluster, **settings) as producer:
        yield cluster, producer


@asynccontextmanager
async def consuming(
    queues: dict[str, int], **settings: Any
) -> AsyncIterator[tuple[FakeCluster, PushConsumer]]:
    """A cluster with the topic `t`, of so many queues on each broker, and a consumer."""
    async with fake_cluster(t=queues) as cluster, consumer_of(cluster, **settings) as consumer:
        yield cluster, consumer


def filled(cluster: FakeCluster, count: int, queue_id: int = 0) -> None:
    """Store messages with the bodies 0, 1, 2 and so on at broker `a`."""
    cluster.a.put("t", queue_id, *[b"%d" % n for n in range(count)])


async def next_of(consumer: Consumer[M], timeout_ms: int | None = None) -> M:
    """The next message, which has to come."""
    message = await consumer.next(timeout_ms)
    assert message is not None
    return message


@asynccontextmanager
async def session_of(address: str, config: ClientConfig, *topics: str) -> AsyncIterator[Session]:
    """A session that knows the routes of these topics."""
    session = Session(address, config)
    session.start(lambda: HeartbeatData(client_id="me"))
    try:
        for topic in topics:
            await session.routes.refresh(topic)
        yield session
    finally:
        await session.close()


def reader_context(
    session: Session, config: ConsumerConfig, inbox: Inbox[ReceivedMessage], *, saves_progress: bool
) -> ReaderContext:
    """The parts of the readers of group `g`, whose failed messages are retried locally."""
    puller = Puller(session, config, "g", saves_progress=saves_progress)
    failures = RetryLocally(RetrySender(session, config, "g"))
    return ReaderContext(inbox, puller, failures, session.background)
