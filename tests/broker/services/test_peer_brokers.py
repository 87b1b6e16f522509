from collections.abc import AsyncIterator
from typing import Any

import pytest

from roquet.broker.services import peer_brokers as services
from roquet.broker.services.peer_brokers import FRESH_MS, PeerBrokers
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.topics import Topics
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.model.topic import TopicConfig
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.testing.clock import VirtualClock
from roquet.wire.call import Reply
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.bodies import ConsumeStats, QueueProgress
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


def queues(broker: str, count: int) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue("orders", broker, number) for number in range(count))


class OtherServers:
    """A name server and another broker on one port: records the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = b""
        self.refusal: int | None = None
        self.stats = ConsumeStats()
        router = Router()
        router.add(GetRoute, self._route)
        router.add(GetConsumeStats, self._stats)
        self.server = Server(router, host="127.0.0.1")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def knows(self, *brokers: str, count: int = 2) -> None:
        route = TopicRoute(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=count, write_queue_nums=count)
                for name in brokers
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs={0: self.address})
                for name in brokers
            ],
        )
        self.answer = codec.dumps(route)

    def _route(self, call: GetRoute, _peer: Peer) -> Reply:
        self.asked.append(call.topic)
        if self.refusal is not None:
            raise CallRefused(self.refusal)
        return Reply(body=self.answer)

    def _stats(self, call: GetConsumeStats, _peer: Peer) -> Reply:
        self.asked.append(call.consumer_group)
        return Reply(body=codec.dumps(self.stats))


@pytest.fixture
async def other() -> AsyncIterator[OtherServers]:
    other = OtherServers()
    async with other.server:
        yield other


@pytest.fixture
async def neighbours(other: OtherServers) -> AsyncIterator[PeerBrokers]:
    made = near(other.address)
    yield made
    await made.close()


def near(*servers: str, own: int = 3) -> PeerBrokers:
    config = BrokerConfig(broker_name="broker-b", name_servers=servers)
    topics = Topics(None, config, 0)
    if own:
        topics.put(TopicConfig(topic_name="orders", read_queue_nums=own), 0)
    return PeerBrokers(RuntimeSettings(config), SYSTEM_CLOCK, topics)


async def test_our_own_queues_are_known_without_a_call(
    neighbours: PeerBrokers, other: OtherServers
) -> None:
    other.knows("broker-a", "broker-b")
    home = await neighbours.home("orders")
    assert home is not None
    assert home.queues == (*queues("broker-a", 2), *queues("broker-b", 3))
    assert home.first == "broker-a"


async def test_a_route_is_asked_for_once_in_a_while(
    neighbours: PeerBrokers, other: OtherServers
) -> None:
    other.knows("broker-a")
    for _ in range(3):
        await neighbours.home("orders")
    assert other.asked == ["orders"]


async def test_a_topic_that_is_only_here_is_known_all_the_same(
    neighbours: PeerBrokers, other: OtherServers
) -> None:
    other.refusal = ResponseCode.TOPIC_NOT_EXIST
    home = await neighbours.home("orders")
    assert home is not None
    assert home.queues == queues("broker-b", 3)
    assert await neighbours.home("unknown") is None


@pytest.mark.parametrize("answer", [b"", b"{", b"[1]"])
async def test_a_name_server_that_talks_nonsense_knows_nothing(
    neighbours: PeerBrokers, other: OtherServers, answer: bytes
) -> None:
    other.answer = answer
    assert await neighbours.home("orders") is None


async def test_a_topic_without_name_servers_has_no_route(other: OtherServers) -> None:
    gone = near("127.0.0.1:1")
    assert await gone.home("orders") is None
    await gone.close()
    alone = near()
    home = await alone.home("orders")
    assert home is not None
    assert home.queues == queues("broker-b", 3)
    await alone.close()


async def test_the_next_name_server_is_asked_when_one_is_gone(other: OtherServers) -> None:
    other.knows("broker-a")
    made = near("127.0.0.1:1", other.address)
    home = await made.home("orders")
    assert home is not None
    assert home.first == "broker-a"
    await made.close()


async def test_lag_on_other_brokers_is_asked_of_them(
    neighbours: PeerBrokers, other: OtherServers
) -> None:
    other.knows("broker-a")
    progress = QueueProgress(broker_offset=9, consumer_offset=2)
    other.stats = ConsumeStats(offset_table={queues("broker-a", 1)[0]: progress})
    home = await neighbours.home("orders")
    assert home is not None
    for _ in range(2):
        assert await neighbours.lag("billing", "orders", home) == {queues("broker-a", 1)[0]: 7}
    assert other.asked == ["orders", "billing"]


async def test_lag_on_an_unreachable_broker_is_unknown(
    neighbours: PeerBrokers, other: OtherServers
) -> None:
    other.knows("broker-a")
    home: Any = await neighbours.home("orders")
    dead = type(home)(queues=home.queues, addresses={"broker-a": "127.0.0.1:1"})
    assert await neighbours.lag("billing", "orders", dead) == {}


async def test_queues_are_worked_out_again_when_there_are_others(other: OtherServers) -> None:
    config = BrokerConfig(broker_name="broker-b")
    topics = Topics(None, config, 0)
    made = PeerBrokers(RuntimeSettings(config), SYSTEM_CLOCK, topics)
    for count in (2, 5):
        topics.put(TopicConfig(topic_name="orders", read_queue_nums=count), 0)
        home = await made.home("orders")
        assert home is not None
        assert home.queues == queues("broker-b", count)
        assert await made.home("orders") is home
    await made.close()


async def test_the_last_known_route_is_used_while_no_name_server_answers(
    other: OtherServers,
) -> None:
    clock = VirtualClock()
    config = BrokerConfig(broker_name="broker-b", name_servers=(other.address,))
    made = PeerBrokers(RuntimeSettings(config), clock, Topics(None, config, 0))
    other.knows("broker-a")
    before = await made.home("orders")
    clock.jump(FRESH_MS)
    other.refusal = ResponseCode.SYSTEM_BUSY
    assert await made.home("orders") is before
    assert other.asked == ["orders", "orders"]
    await made.close()


async def test_the_latest_topics_are_cached_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, other: OtherServers
) -> None:
    monkeypatch.setattr(services, "REMEMBERED_MAX", 1)
    made = near(other.address)
    other.knows("broker-a")
    for topic in ("one", "two", "two", "one"):
        await made.home(topic)
    assert other.asked == ["one", "two", "one"]
    await made.close()
