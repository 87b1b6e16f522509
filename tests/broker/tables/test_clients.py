from collections.abc import Callable
from typing import Any

from tests.broker.conftest import FakePeer, not_none

from roquet.broker.tables.clients import Clients, language_of
from roquet.model.subscription import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    ProducerData,
    Subscription,
)
from roquet.rules.liveness import LastSeen
from roquet.wire.codes import Language


def consumer(
    client_id: str, *expressions: str, group: str = "billing", **fields: Any
) -> HeartbeatData:
    subscriptions = [
        Subscription(topic=f"topic{number}", sub_string=expression, sub_version=1)
        for number, expression in enumerate(expressions or ("*",))
    ]
    data = ConsumerData(group_name=group, subscription_data_set=subscriptions, **fields)
    return HeartbeatData(client_id=client_id, consumer_data_set=[data])


def test_a_new_member_is_news_and_the_same_again_is_not(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    assert clients.beat(peer, consumer("c1")) == ["billing"]
    assert clients.beat(peer, consumer("c1")) == []


def test_members_are_listed_each_once_and_sorted(new_peer: Callable[[], Any]) -> None:
    clients = Clients()
    for client_id in ("c2", "c1", "c2"):  # c2 has reconnected, its old connection lingers
        clients.beat(new_peer(), consumer(client_id))
    assert not_none(clients.consumers("billing")).client_ids == ["c1", "c2"]


def test_a_changed_subscription_is_news(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    clients.beat(peer, consumer("c1", "a"))
    assert clients.beat(peer, consumer("c1", "b")) == ["billing"]
    assert clients.beat(peer, consumer("c1", "b", "*")) == ["billing"]
    assert clients.beat(peer, consumer("c1", "b")) == ["billing"]


def test_an_older_subscription_does_not_replace_a_newer_one(new_peer: Callable[[], Any]) -> None:
    clients = Clients()

    def beat(expression: str, version: int) -> None:
        wants = Subscription(topic="t", sub_string=expression, sub_version=version)
        data = ConsumerData(group_name="billing", subscription_data_set=[wants])
        clients.beat(new_peer(), HeartbeatData(client_id="c", consumer_data_set=[data]))

    beat("new", 2)
    beat("old", 1)
    assert not_none(clients.consumers("billing")).subscriptions["t"].sub_string == "new"


def test_the_way_of_consuming_is_the_latest_members(new_peer: Callable[[], Any]) -> None:
    clients = Clients()
    clients.beat(new_peer(), consumer("c1", message_model=MessageModel.BROADCASTING))
    assert not_none(clients.consumers("billing")).message_model is MessageModel.BROADCASTING


def test_a_client_that_leaves_is_removed_and_others_hear(new_peer: Callable[[], Any]) -> None:
    clients, first, second = Clients(), new_peer(), new_peer()
    clients.beat(first, consumer("c1"))
    clients.beat(second, consumer("c2"))
    assert clients.leave(first, producer=None, consumer="billing")
    assert not clients.leave(first, producer=None, consumer="billing")
    assert list(clients.members(["billing"])) == [("billing", second)]


def test_a_group_ends_with_its_last_member(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    clients.beat(peer, consumer("c1"))
    clients.leave(peer, producer=None, consumer="billing")
    assert clients.consumers("billing") is None
    assert list(clients.members(["billing"])) == []


def test_a_lost_connection_leaves_all_its_groups(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    clients.seen(peer, LastSeen(seen_ms=0))
    clients.beat(peer, consumer("c1", group="one"))
    clients.beat(peer, consumer("c1", group="two"))
    clients.beat(
        peer, HeartbeatData(client_id="c1", producer_data_set=[ProducerData(group_name="pg")])
    )
    assert clients.producers("pg") == [peer]
    assert sorted(clients.drop(peer)) == ["one", "two"]
    assert clients.producers("pg") == []
    assert peer not in clients


def test_silence_is_noticed(new_peer: Callable[[], Any]) -> None:
    clients, quiet, lively = Clients(), new_peer(), new_peer()
    clients.seen(quiet, LastSeen(seen_ms=0, limit_ms=100))
    clients.seen(lively, LastSeen(seen_ms=50, limit_ms=100))
    assert clients.silent(100) == []
    assert clients.silent(101) == [quiet]


def test_a_fingerprint_stands_for_the_last_full_heartbeat(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    data = HeartbeatData(client_id="c1", heartbeat_fingerprint=77)
    assert not clients.same_as_before(peer, 77)
    clients.beat(peer, data)
    assert clients.same_as_before(peer, 77)
    assert not clients.same_as_before(peer, 78)
    assert not clients.same_as_before(peer, 0)


def test_members_are_found_by_their_connections(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    clients.beat(peer, consumer("c1", "a", "*", group="one"))
    clients.beat(peer, consumer("c1", group="two"))
    assert clients.member("one", peer) == "c1"
    assert clients.member("one", new_peer()) is None
    assert clients.member("three", peer) is None
    assert sorted(clients.memberships(peer)) == [("one", "c1"), ("two", "c1")]
    assert not_none(clients.consumers("one")).members[peer].wishes == {"topic0": "a", "topic1": "*"}


def test_a_producer_is_found_on_its_latest_connection(new_peer: Callable[[], Any]) -> None:
    clients, old, new = Clients(), new_peer(), new_peer()
    data = HeartbeatData(
        client_id="p1",
        producer_data_set=[ProducerData(group_name="a"), ProducerData(group_name="b")],
    )
    clients.beat(old, data)
    assert [clients.producer("p1")] == [old]
    clients.beat(new, data)
    clients.drop(old)
    assert [clients.producer("p1")] == [new]
    clients.leave(new, producer="a", consumer=None)
    assert [clients.producer("p1")] == [new]
    clients.leave(new, producer="b", consumer=None)
    assert clients.producer("p1") is None
    clients.beat(old, consumer("p1"))
    assert clients.producer("p1") is None


def test_a_client_id_that_is_connected_stays_with_its_user(new_peer: Callable[[], Any]) -> None:
    clients, own, again, thief = Clients(), new_peer(), new_peer(), new_peer()
    data = HeartbeatData(client_id="p1", producer_data_set=[ProducerData(group_name="a")])
    clients.beat(own, data, "shop")
    clients.beat(thief, data, "eve")
    assert [clients.producer("p1")] == [own]
    assert (clients.user(own), clients.user(thief), clients.user(again)) == ("shop", "eve", "")
    clients.beat(again, data, "shop")
    assert [clients.producer("p1")] == [again]
    again.hang_up()
    clients.beat(thief, data, "eve")
    assert [clients.producer("p1")] == [thief], "its user's connection has ended"
    clients.drop(thief)
    assert clients.user(thief) == ""


def test_producers_are_listed_with_their_clients(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    data = HeartbeatData(client_id="c1", producer_data_set=[ProducerData(group_name="shop")])
    clients.beat(peer, data)
    assert clients.producer_groups() == ["shop"]
    assert clients.producer_ids("shop") == {peer: "c1"}
    assert clients.producer_ids("other") is None


def test_groups_subscribed_to_a_topic_are_listed(new_peer: Callable[[], Any]) -> None:
    clients = Clients()
    clients.beat(new_peer(), consumer("c1", "a", "b"))
    clients.beat(new_peer(), consumer("c2", "c", group="audit"))
    assert sorted(clients.listeners("topic0")) == ["audit", "billing"]
    assert clients.listeners("topic1") == ["billing"]
    assert not_none(clients.subscription("billing", "topic1")).sub_string == "b"
    assert clients.subscription("billing", "x") is clients.subscription("x", "topic1") is None


def test_the_time_of_the_last_heartbeat_is_reported(new_peer: Callable[[], Any]) -> None:
    clients, peer = Clients(), new_peer()
    assert clients.seen_ms(peer) is None
    clients.seen(peer, LastSeen(seen_ms=7))
    assert clients.seen_ms(peer) == 7


def test_the_end_of_a_connection_changes_only_its_own_groups(new_peer: Callable[[], Any]) -> None:
    clients, peer, other = Clients(), new_peer(), new_peer()
    mine = [ProducerData(group_name=f"p{n}") for n in range(3)]
    clients.beat(peer, HeartbeatData(client_id="c1", producer_data_set=mine))
    clients.beat(peer, consumer("c1", group="a"))
    clients.beat(other, HeartbeatData(client_id="c2", producer_data_set=mine[:1]))
    clients.beat(other, consumer("c2", group="b"))
    assert clients.group_counts(peer, consumer("c1", group="c")) == (3, 2)
    assert clients.memberships(peer) == [("a", "c1")]
    assert clients.drop(peer) == ["a"]
    assert clients.producer_groups() == ["p0"]
    assert clients.producer("c1") is None
    assert clients.memberships(peer) == []
    assert clients.memberships(other) == [("b", "c2")]
    assert clients.group_counts(peer, consumer("c1")) == (0, 1)


def test_a_peer_says_what_it_is_written_in(peer: FakePeer) -> None:
    peer.language = Language.GO
    assert language_of(peer) is Language.GO


def test_an_unknown_language_is_another_one(peer: FakePeer) -> None:
    peer.language = 99
    assert language_of(peer) is Language.OTHER
