"""Inventory: permission, topics, groups, connections and waiting requests of a broker."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from roquet.broker import admission
from roquet.broker.broker import Broker
from roquet.metrics import rocketmq_metrics as rocketmq
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.text_format import MetricsPage
from roquet.model.names import is_system_group
from roquet.model.subscription import ConsumeType
from roquet.net.router import Peer
from roquet.wire.codes import Language, release_of

POOLS: Final[Mapping[str, str]] = {
    "send": admission.SEND,
    "ack": admission.ACK,
    "query_message": admission.QUERY,
    "heartbeat": admission.HEARTBEAT,
    "transaction": admission.TRANSACTION,
    "admin": admission.ADMIN,
}
"""Thread pools of Apache's broker and our limits of the same requests. In the others nothing waits:
pulls that wait for messages do not wait for the broker."""

MODES: Final[Mapping[ConsumeType, str]] = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
"""Modes of consumers, as Apache's metrics call them."""

PROTOCOL: Final = "remoting"


def version_name(number: int) -> str:
    """A client's version as Apache's metrics show it: v5_5_0, v5_4_9_snapshot or the number."""
    release = release_of(number)
    return str(number) if release is None else f"v{release}".replace(".", "_").replace("-", "_")


def language_name(number: int) -> str:
    """A client's language as Apache's metrics show it."""
    known = number in Language.__members__.values()
    return Language(number).name.lower() if known else str(number)


def flag(value: bool) -> str:
    """A switch as the value of a label."""
    return str(value).lower()


def add_inventory(broker: Broker, page: MetricsPage) -> None:
    """Add numbers of topics, groups, connections and waiting requests."""
    config = broker.control.settings.config
    page.add(rocketmq.BROKER_PERMISSION, config.permission)
    page.add(rocketmq.TOPIC_NUMBER, sum(1 for _ in broker.tables.topics))
    page.add(rocketmq.CONSUMER_GROUP_NUMBER, sum(1 for _ in broker.tables.groups))
    gates = broker.control.admission.gates
    for processor in rocketmq.PROCESSORS:
        count = gates[POOLS[processor]].count if processor in POOLS else 0
        page.add(rocketmq.PROCESSOR_WATERMARK, count, processor)
    for kind, gate in gates.items():
        page.add(roquet.WAITING_REQUESTS, gate.count, kind)
        page.add(roquet.WAITING_REQUESTS_LIMIT, gate.limits.count, kind)
    page.add(roquet.SLOW_REQUESTS, broker.control.slow_requests.count)
    _add_producers(broker, page)


def _add_producers(broker: Broker, page: MetricsPage) -> None:
    clients = broker.tables.clients
    groups = clients.producer_groups()
    peers = dict.fromkeys(peer for group in groups for peer in clients.producers(group))
    for (language, version), count in Counter(map(_kind, peers)).items():
        page.add(rocketmq.PRODUCER_CONNECTIONS, count, language, version, PROTOCOL)


def add_consumers(broker: Broker, page: MetricsPage, name: str) -> None:
    """Add the connections of a consumer group."""
    if (group := broker.tables.clients.consumers(name)) is None:
        return
    mode, system = MODES[group.consume_type], flag(is_system_group(name))
    for (language, version), count in Counter(map(_kind, group.members)).items():
        page.add(
            rocketmq.CONSUMER_CONNECTIONS,
            count,
            *(name, mode, language, version, PROTOCOL, system),
        )


def _kind(peer: Peer) -> tuple[str, str]:
    return language_name(peer.language), version_name(peer.version)
