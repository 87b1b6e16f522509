"""Server time of the dashboard's pages, with as many topics and groups as are wanted.

    python -m bench.dashboard --topics 1000 --groups 500 --brokers 3

The cluster is a fake: its replies are bytes that were encoded beforehand, so that decoding them,
deciding and rendering are what is measured, without a network. Each page is asked for while the
sampler rests and while it works. The goal is for the median of the time that a visitor waits, and
for the most CPU time of any; the longest wait is shown beside them, and depends on what else runs
on the machine.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import httpx
from msgspec.structs import replace

from bench.lib.fake_messages import (
    KEY,
    MESSAGES,
    TOPIC,
    FakeReader,
    message_id,
    open_nothing,
    records,
)
from bench.lib.rows import Row, save, show
from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.app import application
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.pages import message_tail, messages
from roquet.dashboard.sampling.sampler import Sampler
from roquet.dashboard.server import open_dashboard
from roquet.model.errors import CallError, CallRefused
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from roquet.model.subscription import ConsumeType, MessageModel
from roquet.model.topic import GroupTable, SubscriptionGroup, TopicConfig, TopicTable
from roquet.wire.call import Call, Reply
from roquet.wire.calls.access import (
    AclInfo,
    ListAcls,
    ListUsers,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.admin.stats import (
    GetRuntimeInfo,
    GetTopicStats,
    QueueStats,
    TopicStats,
)
from roquet.wire.calls.admin.topic import GetGroups, GetTopic, GetTopics
from roquet.wire.calls.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    KVTable,
    QueueProgress,
)
from roquet.wire.calls.query import QueryByKey, QueryReply
from roquet.wire.fastjson import codec

QUEUES = 8
"""Queues of each topic on each broker."""

USERS = 200
"""Users, each with two entries of policies."""

GOAL_MS = 150

PAGES = (
    "/", "/topics", "/topics?q=orders-00&sort=messages", "/topics/orders-0001", "/groups",
    "/groups?sort=lag&state=lagging", "/groups/billing-0001", "/brokers", "/brokers/broker-0",
    "/messages", "/messages/new", "/dead-letters", "/balance?group=billing-0001", "/jobs", "/audit",
    "/access?user=user-001&action=Sub&resource=Topic:orders-0001",
    f"/messages?topic={TOPIC}", f"/messages?topic={TOPIC}&key={KEY}",
    f"/messages?topic={TOPIC}&id={message_id(7)}",
    f"/messages/one?topic={TOPIC}&broker=broker-0&queue=0&offset=7",
    f"/messages/tail?topic={TOPIC}",
)  # fmt: skip

TAIL_EVENTS = f"/messages/tail/events?topic={TOPIC}"
"""The stream of a live tail, of which the first event is measured."""


class FakeCluster(AdminClient):
    """An admin client whose brokers answer at once, with bytes that are there already."""

    def __init__(self, topics: int, groups: int, brokers: int) -> None:
        super().__init__("127.0.0.1:9")
        self._topics = [f"orders-{number:04}" for number in range(topics)]
        self._groups = [f"billing-{number:04}" for number in range(groups)]
        names = [f"broker-{number}" for number in range(brokers)]
        table = {
            name: BrokerData(cluster="c", broker_name=name, broker_addrs={0: f"{name}:10911"})
            for name in names
        }
        self._info = ClusterInfo(broker_addr_table=table, cluster_addr_table={"c": names})
        letters = {MessageQueue("%DLQ%billing", names[0], 0): QueueStats(max_offset=9)}
        self._dead_letters = bytes(codec.dumps(TopicStats(offset_table=letters)))  # one queue each
        self._bodies = {f"{name}:10911": self._bodies_of(name) for name in names}
        self._found = records(MESSAGES)
        self.reader = FakeReader(names, QUEUES)

    async def cluster(self) -> ClusterInfo:
        """All brokers."""
        return self._info

    async def topics(self) -> Sequence[str]:
        """All topics, and the dead letters of each group."""
        return [*self._topics, *(f"%DLQ%{group}" for group in self._groups)]

    async def route(self, _topic: str) -> TopicRoute | None:
        """Each topic is on all brokers."""
        brokers = list(self._info.broker_addr_table.values())
        queues = [
            QueueData(broker_name=one.broker_name, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            for one in brokers
        ]
        return TopicRoute(broker_datas=brokers, queue_datas=queues)

    async def ask_name_servers(
        self, _call: Call[Any]
    ) -> tuple[dict[str, Any], dict[str, CallError]]:
        """Nobody is missing."""
        return {"127.0.0.1:9": Reply()}, {}

    async def ask(self, address: str, call: Call[Any], _timeout_ms: int | None = None) -> Any:
        """The reply of a broker, after one turn of the loop."""
        await asyncio.sleep(0)
        if isinstance(call, QueryByKey):
            return QueryReply(
                body=self._found, index_last_update_timestamp=0, index_last_update_phyoffset=0
            )
        body = self._bodies[address].get(type(call))
        if isinstance(call, GetTopicStats) and call.topic.startswith("%DLQ%"):
            body = self._dead_letters
        if body is None:
            raise CallRefused(3, "not in this cluster")
        return Reply(body=body)

    def _bodies_of(self, broker: str) -> Mapping[type[Call[Any]], bytes]:
        queues = [MessageQueue("orders-0001", broker, number) for number in range(QUEUES)]
        members = [
            ClientConnection(
                client_id=f"10.0.0.{number}@{number}", client_addr=f"10.0.0.{number}:5",
                subscriptions={"orders-0001": "*"}, message_model=MessageModel.CLUSTERING,
                strategy="AVG",
            )
            for number in range(4)
        ]  # fmt: skip
        configs = {
            name: TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            for name in self._topics
        }
        groups = {name: SubscriptionGroup(group_name=name) for name in self._groups}
        progress = {
            queue: QueueProgress(
                broker_offset=1_000 + queue.queue_id, consumer_offset=900,
                owners=[members[queue.queue_id % 4].client_id],
            )
            for queue in queues
        }  # fmt: skip
        stats = {
            queue: QueueStats(max_offset=1_000, last_update_timestamp=1_700_000_000_000)
            for queue in queues
        }
        info = {"putTps": "1000.0 1.0 1.0", "getTransferredTps": "900.0 1.0 1.0"}
        bodies = {
            GetRuntimeInfo: KVTable(table={**{f"k{n}": "v" for n in range(80)}, **info}),
            GetGroups: GroupTable(subscription_group_table=groups),
            GetTopics: TopicTable(topic_config_table=configs),
            GetTopic: configs["orders-0001"],
            GetTopicStats: TopicStats(offset_table=stats),
            GetConsumeStats: ConsumeStats(offset_table=progress),
            ListUsers: [
                UserInfo(username=name, user_type="Normal", user_status="enable")
                for name in (f"user-{number:03}" for number in range(USERS))
            ],
            ListAcls: [_acl(f"user-{number:03}") for number in range(USERS)],
            GetConnections: ConsumerConnection(
                connection_set=members, consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
            ),
        }  # fmt: skip
        encoded: dict[type[Call[Any]], bytes] = {
            cast("type[Call[Any]]", kind): bytes(codec.dumps(body)) for kind, body in bodies.items()
        }
        encoded[GetSettings] = b"\n".join(b"setting%d=1" % number for number in range(500))
        return encoded


def _acl(user: str) -> AclInfo:
    entries = [
        PolicyEntryInfo(resource=resource, actions=["Sub", "Get"], decision="Allow")
        for resource in ("Topic:orders-*", "Group:billing-*")
    ]
    policy = PolicyInfo(policy_type="Custom", entries=entries)
    return AclInfo(subject=f"User:{user}", policies=[policy])


class PageTimes:
    """Milliseconds of one page: waits, and CPU time of the process."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.cpu: list[float] = []


