"""BrokerTables: the part of the broker that knows topics, groups, progress and clients.

Saved as JSON below config/: topics, groups, offsets, request modes, ordered pops, delay offsets.
Kept in memory alone: clients, locks, resets that a reader has not been told of, former readers,
limits of cold reads, replicas that wait for changes, and what they have copied.
"""

from typing import Any

import msgspec

from roquet.broker.tables.clients import Clients
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.broker.tables.former_readers import FormerReaders
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.locks import Locks
from roquet.broker.tables.offset_resets import OffsetResets
from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.replica_copies import ChangeWaiters, ReplicaCopies
from roquet.broker.tables.request_modes import RequestModes
from roquet.broker.tables.saved_table import SavedTable
from roquet.broker.tables.topics import Topics


class BrokerTables(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of one broker."""

    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    request_modes: RequestModes
    ordered_pops: OrderedPops
    delay_offsets: DelayOffsets
    clients: Clients = msgspec.field(default_factory=Clients)
    locks: Locks = msgspec.field(default_factory=Locks)
    offset_resets: OffsetResets = msgspec.field(default_factory=OffsetResets)
    former_readers: FormerReaders = msgspec.field(default_factory=FormerReaders)
    cold_read_limits: dict[str, int] = {}
    """Bytes by group, which operators set and which have no effect here."""
    change_waiters: ChangeWaiters = msgspec.field(default_factory=ChangeWaiters)
    replica_copies: ReplicaCopies = msgspec.field(default_factory=ReplicaCopies)

    @property
    def saved_at_intervals(self) -> tuple[SavedTable[Any], ...]:
        """The tables that change with every message or client.

        Request modes are saved at each change, delay offsets by `DelayedDelivery`.
        """
        return self.topics, self.groups, self.offsets, self.ordered_pops
