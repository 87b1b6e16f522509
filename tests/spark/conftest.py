"""A fake cluster with canned replies and scripted failures; topics of real ones; an S3 server."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from tests.lake.conftest import s3, s3_of_session  # noqa: F401 - fixtures

from roquet.arrow.encode import batch_bodies, encode
from roquet.arrow.records import SCHEMA
from roquet.lake.queue_offsets import ranges
from roquet.model.errors import CallError, CallRefused, ConnectFailed, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.net.blocking import BlockingChannel
from roquet.rules.topic_id import is_other_topic
from roquet.spark.cluster import cluster_client
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions
from roquet.testing.cluster import BlockingCluster
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.namesrv import BrokerMembers, BrokerMembersBody, GetBrokerMembers
from roquet.wire.calls.admin.stats import GetTopicStats, QueueStats, TopicStats
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.bodies import MultiQueueOffsets, TopicList
from roquet.wire.calls.offset import MaxOffset, MinOffset, OffsetReply
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.calls.route import GetAllTopics, GetRoute
from roquet.wire.calls.send import SendBatch
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps, loads
from roquet.wire.records import record

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
NAMESRV = "namesrv:9876"
BROKERS = {"broker-a": "broker-a:10911", "broker-b": "broker-b:10911"}


Answer = Callable[[str, Call[Any]], Any]
"""A reply, by the broker's name and the call."""


