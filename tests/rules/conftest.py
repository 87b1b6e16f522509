"""Registrations of two broker names."""

from roquet.model.topic import TopicConfig
from roquet.rules import routing
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
