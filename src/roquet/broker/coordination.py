"""GroupCoordination: the part of the broker that divides queues among the members of groups."""

from collections.abc import Iterable

import msgspec

from roquet.broker.services.broker_rebalance import BrokerRebalance
from roquet.broker.services.handover import Handover
from roquet.broker.services.peer_brokers import PeerBrokers
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.metrics.counts import OTHER, LabeledTallies
from roquet.model.names import group_fault, is_retry
from roquet.net.router import Peer
from roquet.wire.calls.bodies import RequestMode
from roquet.wire.calls.heartbeat import ConsumersChanged


class GroupCoordination(msgspec.Struct, frozen=True, kw_only=True):
    """The services that decide which member reads which queue."""

    rebalance: BrokerRebalance
    handover: Handover
    peer_brokers: PeerBrokers
    tables: BrokerTables
    settings: RuntimeSettings
    rebalances: LabeledTallies = msgspec.field(default_factory=lambda: LabeledTallies(1))
    """How often members were told to divide the queues of their group, by group."""

    def notify(self, groups: Iterable[str]) -> None:
        """Tell the members of groups to divide their queues again."""
        groups = list(groups)
        for name in groups:
            self.rebalances.add(OTHER if group_fault(name) else name)
        self.handover.changed(groups)
        if not self.settings.config.notify_members:
            return
        for name, peer in self.tables.clients.members(groups):
            group = self.tables.groups.get(name)
            if group is None or group.notify_consumer_ids_changed_enable:
                peer.oneway(ConsumersChanged(consumer_group=name))

    def forget(self, peer: Peer) -> None:
        """Remove a client whose connection has ended, or that sends no heartbeats any more."""
        tables = self.tables
        if peer.closed:
            tables.former_readers.forget(peer)
        memberships = tables.clients.memberships(peer)
        changed = tables.clients.drop(peer)
        for group, member in memberships:
            self.member_left(group, member)
        self.notify(changed)

    def member_left(self, group: str, member: str) -> None:
        """Free what a member held, unless it is in the group on another connection, too."""
        members = self.tables.clients.consumers(group)
        client_ids = members.client_ids if members else []
        if member not in client_ids:
            self.tables.locks.release(group, member)
            self.handover.left(group, member)
            self.rebalance.assignments.left(group, member, client_ids)

    def request_mode(self, topic: str, group: str) -> RequestMode:
        """Whether a group pulls or pops a topic: as an operator set it, else as the settings say.

        Retry topics are always pulled.
        """
        if (mode := self.tables.request_modes.get(topic, group)) is not None:
            return mode
        if is_retry(topic):
            return RequestMode()
        config = self.settings.config
        return RequestMode(
            mode=config.default_request_mode, pop_share_queue_num=config.default_pop_share_queues
        )
