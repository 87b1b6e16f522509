from unittest.mock import AsyncMock

import pytest
from tests.admin.conftest import ClusterWithAdmin

from roquet.admin import topics
from roquet.admin.topics import TopicBrokerInfo, TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import ConnectFailed, RoquetError, UsageError

pytestmark = pytest.mark.virtual_time


async def test_a_topic_is_made_on_all_brokers_and_shown(cluster: ClusterWithAdmin) -> None:
    made = await topics.create(
        cluster.admin, "orders", TopicSettings(read_queues=2, write_queues=2)
    )
    assert made == ["broker-a", "broker-b"]
    await cluster.settle()
    config = ProducerConfig(clock=cluster.clock)
    async with Producer(cluster.namesrv, config=config) as producer:
        for _ in range(8):
            await producer.send("orders", b"x")
    found = await topics.show(cluster.admin, "orders")
    assert found.messages == 8
    assert [(q.broker, q.queue_id, q.end) for q in found.queues] == [
        (broker, queue_id, 2) for broker in ("broker-a", "broker-b") for queue_id in (0, 1)
    ]
    assert all(queue.stored_ms for queue in found.queues)
    assert found.places[0] == TopicBrokerInfo(
        broker="broker-a",
        read_queues=2,
        write_queues=2,
        permission="RW",
        order=False,
        attributes={},
    )
    assert found.problems == []


async def test_queues_that_can_only_be_read_are_counted_too(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=4, write_queues=4))
    await cluster.settle()
    async with Producer(cluster.namesrv, config=ProducerConfig(clock=cluster.clock)) as producer:
        for _ in range(16):
            await producer.send("orders", b"x")
    await topics.update(cluster.admin, "orders", TopicSettings(write_queues=1))
    await cluster.settle()
    found = await topics.show(cluster.admin, "orders")
    assert found.messages == 16
    assert [(q.broker, q.queue_id, q.begin, q.end) for q in found.queues] == [
        (broker, queue_id, 0, 2) for broker in ("broker-a", "broker-b") for queue_id in range(4)
    ]
    assert [q.stored_ms is None for q in found.queues] == [False, True, True, True] * 2


async def test_a_broker_that_does_not_report_read_only_queues_is_a_problem_of_the_topic(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=3, write_queues=1))
    await cluster.settle()
    route = await cluster.admin.known_route("orders")
    await cluster.running.stop_broker(1)
    monkeypatch.setattr(cluster.admin, "known_route", AsyncMock(return_value=route))
    shown = await topics.show(cluster.admin, "orders")
    queues = [(queue.broker, queue.queue_id) for queue in shown.queues]
    assert queues == [("broker-a", 0), ("broker-a", 1), ("broker-a", 2)]
    (problem,) = shown.problems
    assert problem.startswith("broker-b does not answer: its part is missing here (")


async def test_settings_left_out_stay_as_they_are(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=3, write_queues=3))
    await cluster.settle()
    changed = await topics.update(
        cluster.admin, "orders", TopicSettings(permission=4, order=True), ["broker-b"]
    )
    assert changed == ["broker-b"]
    await cluster.settle()
    first, second = (await topics.show(cluster.admin, "orders")).places
    assert (first.permission, first.order) == ("RW", False)
    assert (second.permission, second.order, second.read_queues) == ("R", True, 3)


async def test_a_topic_that_is_there_is_not_made_again(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(), ["broker-a"])
    await cluster.settle()
    with pytest.raises(UsageError, match=r"already on broker-a: `update` changes it"):
        await topics.create(cluster.admin, "orders", TopicSettings())
    assert await topics.create(cluster.admin, "orders", TopicSettings(), ["broker-b"]) == [
        "broker-b"
    ]


async def test_a_deleted_topic_is_nowhere(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings())
    await cluster.settle()
    assert await topics.delete(cluster.admin, "orders") == ["broker-a", "broker-b"]
    assert "orders" not in await topics.list_names(cluster.admin, system=True)
    with pytest.raises(UsageError, match="no broker has a topic 'orders'"):
        await topics.show(cluster.admin, "orders")


async def test_system_topics_are_listed_only_on_request(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings())
    await cluster.settle()
    assert await topics.list_names(cluster.admin) == ["orders"]
    assert {"orders", "SELF_TEST_TOPIC", "broker-a"} <= set(
        await topics.list_names(cluster.admin, system=True)
    )


async def test_an_unknown_name_gets_the_nearest_one_as_a_hint(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings())
    await cluster.settle()
    with pytest.raises(UsageError, match="orders"):
        await topics.show(cluster.admin, "ordesr")
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        await topics.create(cluster.admin, "new", TopicSettings(), ["broker-x"])
    with pytest.raises(UsageError, match="letters, digits"):
        await topics.create(cluster.admin, "no topic", TopicSettings())


async def test_a_change_that_fails_on_one_broker_names_those_that_have_it(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings())
    await cluster.settle()
    places = await cluster.admin.brokers()
    await cluster.running.stop_broker(1)
    monkeypatch.setattr(cluster.admin, "brokers", AsyncMock(return_value=places))
    with pytest.raises(RoquetError, match=r"created on broker-a, but not everywhere: broker-b"):
        await topics.create(cluster.admin, "more", TopicSettings())


async def test_a_broker_that_does_not_answer_is_a_problem_of_the_topic(
    cluster: ClusterWithAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings())
    await cluster.settle()
    route = await cluster.admin.route("orders")
    await cluster.running.stop_broker(1)
    monkeypatch.setattr(cluster.admin, "route", AsyncMock(return_value=route))
    found = await topics.show(cluster.admin, "orders")
    assert [problem.split()[0] for problem in found.problems] == ["broker-b"]
    with pytest.raises(ConnectFailed):
        await topics.update(cluster.admin, "orders", TopicSettings(order=True))


@pytest.mark.parametrize(("text", "number"), [("RW", 6), ("r", 4), ("W", 2), ("-", 0), ("wr", 6)])
def test_permissions_are_read(text: str, number: int) -> None:
    assert topics.parse_permission(text) == number
    assert set(topics.permission_text(number)) == set(text.upper())


def test_other_permissions_are_refused() -> None:
    with pytest.raises(UsageError, match="RW, R, W or -"):
        topics.parse_permission("RX")


async def test_the_brokers_of_a_topic_are_all_or_those_that_are_named(
    cluster: ClusterWithAdmin,
) -> None:
    await topics.create(cluster.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
    await cluster.settle()
    found = await topics.show(cluster.admin, "orders")
    assert topics.select_brokers(found, []) == ["broker-a", "broker-b"]
    assert topics.select_brokers(found, ["broker-b"]) == ["broker-b"]
    with pytest.raises(UsageError, match="topic 'orders' is not on 'broker-x'"):
        topics.select_brokers(found, ["broker-x"])
