from tests.broker.conftest import FakePeer, NewPeer

from roquet.broker.broker import Broker
from roquet.model.subscription import ConsumerData, HeartbeatData
from roquet.rules.liveness import LastSeen
from roquet.wire.calls.bodies import RequestMode
from roquet.wire.calls.heartbeat import ConsumersChanged


def join(broker: Broker, peer: FakePeer, client_id: str, group: str) -> None:
    data = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name=group)])
    broker.tables.clients.seen(peer, LastSeen(seen_ms=0))
    broker.tables.clients.beat(peer, data)


async def test_the_members_of_a_changed_group_are_notified(
    broker: Broker, new_peer: NewPeer
) -> None:
    ours, theirs = new_peer(), new_peer()
    join(broker, ours, "c1", "billing")
    join(broker, theirs, "c2", "shipping")
    broker.coordination.notify(["billing", "unknown"])
    assert ours.told == [ConsumersChanged(consumer_group="billing")]
    assert theirs.told == []


async def test_a_silent_client_is_removed_and_its_groups_are_notified(
    broker: Broker, new_peer: NewPeer
) -> None:
    first, second = new_peer(), new_peer()
    join(broker, first, "c1", "billing")
    join(broker, second, "c2", "billing")
    broker.coordination.forget(first)
    assert first.told == []
    assert second.told == [ConsumersChanged(consumer_group="billing")]


async def test_forgetting_a_stranger_changes_nothing(broker: Broker, peer: FakePeer) -> None:
    broker.coordination.forget(peer)
    assert peer not in broker.tables.clients


async def test_observed_owners_and_decisions_are_removed_with_the_last_member(
    broker: Broker, new_peer: NewPeer
) -> None:
    first, second = new_peer(), new_peer()
    join(broker, first, "c1", "billing")
    join(broker, second, "c2", "billing")
    broker.coordination.handover.seen("billing", "orders", 0, first)
    broker.coordination.rebalance.assignments.note_strategy("billing", "c2", "STICKY")
    broker.coordination.forget(first)
    assert broker.coordination.handover.owners("billing", "orders", 0) == []
    assert broker.coordination.rebalance.assignments.strategies("billing") == {"c2": "STICKY"}
    broker.coordination.forget(second)
    assert broker.coordination.rebalance.assignments.strategies("billing") == {}


async def test_a_group_pulls_by_default(broker: Broker) -> None:
    assert broker.coordination.request_mode("orders", "billing").mode == "PULL"
    broker.tables.request_modes.put(
        RequestMode(topic="orders", consumer_group="billing", mode="POP")
    )
    assert broker.coordination.request_mode("orders", "billing").mode == "POP"
    assert broker.coordination.request_mode("orders", "other").mode == "PULL"


async def test_a_retry_topic_is_pulled_whatever_the_settings_say(broker: Broker) -> None:
    broker.control.settings.change({"default_request_mode": "POP"}, 0)
    assert broker.coordination.request_mode("orders", "billing").mode == "POP"
    assert broker.coordination.request_mode("%RETRY%billing", "billing").mode == "PULL"
