from typing import Any

import pytest
from tests.broker.conftest import FakePeer, LocalBroker, heartbeat_of, not_none, refuses

from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumeType, Subscription
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.bodies import ConsumerConnection, ConsumeStats
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.fastjson import codec


@pytest.fixture
def billing(broker: LocalBroker) -> dict[str, Any]:
    """Two members of a group that has read one of two messages."""
    broker.put_topic("orders", 2)
    peers = {"c1": FakePeer(), "c2": FakePeer()}
    for client_id, peer in peers.items():
        join(broker, peer, client_id, "*")
    for _ in range(2):
        broker.send()
    commit(broker, peers["c1"], 1)
    return peers


def join(
    broker: LocalBroker, peer: FakePeer, client_id: str, expression: str, topic: str = "orders"
) -> None:
    broker.beat(heartbeat_of(client_id, Subscription(topic=topic, sub_string=expression)), peer)


def commit(broker: LocalBroker, peer: FakePeer, offset: int, queue_id: int = 0) -> None:
    place: dict[str, Any] = {"consumer_group": "billing", "topic": "orders", "queue_id": queue_id}
    broker.ask(UpdateOffset(**place, commit_offset=offset), peer)


def connections(broker: LocalBroker, **fields: Any) -> ConsumerConnection:
    reply = broker.ask(GetConnections(consumer_group="billing", **fields))
    return codec.loads(reply.body, ConsumerConnection)


def stats(broker: LocalBroker, **fields: Any) -> ConsumeStats:
    reply = broker.ask(GetConsumeStats(**{"consumer_group": "billing", **fields}))
    return codec.loads(reply.body, ConsumeStats)


@pytest.mark.usefixtures("billing")
async def test_the_members_of_a_group_are_listed(broker: LocalBroker) -> None:
    body = connections(broker)
    assert [c.client_id for c in body.connection_set] == ["c1", "c2"]
    assert {c.client_addr for c in body.connection_set} == {"10.0.0.7:5000"}
    assert body.connection_set[0].language is Language.JAVA
    assert body.connection_set[0].subscriptions is None, "nobody asked"
    assert body.subscription_table["orders"].sub_string == "*"
    assert body.consume_type is ConsumeType.CONSUME_PASSIVELY


async def test_the_subscriptions_of_each_member_are_listed(
    broker: LocalBroker, billing: dict[str, Any]
) -> None:
    join(broker, billing["c2"], "c2", "paid")
    members = connections(broker, with_subscriptions=True).connection_set
    assert [c.subscriptions for c in members] == [{"orders": "*"}, {"orders": "paid"}]


async def test_the_allocation_strategy_of_each_member_is_listed(
    broker: LocalBroker, billing: dict[str, Any]
) -> None:
    broker.beat(heartbeat_of("c2", strategy="AVG_BY_CIRCLE"), billing["c2"])
    members = connections(broker, with_subscriptions=True).connection_set
    assert [c.strategy for c in members] == [None, "AVG_BY_CIRCLE"]
    assert [c.strategy for c in connections(broker).connection_set] == [None, None]


async def test_an_unknown_language_is_other(broker: LocalBroker, billing: dict[str, Any]) -> None:
    billing["c1"].language = 99
    assert connections(broker).connection_set[0].language is Language.OTHER


async def test_a_group_without_members_is_not_online(broker: LocalBroker) -> None:
    with refuses(ResponseCode.CONSUMER_NOT_ONLINE, "not online"):
        connections(broker)


@pytest.mark.usefixtures("billing")
async def test_progress_is_reported_for_every_queue(broker: LocalBroker) -> None:
    name = broker.control.settings.config.broker_name
    table = stats(broker).offset_table
    first, second = (table[MessageQueue("orders", name, number)] for number in (0, 1))
    assert (first.broker_offset, first.consumer_offset, first.lag) == (2, 1, 1)
    assert first.last_timestamp > 1_600_000_000_000, "when the last message read was stored"
    assert (second.broker_offset, second.consumer_offset, second.last_timestamp) == (0, 0, 0)
    assert first.owners is None, "nobody asked"


async def test_queue_owners_are_listed(broker: LocalBroker, billing: dict[str, Any]) -> None:
    commit(broker, billing["c2"], 0, queue_id=1)
    table = stats(broker, with_owners=True).offset_table
    assert [progress.owners for progress in table.values()] == [["c1"], ["c2"]]


@pytest.mark.usefixtures("billing")
async def test_delivered_counts_and_rates_are_reported(broker: LocalBroker) -> None:
    broker.control.statistics.got("orders", "billing", 2, 99).pulled[0] = 2
    assert stats(broker).consume_tps == 0.0
    list(broker.control.statistics.tick(broker.control.statistics.boot_ms + 10_000))
    body = stats(broker)
    progress = body.offset_table[
        MessageQueue("orders", broker.control.settings.config.broker_name, 0)
    ]
    assert (progress.consumer_offset, progress.pull_offset) == (1, 2)
    assert body.consume_tps == 0.2


@pytest.mark.usefixtures("billing")
async def test_one_topic_or_several_can_be_asked_for(broker: LocalBroker) -> None:
    assert len(stats(broker, topic="orders").offset_table) == 2
    assert len(stats(broker, topic_list="orders;unknown").offset_table) == 2
    assert stats(broker, topic="unknown").offset_table == {}


@pytest.mark.usefixtures("billing")
async def test_topics_that_a_live_group_has_left_are_passed_over(broker: LocalBroker) -> None:
    broker.put_topic("old", 1)
    broker.tables.offsets.commit("billing", "old", 0, 0)
    assert {queue.topic for queue in stats(broker).offset_table} == {"orders"}


async def test_an_unknown_group_has_no_progress(broker: LocalBroker) -> None:
    assert stats(broker, consumer_group="unknown").offset_table == {}


async def test_the_assignment_is_listed(broker: LocalBroker, billing: dict[str, Any]) -> None:
    home = not_none(await broker.coordination.peer_brokers.home("orders"))
    await broker.coordination.rebalance.decide("billing", "orders", "STICKY", home)
    assert stats(broker).decisions is None
    (decision,) = stats(broker, with_owners=True).decisions or []
    assert (decision.topic, decision.strategy, decision.number) == ("orders", "STICKY", 1)
    assert sorted(decision.owners.values()) == ["c1", "c2"]


async def test_subscribed_topics_without_progress_are_listed_if_asked(broker: LocalBroker) -> None:
    broker.put_topic("orders", 2)
    join(broker, FakePeer(), "c1", "*")
    assert stats(broker).offset_table == {}
    assert len(stats(broker, with_owners=True).offset_table) == 2
