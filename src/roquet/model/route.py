"""TopicRoute, BrokerData, QueueData: the brokers and queues of a topic."""

from typing import Final

import msgspec

from roquet.model.flags import READ_WRITE, Permission
from roquet.model.queue import MessageQueue

MASTER_ID: Final = 0
"""The broker id of the member that takes writes."""

ORDERED_QUEUES_MAX: Final = 16_384
"""Queues of one broker in an operator's order: as many as a topic may have there."""


class BrokerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One broker name, and the addresses ("host:port") of its members by broker id."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = {}
    zone_name: str | None = None
    enable_acting_master: bool = False

    @property
    def leader(self) -> str | None:
        """The address of the member that takes writes."""
        return self.broker_addrs.get(MASTER_ID)

    @property
    def any_address(self) -> str | None:
        """The leader's address, else that of the lowest id."""
        if not self.broker_addrs:
            return None
        return self.broker_addrs[min(self.broker_addrs)]


class QueueData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Number of queues of a topic on one broker."""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = READ_WRITE
    topic_sys_flag: int = 0


class TopicRoute(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Brokers and queues of a topic."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that a producer may send to, sorted: those of brokers with a leader.

        With an operator's order, exactly its queues: a key must not change its queue while a broker
        is away.
        """
        if ordered := self.ordered_queues(topic):
            return ordered
        led = {broker.broker_name for broker in self.broker_datas if broker.leader}
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queue_datas
            if data.perm & Permission.WRITE and data.broker_name in led
            for queue_id in range(data.write_queue_nums)
        )

    def ordered_queues(self, topic: str) -> list[MessageQueue]:
        """Queues of an order such as `broker-a:4;broker-b:2`, in that order; empty if none."""
        parts = [part.partition(":") for part in (self.order_topic_conf or "").split(";") if part]
        if not all(broker and count.isascii() and count.isdigit() for broker, _, count in parts):
            return []
        return [
            MessageQueue(topic, broker, queue_id)
            for broker, _, count in parts
            for queue_id in range(min(int(count), ORDERED_QUEUES_MAX))
        ]

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that a consumer may read from, sorted."""
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queue_datas
            if data.perm & Permission.READ
            for queue_id in range(data.read_queue_nums)
        )

    def broker(self, name: str) -> BrokerData | None:
        """The broker of this name, if the topic lives there."""
        return next((b for b in self.broker_datas if b.broker_name == name), None)


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All brokers that a name server knows, and the cluster of each."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}