class PausedClock:
    """A clock that goes on only while somebody pauses, or a test moves it."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.pauses: list[int] = []
        self.on_pause: Callable[[], object] = lambda: None
        """Called at the end of each pause."""

    def monotonic_ms(self) -> int:
        return self.ms

    def pause(self, ms: int) -> None:
        self.pauses.append(ms)
        self.ms += ms
        self.on_pause()


class CannedQueue:
    """One queue: records from `first` on."""

    def __init__(self) -> None:
        self.first = 0
        self.records: list[bytes] = []
        self.positions: list[int] = []

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def forget(self, count: int) -> None:
        """Delete the first messages, as retention does."""
        self.first += count
        del self.records[:count], self.positions[:count]


class CannedReplica:
    def __init__(self, cluster: "CannedCluster", address: str) -> None:
        self.cluster, self.address = cluster, address
        self.queues = {0: CannedQueue(), 1: CannedQueue()}
        self.failures: deque[CallError] = deque()
        self.calls: list[Any] = []
        self.asked_ahead: list[Any] = []
        self.pull_max = 32
        self.empty_code = ResponseCode.PULL_RETRY_IMMEDIATELY
        """The code of replies about messages that it does not have."""

    def copy(self, broker: str, count: int) -> None:
        """Hold the same messages as the master, the first ones of each queue."""
        for queue_id, queue in self.queues.items():
            master = self.cluster.queues[broker, queue_id]
            queue.first = master.first
            queue.records = master.records[:count]
            queue.positions = master.positions[:count]

    def answer(self, call: Any) -> Reply:
        self.calls.append(call)
        if self.failures:
            raise self.failures.popleft()
        assert isinstance(call, Pull), "a replica is asked for messages alone"
        queue = self.queues[call.queue_id]
        edges: Any = {"min_offset": queue.first, "max_offset": queue.end}
        at = call.queue_offset
        records = queue.records[at - queue.first :] if at >= queue.first else []
        records = records[: min(self.pull_max, call.max_msg_nums)]
        if not records:
            return PullReply(code=self.empty_code, next_begin_offset=at, **edges)
        return PullReply(next_begin_offset=at + len(records), body=b"".join(records), **edges)


class CannedCluster:
    """A topic of two queues on each broker; `failures` are failures that the next calls meet."""

    def __init__(self, addresses: Mapping[str, str], topic: str = "orders") -> None:
        self.topic = topic
        self.namesrv = NAMESRV
        self.addresses = dict(addresses)
        self.queues = {(name, queue_id): CannedQueue() for name in addresses for queue_id in (0, 1)}
        self.failures: deque[CallError] = deque()
        self.answer: Answer = self.usual_answer
        """The brokers' replies; tests replace it."""
        self.calls: list[Any] = []
        self.asked_ahead: list[Any] = []
        self.pull_max = 32
        self.gives_together = False
        self.topic_ids: dict[str, str] = {}
        """Topic ids of the brokers that report them."""
        self.broker_ids: dict[str, int] = {}
        """Broker ids of followers."""
        self.replicas: dict[str, CannedReplica] = {}
        """The replica of a broker, which has id 1."""
        self.true_ids: dict[str, dict[int, str]] = {}
        """Addresses by id of brokers whose followers may stand in; nobody can write there now."""
        self.position = 0
        self.removed: set[int] = set()
        """Ids of queues that are in no statistics, as those that were removed from the topic."""

    def reply_with(self, kind: Any, reply: Callable[[str, Any], Any] | Exception) -> None:
        """Have brokers answer calls of these kinds by a function, or refuse them with an error."""
        usual = self.answer

        def answer(broker: str, call: Call[Any]) -> Any:
            if not isinstance(call, kind):
                return usual(broker, call)
            if isinstance(reply, Exception):
                raise reply
            return reply(broker, call)

        self.answer = answer

    def client(
        self, pause: Callable[[int], object] = lambda _: None, **settings: Any
    ) -> ClusterClient:
        """A client that asks leaders alone."""
        options = {"namesrv": (self.namesrv,), "topics": (self.topic,), **settings}
        return ClusterClient(SourceOptions(**options), pause=pause, leaders_only=True)

    def add_replica(self, broker: str) -> CannedReplica:
        replica = self.replicas[broker] = CannedReplica(self, f"{broker}-copy:10911")
        return replica

    def pulls(self) -> list[Pull]:
        return [call for call in self.calls if isinstance(call, Pull)]

    def send(self, broker: str, queue_id: int, *bodies: bytes, **properties: str) -> None:
        """Append messages to a queue."""
        queue, text = self.queues[broker, queue_id], record.encode_properties(properties)
        for body in bodies:
            packed = record.pack(
                queue_id, 0, queue.end, self.position, 0, 1_700_000_000_000, HOST,
                1_700_000_000_500, HOST, 0, 0, body, self.topic.encode(), text,
            )  # fmt: skip
            queue.records.append(packed)
            queue.positions.append(self.position)
            self.position += len(packed)

    def ends(self) -> dict[tuple[str, int], int]:
        return {queue: canned.end for queue, canned in self.queues.items()}

    def route(self, call: Call[Any]) -> Reply:
        if isinstance(call, GetBrokerMembers):
            addresses = self.true_ids[call.broker_name]
            group = BrokerMembers(cluster="c", broker_name=call.broker_name, broker_addrs=addresses)
            return Reply(body=dumps(BrokerMembersBody(broker_member_group=group)))
        if not isinstance(call, GetRoute):
            topics = [self.topic] if isinstance(call, GetAllTopics) else []
            return Reply(body=dumps(TopicList(topic_list=topics)))
        if call.topic != self.topic:
            raise CallRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        route = TopicRoute(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    read_queue_nums=2,
                    write_queue_nums=2,
                    perm=4 if name in self.true_ids else 6,
                )
                for name in self.addresses
            ],
            broker_datas=[
                BrokerData(
                    cluster="c",
                    broker_name=name,
                    broker_addrs={self.broker_ids.get(name, 0): address}
                    | ({1: self.replicas[name].address} if name in self.replicas else {}),
                    enable_acting_master=name in self.true_ids,
                )
                for name, address in self.addresses.items()
            ],
        )
        return Reply(body=dumps(route, standard=True))

    def usual_answer(self, broker: str, call: Call[Any]) -> Reply:
        if isinstance(call, GetTopicStats):
            return self.stats(broker)
        assert isinstance(call, MinOffset | MaxOffset | Pull)
        queue = self.queues[broker, call.queue_id]
        if isinstance(call, Pull) and is_other_topic(call.topic_id, self.topic_ids.get(broker)):
            raise CallRefused(ResponseCode.TOPIC_NOT_EXIST, "topic orders was made anew")
        if isinstance(call, MinOffset):
            return OffsetReply(offset=queue.first, topic_id=self.topic_ids.get(broker))
        if isinstance(call, MaxOffset):
            return OffsetReply(offset=queue.end)
        if self.gives_together and call.body:
            return self._together(broker, call)
        return self._pulled(queue, call)

    def stats(self, broker: str) -> Reply:
        """The reply to GetTopicStats: both ends of each queue of a broker."""
        table = {
            MessageQueue(self.topic, name, queue_id): QueueStats(
                min_offset=queue.first, max_offset=queue.end
            )
            for (name, queue_id), queue in self.queues.items()
            if name == broker and queue_id not in self.removed
        }
        topic_id = self.topic_ids.get(broker)
        return Reply(body=dumps(TopicStats(offset_table=table, topic_id=topic_id)))

    def recreate(self, broker: str, topic_id: str) -> None:
        """Delete the topic on a broker and create it again."""
        self.topic_ids[broker] = topic_id
        for name, queue_id in self.queues:
            if name == broker:
                self.queues[name, queue_id] = CannedQueue()

    def _pulled(self, queue: CannedQueue, call: Pull) -> PullReply:
        edges: Any = {"min_offset": queue.first, "max_offset": queue.end}
        at = call.queue_offset
        if at < queue.first:
            code = ResponseCode.PULL_OFFSET_MOVED
            return PullReply(code=code, next_begin_offset=queue.first, **edges)
        records = queue.records[at - queue.first :][: min(self.pull_max, call.max_msg_nums)]
        if not records:
            return PullReply(code=ResponseCode.PULL_NOT_FOUND, next_begin_offset=at, **edges)
        return PullReply(next_begin_offset=at + len(records), body=b"".join(records), **edges)

    def _together(self, broker: str, call: Pull) -> PullReply:
        """A Roquet broker's reply for several queues: the log as it is, from an offset on."""
        offsets = {call.queue_id: call.queue_offset} | loads(call.body, MultiQueueOffsets).offsets
        queues = {queue_id: self.queues[broker, queue_id] for queue_id in offsets}
        start = min(
            queues[queue_id].positions[at - queues[queue_id].first]
            for queue_id, at in offsets.items()
            if at < queues[queue_id].end
        )
        records = sorted(
            (position, packed, queue_id)
            for queue_id, queue in queues.items()
            for position, packed in zip(queue.positions, queue.records, strict=False)
            if position >= start
        )[: self.pull_max]
        own = queues[call.queue_id]
        stop = records[-1][0]
        next_offset = own.first + sum(position <= stop for position in own.positions)
        body = b"".join(packed for _, packed, _ in records)
        return PullReply(
            next_begin_offset=next_offset, min_offset=own.first, max_offset=own.end, body=body
        )


