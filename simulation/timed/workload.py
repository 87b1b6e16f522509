"""Timed workload: delay levels, delivery times, transactions and retries, over hours."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Self

from roquet.model import names
from roquet.store.store import Store
from roquet.testing.clock import this_loop
from simulation.cluster import SimulatedCluster
from simulation.consumer import SimulatedConsumer
from simulation.scenario import Fault, FaultEvent
from simulation.simulator import AgendaItem
from simulation.timed import checks
from simulation.timed.consumer import (
    AUDIT,
    BILLING,
    TOPIC,
    is_audited,
    timed_consumer,
)
from simulation.timed.history import TimedHistory
from simulation.timed.quiet_time import BEAT_MS, QuietTime
from simulation.timed.scenario import (
    HOUR_MS,
    POISON,
    SendOperation,
    TimedScenario,
    draw_scenario,
)
from simulation.timed.stored_messages import logged_messages
from simulation.timed.transactional_producer import TransactionalProducer

SETTLE_MS: Final = 8 * HOUR_MS
"""How long after the last operation messages may wait: poison is tried for five hours."""

RESTART_MS: Final = 2_000
"""Between the death of the producer's process and the start of the next."""

STORE_DIR: Final = Path("/store")
"""In memory, as all files of a simulation."""


class TimedWorkload:
    """One scenario on one cluster."""

    name: ClassVar[str] = "day"
    aftermath_ms: ClassVar[int] = 90_000

    def __init__(self, scenario: TimedScenario) -> None:
        self.scenario = scenario
        self.clock = this_loop().clock
        self.history = TimedHistory(self.clock.monotonic_ms)
        new_member = partial(self._new_consumer, BILLING)
        self.cluster = SimulatedCluster(scenario, self.history, TOPIC, new_member, STORE_DIR)
        self.producer = TransactionalProducer(
            scenario, self.cluster.hosts, self.history, self.clock
        )
        self._quiet = QuietTime(self.clock, self.history)

    @classmethod
    def of_seed(cls, seed: int) -> Self:
        """The workload of a seed."""
        return cls(draw_scenario(seed))

    def observed(self) -> AbstractContextManager[None]:
        """Observe nothing: the checks read what clients and servers tell."""
        return nullcontext()

    async def start(self) -> None:
        """Start the producer, the members of the billing group, and the audit."""
        await self.producer.start()
        for _ in range(self.scenario.members):
            self.cluster.join()
        self.cluster.run_consumer(partial(self._new_consumer, AUDIT))

    def agenda(self) -> Sequence[AgendaItem]:
        """Operations and faults."""
        items = [
            AgendaItem(operation.at_ms, partial(self._perform, operation))
            for operation in self.scenario.operations
        ]
        items += [
            AgendaItem(event.at_ms, partial(self._inject, event)) for event in self.scenario.events
        ]
        return sorted(items, key=lambda item: item.at_ms)

    async def wait_until(self, at_ms: int) -> None:
        """Live from beat to beat, and skip quiet time."""
        while self.history.now_ms() < at_ms:
            if await self._beat():
                self._quiet.skip(at_ms)

    async def settle(self) -> bool:
        """Wait until every message is where it belongs."""
        times = [event.at_ms for event in self.scenario.events]
        times += [operation.at_ms + operation.wait_ms for operation in self.scenario.operations]
        end_ms = max(times, default=0) + SETTLE_MS
        while self.history.now_ms() < end_ms:
            if await self._beat():
                if self._is_settled():
                    return True
                self._quiet.skip(end_ms)
        return False

    def findings(self) -> Sequence[str]:
        """Broken promises, see `checks`."""
        start_ms = self.clock.now_ms() - self.clock.monotonic_ms()
        servers = self.cluster.servers
        outcome = checks.TimedOutcome(
            scenario=self.scenario,
            history=self.history,
            messages=logged_messages(self.stores, start_ms),
            up=checks.up_spans(servers.began_ms, servers.died_ms),
            died_ms=servers.died_ms,
            end_ms=self.history.now_ms(),
            producer_crashes=self.producer.crashes,
            unhandled=self.unhandled(),
            open_halves=self.open_halves(),
        )
        return checks.findings(outcome)

    async def _beat(self) -> bool:
        """Let a moment pass; True when no client is at work after it."""
        if self.producer.must_crash:
            await self._restart_producer()
        await asyncio.sleep(BEAT_MS / 1000)
        return self._quiet.is_calm and not self.producer.is_busy

    # What happens.

    async def _perform(self, operation: SendOperation) -> None:
        self.producer.perform(operation)

    async def _inject(self, event: FaultEvent) -> None:
        if event.fault is Fault.PRODUCER_CRASH:
            await self._restart_producer()
        else:
            await self.cluster.inject(event)

    async def _restart_producer(self) -> None:
        await self.producer.kill()
        await asyncio.sleep(RESTART_MS / 1000)
        await self.producer.start()

    def _new_consumer(self, group: str, host: str) -> SimulatedConsumer:
        return timed_consumer(host, group, self.scenario, self.history, self.clock)

    # What is still to come.

    @property
    def stores(self) -> dict[str, Store]:
        """The brokers' stores, by host."""
        brokers = self.cluster.servers.brokers
        return {host: server.broker.log.store for host, server in brokers.items()}

    def unhandled(self) -> list[tuple[str, str]]:
        """(group, message name) of every message that a group has yet to handle with success."""
        billed, audited = self.history.handled(BILLING), self.history.handled(AUDIT)
        missing: list[tuple[str, str]] = []
        for operation in self.scenario.operations:
            name = operation.name
            if not self.history.must_be_delivered(operation):
                continue
            if operation.failures < POISON and name not in billed:
                missing.append((BILLING, name))
            if is_audited(self.scenario, operation) and name not in audited:
                missing.append((AUDIT, name))
        return missing

    def open_halves(self) -> list[tuple[str, int]]:
        """(host, offset) of each broker's first half message that has no end."""
        halves: list[tuple[str, int]] = []
        for host, server in self.cluster.servers.brokers.items():
            transactions = server.broker.delivery.transactions
            _, end = transactions.queue.bounds()
            if (first := transactions.halves.next_open(0)) < end:
                halves.append((host, first))
        return halves

    def _is_settled(self) -> bool:
        """Whether every message is where it belongs."""
        is_handled = self.cluster.servers.all_up and not self.unhandled()
        return is_handled and not self.open_halves() and not self._has_live_poison()

    def _has_live_poison(self) -> bool:
        """Whether a poison message is still tried."""
        wanted = sum(
            operation.failures == POISON and self.history.must_be_delivered(operation)
            for operation in self.scenario.operations
        )
        dead = names.dlq_topic(BILLING)
        return sum(store.bounds(dead, 0)[1] for store in self.stores.values()) < wanted