async def measure(client: httpx.AsyncClient, app: Any, repeats: int) -> dict[str, PageTimes]:
    """Ask for each page several times."""
    found = {path: PageTimes() for path in (*PAGES, TAIL_EVENTS)}
    for path, times in found.items():
        for _ in range(repeats):
            started, cpu = time.perf_counter(), time.process_time()
            if path == TAIL_EVENTS:
                await first_event(app, path)
            else:
                response = await client.get(path, headers={"accept": "text/html"})
                assert response.status_code == 200, (path, response.text[-400:])
                is_list = path.startswith("/messages?")
                assert not is_list or "/messages/one?" in response.text, f"{path} found nothing"
            times.waits.append((time.perf_counter() - started) * 1000)
            times.cpu.append((time.process_time() - cpu) * 1000)
            await asyncio.sleep(0.01)
    return found


async def first_event(app: Any, path: str) -> None:
    """Ask for a stream and leave after its first event, for which httpx would not return."""
    came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200, message
        if message.get("body") and not came.done():
            came.set_result(message["body"])

    route, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": route, "raw_path": route.encode(), "root_path": "",
        "query_string": query.encode(), "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    served = asyncio.create_task(app(scope, asyncio.get_running_loop().create_future, send))
    async with asyncio.timeout(10):
        assert (await came).startswith(b"event: tail"), await came
    served.cancel()
    await asyncio.wait([served])


async def run(args: argparse.Namespace) -> list[Row]:
    """Measure each page, without and with the sampler at work."""
    fake = FakeCluster(args.topics, args.groups, args.brokers)
    settings = DashboardConfig(name_servers="127.0.0.1:9")
    async with open_dashboard(settings, ClientConfig()) as opened:
        sampler = Sampler(fake, period_ms=1)
        dashboard: Dashboard = replace(opened, admin=fake, sampler=sampler)
        cpu = time.process_time()
        for _ in range(2):
            await sampler.step()
        print(f"a sample takes {(time.process_time() - cpu) * 500:,.0f} ms of CPU time")
        app = application(dashboard)
        transport, reader = httpx.ASGITransport(app), open_nothing(fake.reader)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            # Pages open a consumer for each request.
            with (
                patch.object(messages, "open_reader", reader),
                patch.object(message_tail, "open_reader", reader),
            ):
                await measure(client, app, 1)
                alone = await measure(client, app, args.repeats)
                work = asyncio.create_task(_without_pause(sampler))
                busy = await measure(client, app, args.repeats)
                work.cancel()
                await asyncio.wait([work])
    goal: dict[str, Any] = {"goal": f"<= {GOAL_MS} ms"}
    rows = []
    for path in alone:
        rows += [
            Row(f"{path}: median", "ms", statistics.median(alone[path].waits), **goal),
            Row(f"{path}: most CPU", "ms", max(alone[path].cpu), **goal),
            Row(f"{path}: longest", "ms", max(alone[path].waits)),
            Row(
                f"{path}: median while sampling", "ms", statistics.median(busy[path].waits), **goal
            ),
            Row(f"{path}: longest, sampling", "ms", max(busy[path].waits)),
        ]
    return rows


async def _without_pause(sampler: Sampler) -> None:
    while True:
        await sampler.step()


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument(
        "--repeats", type=int, default=10, help="times of each page; the worst counts"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench-dashboard.json"))
    args = parser.parse_args()
    rows = asyncio.run(run(args))
    show(rows)
    save(rows, args.out)


if __name__ == "__main__":
    main()