class CannedChannel:
    """Stands in for `net.blocking.BlockingChannel`."""

    cluster: CannedCluster

    def __init__(self, address: str, **_security: object) -> None:
        self.address = address
        self.is_open = True

    def call(self, call: Call[Any], _timeout_ms: int) -> Any:
        assert self.is_open
        for replica in self.cluster.replicas.values():
            if replica.address == self.address:
                return replica.answer(call)
        self.cluster.calls.append(call)
        if self.cluster.failures:
            raise self.cluster.failures.popleft()
        if self.address == NAMESRV:
            return self.cluster.route(call)
        for name, address in self.cluster.addresses.items():
            if address == self.address:
                return self.cluster.answer(name, call)
        raise ConnectFailed(f"cannot connect to {self.address}")

    def ask_ahead(self, call: Call[Any]) -> None:
        assert self.is_open
        for replica in self.cluster.replicas.values():
            if replica.address == self.address:
                replica.asked_ahead.append(call)
                return
        self.cluster.asked_ahead.append(call)

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> CannedCluster:
    """A fake cluster of two brokers, without a network."""
    cluster = CannedCluster(BROKERS)
    monkeypatch.setattr(CannedChannel, "cluster", cluster, raising=False)
    monkeypatch.setattr(cluster_client, "BlockingChannel", CannedChannel)
    monkeypatch.setattr(cluster_client, "SHARED_CHANNELS", {})
    return cluster


def create_topic(running: BlockingCluster, topic: str, queues: int = 2) -> None:
    """Create a topic with so many queues on each broker; name servers know of all of them then."""
    call = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    for address in running.broker_addrs:
        with BlockingChannel(address) as channel:
            channel.call(call)
    cluster = ClusterClient(SourceOptions(namesrv=(running.namesrv_addr,), topics=(topic,)))
    for _ in range(100):
        with suppress(UsageError):
            if len(cluster.latest()) == queues * len(running.broker_addrs):
                return
        cluster.pause(50)
    raise AssertionError("the name server never heard of the topic")


def send_items(address: str, topic: str, queue_id: int, items: pa.Array) -> None:
    """Send encoded rows to one queue of the broker at an address."""
    with BlockingChannel(address) as channel:
        for body in batch_bodies(items, 1_000_000):
            call = SendBatch(
                batch=True, producer_group="tests", topic=topic, queue_id=queue_id,
                born_timestamp=1_700_000_000_000, body=body,
            )  # fmt: skip
            channel.call(call)


def send_columns(address: str, topic: str, queue_id: int, **columns: Any) -> None:
    """Send rows with the columns of `arrow.encode` to one queue of the broker at an address."""
    send_items(address, topic, queue_id, encode(pa.RecordBatch.from_pydict(columns)))


def read_topic(namesrv: str, topic: str, columns: Sequence[str]) -> pa.Table:
    """All messages of a topic, queue by queue."""
    cluster = ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(topic,)))
    batches = RangeReader(cluster, columns).batches(ranges(cluster.earliest(), cluster.latest()))
    return pa.Table.from_batches(batches, pa.schema([SCHEMA.field(name) for name in columns]))
