"""Replicated workload: messages flow through a group whose brokers, network and clocks fail.

start ─▶ load, more of it around each fault ─▶ the faults end ─▶ the group heals ─▶ checks
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import ClassVar, Final, Self

import msgspec

from roquet.testing.clock import this_loop
from roquet.wire.records.record import Record, whole_records
from simulation.replicated import checks, delivery_checks
from simulation.replicated.clients import (
    PROBE,
    TOPIC,
    OffsetReader,
    ReplicatedProducer,
)
from simulation.replicated.confirmed_prefix import ConfirmedPrefix
from simulation.replicated.deliveries import (
    IN_TRANSACTIONS,
    DeferringProducer,
    PopConsumer,
)
from simulation.replicated.faults import FaultInjector
from simulation.replicated.group_operator import GroupOperator
from simulation.replicated.history import ReplicatedHistory
from simulation.replicated.observation import GroupObserver
from simulation.replicated.scenario import (
    MASTER,
    ReplicaFault,
    ReplicatedScenario,
    draw_scenario,
)
from simulation.replicated.servers import (
    HOSTS,
    LOG_FILE_SIZE,
    ReplicatedServers,
    host_of,
    small_timers,
)
from simulation.simulator import AgendaItem

BUSY_MS: Final = 15
IDLE_MS: Final = 250
"""Pauses of a producer near the beginning and the end of a fault, and at other times."""

BEFORE_MS: Final = 60
AFTER_MS: Final = 250
"""Time before and after the beginning or the end of a fault in which producers are busy."""

LOOK_MS: Final = 150
"""Ms between two looks at all logs."""

RECOVERED: Final = 3
"""Messages that a group acknowledges after a fault before a hurried life goes on."""

LONG_MS: Final = 1_500
"""Time between two faults from which on a hurried life waits until all brokers are in sync."""

RECOVERY_LOOK_MS: Final = 30
"""Ms between two looks whether a group has recovered."""

DELIVERY_MS: Final = 40_000
"""Time in which the next message has to be handled, once the group has healed and the last one is
due: a pop may have made it invisible, and each is forgotten now and then."""

START_MS: Final = 15_000
"""By then a group that has not elected anybody yet never will: faults begin all the same."""

HEAL_MS: Final = 60_000
"""Time in which a group has to heal after the last fault: connections to a machine that is gone are
given up after `housekeeping_ms`, and connecting again may wait for 3 s several times."""

PRODUCER_HOST: Final = "10.0.3.1"
READER_HOST: Final = "10.0.4.1"


class ReplicatedWorkload:
    """One scenario on one group."""

    name: ClassVar[str] = "replicated"
    aftermath_ms: ClassVar[int] = 0

    def __init__(self, scenario: ReplicatedScenario) -> None:
        self.scenario = scenario
        loop = this_loop()
        self._clock = loop.clock
        self.history = ReplicatedHistory(
            loop.clock.monotonic_ms, lambda host: self.cluster.log_epoch(host)
        )
        self.cluster = ReplicatedServers(scenario, self.history, loop)
        self._prefix = ConfirmedPrefix(self.history)
        self._observer = GroupObserver(scenario, self.cluster, self.history, self._prefix)
        self._injector = FaultInjector(
            scenario, self.cluster, self.history, self._prefix, loop, self._be_busy
        )
        self._busy_until_ms = 0
        self._began_ms = 0
        """When the group served for the first time."""
        self._saved_ms = 0
        """Time by which faults come before their time."""
        self._clients: list[asyncio.Task[None]] = []
        self._popping: asyncio.Task[None] | None = None
        self._is_healed = False
        self._healed_logs: dict[str, bytes] = {}

    @classmethod
    def of_seed(cls, seed: int, faults: int | None = None) -> Self:
        """The workload of a seed; with `faults` one that lives through so many of them."""
        return cls(draw_scenario(seed, faults))

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Observe decisions of brokers and controller while it is entered."""
        with self._observer.installed(), small_timers():
            try:
                yield
            finally:
                self.cluster.release()

    async def start(self) -> None:
        """Wait until all are in sync; then start producers, readers, and looks at the logs."""
        self._describe()
        while self.unhealed() is not None and self.history.now_ms() < START_MS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        self._began_ms = self.history.now_ms()
        for number, loyal in enumerate(self.scenario.loyal):
            producer = self._producer(f"p{number}", None if loyal == MASTER else host_of(loyal))
            self._clients.append(self.cluster.hosts.run(PRODUCER_HOST, producer.live()))
        for host in HOSTS:
            rng = Random(f"reader {self.scenario.seed} {host}")
            reader = OffsetReader(host, self.history, self._clock, rng)
            self._clients.append(self.cluster.hosts.run(READER_HOST, reader.live()))
        if self.scenario.has_deliveries:
            self._start_deliveries()
        operator = GroupOperator(self.scenario, self.cluster, self.history, self._prefix)
        self._clients += (asyncio.create_task(self._look()), asyncio.create_task(operator.live()))

    def _start_deliveries(self) -> None:
        """Start clients of deliveries; the one that pops goes on until the end."""
        seed = self.scenario.seed
        rng = Random(f"deferring {seed}")
        make = partial(
            DeferringProducer,
            history=self.history,
            clock=self._clock,
            pause_ms=self._pause_ms,
            rng=rng,
            clock_error_ms=self.cluster.clock_error_ms,
        )
        producers = (
            make("d", None),
            make("t", None, courses=IN_TRANSACTIONS),
            make("u", rng.choice(HOSTS), courses=IN_TRANSACTIONS),
        )
        for producer in producers:
            self._clients.append(self.cluster.hosts.run(PRODUCER_HOST, producer.live()))
        consumer = PopConsumer(self.history, self._clock, Random(f"popping {seed}"))
        self._popping = self.cluster.hosts.run(READER_HOST, consumer.live())

    def _describe(self) -> None:
        """Write the scenario as lines, with each fault on its own."""
        scenario = self.scenario
        self.history.say(f"{msgspec.structs.replace(scenario, faults=())}")
        for planned in scenario.faults:
            self.history.say(f"{planned}")

    def _producer(self, name: str, loyal: str | None) -> ReplicatedProducer:
        return ReplicatedProducer(name, loyal, self.history, self._clock, self._pause_ms)

    def _pause_ms(self) -> int:
        return BUSY_MS if self.history.now_ms() < self._busy_until_ms else IDLE_MS

    def _be_busy(self) -> None:
        self._observer.look()
        self._busy_until_ms = self.history.now_ms() + AFTER_MS

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1_000)
            self._observer.look()

    def agenda(self) -> Sequence[AgendaItem]:
        """Faults."""
        return [
            AgendaItem(self._began_ms + planned.at_ms, partial(self._injector.inject, planned))
            for planned in self.scenario.faults
        ]

    async def wait_until(self, at_ms: int) -> None:
        """Wait for the time of the next fault, with many messages under way when it comes."""
        at_ms -= self._saved_ms
        if self.scenario.is_hurried:
            saved_ms = await self._wait_for_recovery(at_ms - BEFORE_MS)
            at_ms, self._saved_ms = at_ms - saved_ms, self._saved_ms + saved_ms
        await self._sleep_until(at_ms - BEFORE_MS)
        self._busy_until_ms = max(self._busy_until_ms, at_ms)
        await self._sleep_until(at_ms)

    async def _wait_for_recovery(self, at_ms: int) -> int:
        """Wait until the group has recovered, or for a time; returns how much of that is left."""
        enough = len(self.history.acknowledged) + RECOVERED
        is_long = at_ms - self.history.now_ms() > LONG_MS
        while (left_ms := at_ms - self.history.now_ms()) > 0:
            is_in_sync = not is_long or self.unhealed() is None
            if len(self.history.acknowledged) >= enough and is_in_sync:
                break
            await asyncio.sleep(min(left_ms, RECOVERY_LOOK_MS) / 1_000)
        return max(0, left_ms)

    async def _sleep_until(self, at_ms: int) -> None:
        if (left_ms := at_ms - self.history.now_ms()) > 0:
            await asyncio.sleep(left_ms / 1_000)

    async def settle(self) -> bool:
        """Wait until the group has healed, and the logs of all brokers are equal."""
        await self._injector.end_all()
        deadline_ms = self.history.now_ms() + HEAL_MS
        prober = self._producer(PROBE, None)
        while self.history.now_ms() < deadline_ms:
            await asyncio.sleep(0.2)
            if self.unhealed() is None and await self._probe(prober):
                break
        await self._end(*self._clients)
        if self._popping is not None:
            began_ms = self.history.now_ms()
            await self._wait_for_deliveries()
            await self._end(self._popping)
            deadline_ms += self.history.now_ms() - began_ms
        while self.history.now_ms() < deadline_ms and not self._has_healed():  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        self._observer.look(at_whole_logs=True)
        return self._is_healed

    def _has_healed(self) -> bool:
        """Whether the group has healed; keeps its logs then, to which deliveries may add more."""
        logs = self._logs()
        self._is_healed = self.unhealed() is None and not [*checks.unequal(logs)]
        if self._is_healed:
            self._healed_logs = logs
        return self._is_healed

    async def _end(self, *clients: asyncio.Task[None]) -> None:
        for client in clients:
            client.cancel()
        for ended in await asyncio.gather(*clients, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                self.history.break_promise(f"client: it has ended with {ended!r}")

    async def _wait_for_deliveries(self) -> None:
        """Wait until everything is delivered, and handled by the group that pops.

        As long as that group gets on: it may have many messages to go.
        """
        last_ms = max((each.due_ms for each in self.history.deferred.values()), default=0)
        await self._sleep_until(last_ms)
        deadline_ms, before = 0, -1
        while self._undelivered():
            if (count := len(self.history.settled)) > before:
                deadline_ms, before = self.history.now_ms() + DELIVERY_MS, count
            if self.history.now_ms() >= deadline_ms:
                return
            await asyncio.sleep(1)

    def _undelivered(self) -> list[str]:
        """Broken promises of deliveries, as the log of the master tells now."""
        if self.cluster.mode(self.cluster.master) is None:
            return []
        return delivery_checks.findings(self._deliveries(self._records()))

    def _records(self) -> list[Record]:
        return records_of(self.cluster.log_of(self.cluster.master))

    def _deliveries(self, records: Sequence[Record]) -> delivery_checks.DeliveryOutcome:
        history, clock = self.history, self._clock
        faults = {planned.fault for planned in self.scenario.faults}
        return delivery_checks.DeliveryOutcome(
            deferred=history.deferred,
            rolled_back=history.rolled_back,
            acknowledged=[each.body for each in history.offsets],
            settled=history.settled,
            stored=delivery_checks.delivered_messages(
                records, clock.now_ms() - clock.monotonic_ms()
            ),
            is_in_time=ReplicaFault.WALL_CLOCK not in faults,
        )

    async def _probe(self, prober: ReplicatedProducer) -> bool:
        number = self.history.now_ms()
        probing = self.cluster.hosts.run(PRODUCER_HOST, prober.send(f"{PROBE}.{number}"))
        return await probing

    def _logs(self) -> dict[str, bytes]:
        hosts = [host for host in HOSTS if self.cluster.mode(host) is not None]
        return {host: self.cluster.log_of(host) for host in hosts}

    def unhealed(self) -> str | None:
        """Why the group does not count as healed; None: a master leads, and all are in sync."""
        if not self.history.states:
            return "nobody was ever elected"
        if self.cluster.down:
            return f"{' and '.join(self.cluster.down)} do not serve"
        group, members = self.cluster.group, self.scenario.members
        if group.in_sync != members:
            return f"in sync are {sorted(group.in_sync)}, led by {group.master}"
        mode = self.cluster.mode(self.cluster.master)
        if mode is None or not mode.role.current.is_active:
            return f"{group.master} does not lead"
        if mode.sync_set.state.acknowledging != members:
            return f"{group.master} takes {sorted(mode.sync_set.state.members)} for the set"
        return None

    def findings(self) -> Sequence[str]:
        """Broken promises, see `checks`."""
        history = self.history
        unhealed = None if self._is_healed else self.unhealed() or "messages or logs are missing"
        stored, broken = None, list[str]()
        if history.states and self.cluster.mode(self.cluster.master) is not None:
            records = self._records()
            stored, broken = checks.stored_messages(records, TOPIC)
            if self._popping is not None:
                broken += delivery_checks.findings(self._deliveries(records))
        outcome = checks.ReplicatedOutcome(
            offsets=history.offsets,
            positions=history.positions,
            seen=history.seen,
            states=history.states,
            operated=frozenset(history.operated),
            leases=history.leases,
            roles=history.roles,
            members=self.scenario.members,
            stored=stored,
            logs=self._healed_logs,
            unhealed=unhealed,
        )
        return [*history.broken, *broken, *checks.findings(outcome)]


def records_of(log: bytes) -> list[Record]:
    """Records of a log; behind the last one of each file is a blank."""
    starts = range(0, len(log), LOG_FILE_SIZE)
    files = (log[start : start + LOG_FILE_SIZE] for start in starts)
    return [record for file in files for record in whole_records(file, 0)[0]]
