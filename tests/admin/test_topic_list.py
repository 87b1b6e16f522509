import pytest
from tests.admin.conftest import ClusterWithAdmin

from roquet.admin import topic_list, topics
from roquet.admin.topic_list import TopicSummary
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import CallTimeout
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.stats import GetTopicStats

pytestmark = pytest.mark.virtual_time


async def make_orders(cluster: ClusterWithAdmin, messages: int = 8) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=2, write_queues=2))
    await cluster.settle()
    async with Producer(cluster.namesrv, config=ProducerConfig(clock=cluster.clock)) as producer:
        for _ in range(messages):
            await producer.send("orders", b"x")


async def listed(cluster: ClusterWithAdmin, name: str = "orders") -> TopicSummary:
    found, failed = await topic_list.summaries(cluster.admin)
    assert failed == {}
    (one,) = (topic for topic in found if topic.name == name)
    return one


async def test_a_topic_is_summed_over_its_brokers(cluster: ClusterWithAdmin) -> None:
    await make_orders(cluster)
    await cluster.clock.sleep(20_000)
    orders = await listed(cluster)
    assert orders.brokers == ["broker-a", "broker-b"]
    assert (orders.queues, orders.messages) == (4, 8)
    assert orders.stored_ms is not None
    assert orders.in_per_s is not None
    assert 0 < orders.in_per_s <= 8


async def test_messages_of_queues_that_can_only_be_read_count(cluster: ClusterWithAdmin) -> None:
    await make_orders(cluster)
    await topics.update(cluster.admin, "orders", TopicSettings(write_queues=1))
    await cluster.settle()
    orders = await listed(cluster)
    assert (orders.queues, orders.messages) == (4, 8)


async def test_a_topic_on_no_broker_that_answers_is_listed_without_numbers(
    cluster: ClusterWithAdmin,
) -> None:
    await cluster.add_replica("broker-z", "127.0.0.1:1", "gone")
    found, failed = await topic_list.summaries(cluster.admin)
    assert TopicSummary(name="gone", brokers=[]) in found
    assert [*failed] == ["broker-z"]


async def test_a_broker_that_stops_answering_is_not_asked_for_every_topic(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        settings = TopicSettings(read_queues=1, write_queues=1)
        await topics.create(cluster.admin, f"topic-{number}", settings, ["broker-b"])
    asked: list[str] = []
    call, broker = ChannelPool.call, cluster.running.broker_addrs[1]

    async def silent(pool: ChannelPool, address: str, one: Call[Reply], timeout_ms: int) -> Reply:
        if address == broker and isinstance(one, GetTopicStats):
            asked.append(one.topic)
            await cluster.clock.sleep(timeout_ms)
            raise CallTimeout("no reply")
        return await call(pool, address, one, timeout_ms)

    monkeypatch.setattr(ChannelPool, "call", silent)
    found, failed = await topic_list.summaries(cluster.admin)
    assert [*failed] == ["broker-b"]
    assert len(asked) <= 64, "as many as may be asked at a time"
    assert all(one.messages is None for one in found if one.name.startswith("topic-"))
