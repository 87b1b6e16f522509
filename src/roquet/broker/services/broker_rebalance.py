"""BrokerRebalance: the broker divides a group's queues, and keeps each decision as a snapshot.

The first broker by name that holds a topic decides. It knows all members, since they send
heartbeats to every broker of their topics. It knows the former owners, since it decided before or
has observed activity on its own queues. It knows the lag, since it asks the other brokers.

A queue of unknown lag counts with the mean of the others, so that it neither attracts members nor
repels them.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roquet.broker.log.message_log import MessageLog
from roquet.broker.services.handover import Handover
from roquet.broker.services.peer_brokers import PeerBrokers, TopicLocation
from roquet.broker.tables.assignments import AssignmentSnapshot, AssignmentTable
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock
from roquet.rules.allocate import (
    STRATEGIES,
    GroupAssignment,
    QueueOwners,
    allocate,
    lag_weighted,
    sticky,
)
from roquet.rules.balance.rebalance_cost import QueueLag, estimated_lag, is_worth_moving

log = logger(__name__)

REVIEW_MS: Final = 20_000
"""Ms after which a lag-weighted decision is reviewed, when a member asks."""

STICKY: Final = "STICKY"
LAG_WEIGHTED: Final = "LAG_WEIGHTED"


class BrokerRebalance(msgspec.Struct, frozen=True, kw_only=True):
    """Decides for groups; repeated requests get the same snapshot until something changes."""

    message_log: MessageLog
    tables: BrokerTables
    peer_brokers: PeerBrokers
    handover: Handover
    clock: Clock
    assignments: AssignmentTable = msgspec.field(default_factory=AssignmentTable)
    on_change: list[Callable[[Sequence[str]], object]] = msgspec.field(default_factory=list)
    """Called with groups whose members have to query again."""
    deciding: dict[tuple[str, str], asyncio.Lock] = msgspec.field(default_factory=dict)

    async def decide(
        self, group: str, topic: str, strategy: str, home: TopicLocation
    ) -> AssignmentSnapshot | None:
        """The current decision; None when the group has no members or the topic no queues."""
        known = self._good(group, topic, strategy, home)
        if known is not None:
            return known
        lock = self.deciding.setdefault((group, topic), asyncio.Lock())
        try:
            async with lock:  # concurrent requests share one decision
                known = self._good(group, topic, strategy, home)
                return known or await self._decide(group, topic, strategy, home)
        finally:
            if not lock.locked():
                self.deciding.pop((group, topic), None)

    def by_rule(
        self, group: str, topic: str, strategy: str, home: TopicLocation
    ) -> GroupAssignment:
        """The assignment by a strategy that members could compute themselves; computed once."""
        members, known = self._members(group), self.assignments.worked_out(group, topic, strategy)
        if known is None or known.members != members or known.queues != home.queues:
            shares = allocate(home.queues, members, STRATEGIES[strategy])
            known = AssignmentSnapshot(
                strategy=strategy, members=members, queues=home.queues, shares=shares
            )
            self.assignments.work_out(group, topic, known)
        return known.shares

    def _good(
        self, group: str, topic: str, strategy: str, home: TopicLocation
    ) -> AssignmentSnapshot | None:
        """The snapshot, if nothing has changed since; else None."""
        known = self.assignments.get(group, topic)
        if (
            known is None
            or known.members != self._members(group)
            or known.queues != home.queues
            or known.strategy != self._strategy(group, strategy, known)
        ):
            return None
        stale = self.clock.monotonic_ms() - known.decided_ms >= REVIEW_MS
        return None if stale and known.strategy == LAG_WEIGHTED else known

    def _strategy(self, group: str, wanted: str, known: AssignmentSnapshot | None) -> str:
        """The strategy that counts: while members ask for different ones, the earlier one."""
        if known is None or known.strategy not in self.assignments.strategies(group).values():
            return wanted
        return known.strategy

    def _members(self, group: str) -> tuple[str, ...]:
        consumers = self.tables.clients.consumers(group)
        return tuple(consumers.client_ids) if consumers else ()

    async def _decide(
        self, group: str, topic: str, strategy: str, home: TopicLocation
    ) -> AssignmentSnapshot | None:
        lag: dict[MessageQueue, int] = {}
        if self._strategy(group, strategy, self.assignments.get(group, topic)) == LAG_WEIGHTED:
            lag = await self._lag(group, topic, home)
        known, members = self.assignments.get(group, topic), self._members(group)
        if not members or not home.queues:
            return None
        strategy = self._strategy(group, strategy, known)
        owners = known.owners if known else self._seen(group, home)
        shares = _shares(strategy, home, members, owners, lag)
        now_ms = self.clock.monotonic_ms()
        same = (strategy, members, home.queues)  # only the lag can have changed
        is_same = known is not None and same == (known.strategy, known.members, known.queues)
        if known is not None and is_same and not is_worth_moving(known.shares, shares, lag):
            made = msgspec.structs.replace(known, decided_ms=now_ms)
        else:
            made = AssignmentSnapshot(
                number=known.number + 1 if known else 1,
                strategy=strategy,
                members=members,
                queues=home.queues,
                shares=shares,
                decided_ms=now_ms,
            )
        self.assignments.put(group, topic, made)
        if known is not None and made.shares != known.shares and made.members == known.members:
            log.info("%s of %s is divided anew: number %d", topic, group, made.number)
            for tell in self.on_change:  # changed members have been notified already
                tell([group])
        return made

    def _seen(self, group: str, home: TopicLocation) -> dict[MessageQueue, str]:
        """Observed owners of our queues: the former assignment for a broker without a decision."""
        owner_of = {}
        for queue in home.queues:
            if queue.broker_name == self.peer_brokers.own_name:
                owners = self.handover.owners(group, queue.topic, queue.queue_id)
                if len(owners) == 1:
                    owner_of[queue] = owners[0]
        return owner_of

    async def _lag(self, group: str, topic: str, home: TopicLocation) -> dict[MessageQueue, int]:
        known = await self.peer_brokers.lag(group, topic, home)
        for queue in home.queues:
            if queue.broker_name == self.peer_brokers.own_name:
                least, most = self.message_log.store.bounds(topic, queue.queue_id)
                committed = self.tables.offsets.get(group, topic, queue.queue_id) or 0
                known[queue] = max(most - max(committed, least), 0)
        return estimated_lag(home.queues, known)


def _shares(
    strategy: str, home: TopicLocation, members: Sequence[str], owners: QueueOwners, lag: QueueLag
) -> GroupAssignment:
    if strategy == STICKY:
        return sticky(home.queues, members, owners)
    return lag_weighted(home.queues, members, owners, lag)
