"""Broker: what a handler may touch."""

from collections.abc import Iterable
from random import Random

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.put import Put
from roquet.broker.services.arrivals import Arrivals
from roquet.broker.services.flush import Flush
from roquet.broker.tables.clients import Clients
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.locks import Locks
from roquet.broker.tables.offsets import Offsets
from roquet.broker.tables.topics import Topics
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.store.store import Store
from roquet.wire.calls.heartbeat import ConsumersChanged


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one running broker."""

    config: BrokerConfig
    clock: Clock
    rng: Random
    memory: int
    """Bytes of the machine: what the page cache can hold is a share of it."""
    store: Store
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    locks: Locks
    put: Put
    arrivals: Arrivals
    flush: Flush

    def notify(self, groups: Iterable[str]) -> None:
        """Tell the members of groups that they have to divide their queues again."""
        if not self.config.notify_members:
            return
        for name, peer in self.clients.members(groups):
            settings = self.groups.get(name)
            if settings is None or settings.notify_consumer_ids_changed_enable:
                peer.oneway(ConsumersChanged(consumer_group=name))

    def forget(self, peer: Peer) -> None:
        """A client's connection has ended, or it has gone silent."""
        self.notify(self.clients.drop(peer))
