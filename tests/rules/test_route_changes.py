"""Changes of routes by operators."""

import msgspec

from roquet.model.route import QueueData
from roquet.model.topic import DataVersion, TopicConfig
from roquet.rules import route_changes, routing
from roquet.rules.routing import BrokerRegistration, BrokerRegistrations


def perms(known: BrokerRegistrations, topic: str) -> dict[str, int]:
    topic_route = routing.route(known, topic)
    return (
        {}
        if topic_route is None
        else {data.broker_name: data.perm for data in topic_route.queue_datas}
    )


def two_brokers() -> BrokerRegistrations:
    topics = {name: TopicConfig(topic_name=name) for name in ("t", "u")}
    return {
        (name, broker_id): BrokerRegistration(
            cluster=f"cluster-{name}",
            broker_name=name,
            broker_id=broker_id,
            address=f"{name}{broker_id}:1",
            topics=topics,
        )
        for name, broker_id in (("a", 0), ("a", 1), ("b", 0))
    }


def test_write_permission_is_taken_from_all_of_one_name_and_given_back() -> None:
    known = two_brokers()
    assert (route_changes.topic_count(known, "a"), route_changes.topic_count(known, "z")) == (2, 0)
    wiped = route_changes.with_write_permission(known, "a", may_write=False)
    assert perms(wiped, "t") == {"a": 4, "b": 6}
    assert {wiped["a", i].topics["u"].perm for i in (0, 1)} == {4}
    assert route_changes.with_write_permission(wiped, "a", may_write=True) == known


def test_operators_changes_stay_until_the_broker_has_other_topics() -> None:
    known = two_brokers()
    wiped = route_changes.with_write_permission(known, "a", may_write=False)
    same = known["a", 0]
    for whole in (False, True):
        assert perms(routing.merge(wiped, same, whole=whole), "t")["a"] == 4
        newer = msgspec.structs.replace(same, version=DataVersion(counter=2))
        assert perms(routing.merge(wiped, newer, whole=whole), "t")["a"] == 6


def test_a_topic_is_forgotten_and_registered_by_hand() -> None:
    known = two_brokers()
    assert perms(route_changes.without_topic(known, "t", "cluster-a"), "t") == {"b": 6}
    assert perms(route_changes.without_topic(known, "t"), "t") == {}
    assert route_changes.without_topic(known, "none") == known
    data = QueueData(broker_name="b", read_queue_nums=3, write_queue_nums=2, perm=4)
    assert perms(route_changes.with_topic(known, "new", [data]), "new") == {"b": 4}
    stranger = msgspec.structs.replace(data, broker_name="z")
    assert route_changes.with_topic(known, "new", [data, stranger]) == known
