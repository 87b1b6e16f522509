from collections.abc import Sequence
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend, NewPeer

from roquet.broker.broker import Broker
from roquet.broker.services import broker_rebalance
from roquet.broker.services.peer_brokers import TopicLocation
from roquet.broker.tables.assignments import AssignmentSnapshot
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, HeartbeatData
from roquet.model.topic import TopicConfig


@pytest.fixture
def announced(broker: Broker) -> list[Sequence[str]]:
    """The groups whose members had to ask again."""
    changes: list[Sequence[str]] = []
    broker.coordination.rebalance.on_change.append(changes.append)
    return changes


def join(broker: Broker, peer: FakePeer, client_id: str) -> None:
    data = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name="g")])
    broker.tables.clients.beat(peer, data)


def here(broker: Broker, count: int) -> TopicLocation:
    broker.tables.topics.put(TopicConfig(topic_name="orders", read_queue_nums=count), 0)
    name = broker.control.settings.config.broker_name
    return TopicLocation(
        queues=tuple(MessageQueue("orders", name, number) for number in range(count))
    )


async def decided(
    broker: Broker, home: TopicLocation, strategy: str = "LAG_WEIGHTED"
) -> AssignmentSnapshot:
    decision = await broker.coordination.rebalance.decide("g", "orders", strategy, home)
    assert decision is not None
    return decision


async def test_the_same_decision_until_something_changes(broker: Broker, new_peer: NewPeer) -> None:
    join(broker, new_peer(), "c1")
    first = await decided(broker, here(broker, 2), "STICKY")
    assert await decided(broker, here(broker, 2), "STICKY") is first
    join(broker, new_peer(), "c2")
    second = await decided(broker, here(broker, 2), "STICKY")
    assert (first.number, second.number) == (1, 2)


async def test_a_group_without_members_or_queues_has_no_decision(
    broker: Broker, new_peer: NewPeer
) -> None:
    assert (
        await broker.coordination.rebalance.decide("g", "orders", "STICKY", here(broker, 2)) is None
    )
    join(broker, new_peer(), "c1")
    assert (
        await broker.coordination.rebalance.decide(
            "g", "orders", "STICKY", TopicLocation(queues=())
        )
        is None
    )


async def test_changed_lag_triggers_a_rebalance_of_all_members(
    broker: Broker,
    new_peer: NewPeer,
    message: MakeSend,
    announced: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = new_peer()
    join(broker, peer, "c1")
    join(broker, new_peer(), "c2")
    home = here(broker, 4)
    before = await decided(broker, home)
    mine = {queue.queue_id for queue in before.shares["c1"]}
    for queue_id in mine:
        for _ in range(1_200):
            broker.log.ingest.append(message(queue_id=queue_id), queue_id, peer)
    assert await decided(broker, home) is before, "it was looked at a moment ago"
    monkeypatch.setattr(broker_rebalance, "REVIEW_MS", 0)
    after = await decided(broker, home)
    assert after.number == 2
    assert [len(mine & {q.queue_id for q in share}) for share in after.shares.values()] == [1, 1]
    assert announced == [["g"]]


async def test_a_review_that_gains_little_changes_nothing(
    broker: Broker,
    new_peer: NewPeer,
    message: MakeSend,
    announced: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_rebalance, "REVIEW_MS", 0)
    peer = new_peer()
    join(broker, peer, "c1")
    join(broker, new_peer(), "c2")
    before = await decided(broker, here(broker, 4))
    for _ in range(200):
        broker.log.ingest.append(message(queue_id=0), 0, peer)
    after = await decided(broker, here(broker, 4))
    assert (after.number, after.shares) == (before.number, before.shares)
    assert announced == []


async def test_the_first_decision_begins_with_the_observed_owners(
    broker: Broker, new_peer: NewPeer
) -> None:
    home = here(broker, 4)
    peers = {member: new_peer() for member in ("c1", "c2")}
    for member, peer in peers.items():
        join(broker, peer, member)
    for queue_id, member in enumerate(("c2", "c1", "c2", "c1")):
        broker.coordination.handover.seen("g", "orders", queue_id, peers[member])
    shares = (await decided(broker, home, "STICKY")).shares
    assert {m: [q.queue_id for q in share] for m, share in shares.items()} == {
        "c1": [1, 3],
        "c2": [0, 2],
    }


async def test_a_strategy_is_computed_once_for_all_members(
    broker: Broker, new_peer: NewPeer
) -> None:
    home = here(broker, 4)
    join(broker, new_peer(), "c1")
    first = broker.coordination.rebalance.by_rule("g", "orders", "AVG", home)
    assert broker.coordination.rebalance.by_rule("g", "orders", "AVG", home) is first
    other = broker.coordination.rebalance.by_rule("g", "orders", "AVG_BY_CIRCLE", home)
    assert other is not first
    join(broker, new_peer(), "c2")
    after = broker.coordination.rebalance.by_rule("g", "orders", "AVG", home)
    assert [len(share) for share in after.values()] == [2, 2]
    assert (
        len(broker.coordination.rebalance.by_rule("g", "orders", "AVG", here(broker, 6))["c1"]) == 3
    )
