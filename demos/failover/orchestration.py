"""Orchestration of the failover demo: faults of the master while flights are sent and archived.

file ──▶ writers ──▶ three brokers of one name ──▶ archiver ──▶ table ──▶ verdict
                          ▲
            killed ─▶ back ─▶ frozen ─▶ thawed ─▶ parted ─▶ healed

Each fault meets the broker that leads at that moment, once all brokers are in sync.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from demos.failover import flight_table
from demos.failover.archiver import ArchiverSettings
from demos.failover.facts import FailoverFacts
from demos.failover.faults import ALL_FAULTS, FaultAction
from demos.failover.sampling import BrokerSampler
from demos.failover.timeline import (
    SILENT_MS,
    BrokerState,
    FailoverTimeline,
    MasterFault,
    leader,
    longest_pause,
)
from demos.failover.writers import FlightWriters
from harness.processes import Process
from harness.replicated_cluster import BROKERS, ReplicatedCluster
from roquet.cli.demo import flights
from roquet.cli.demo.screen import Screen, ShowStatus
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.model.errors import RoquetError
from roquet.model.topic import READ_WRITE
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.pool import ChannelPool
from roquet.wire.calls.admin.topic import CreateTopic

ARCHIVER: Final = "demos.failover.archiver"
IMPORTABLE: Final = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""Where a child process finds this demo, which is not installed."""

GROUP: Final = "flight-archive"
QUEUES: Final = 8

PRODUCER: Final = ProducerConfig(send_timeout_ms=8_000, try_timeout_ms=1_000)
"""A try that a frozen broker does not answer ends after 1 s; a send goes on for 8 s."""

WAIT_S: Final = 40
"""Longest wait for a master, for replicas in sync and for the last rows: seconds are usual."""

POLL_S: Final = 0.1
STATUS_S: Final = 0.5

T = TypeVar("T")


class DemoPace(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of the demo's parts."""

    rate: int
    """Flights a second."""
    calm_s: float = 3.0
    """Seconds without a fault before each one, and at the end."""
    fault_s: float = 7.0
    """Seconds from a fault to its mend; longer if nobody takes over before."""


class FailoverRun:
    """One run of the demo, from the first process to the last."""

    def __init__(
        self,
        directory: Path,
        pace: DemoPace,
        screen: Screen,
        actions: Sequence[FaultAction] = ALL_FAULTS,
    ) -> None:
        self._pace = pace
        self._screen = screen
        self._actions = actions
        self._table = directory / "flights.sqlite"
        self._directory = directory
        self._cluster = ReplicatedCluster(directory)
        self._started_ms = SYSTEM_CLOCK.monotonic_ms()
        self._moments: list[tuple[int, str]] = []
        self._faults: list[MasterFault] = []
        self._sampler: BrokerSampler
        self._writers: FlightWriters

    async def run(self) -> tuple[FailoverFacts, FailoverTimeline]:
        """Run everything; returns the counts and the events for the report."""
        async with self._cluster:
            self._sampler = BrokerSampler(self._cluster.addresses, flights.TOPIC, self._now_ms)
            try:
                async with asyncio.TaskGroup() as group:
                    sampling = group.create_task(self._sampler.serve())
                    stored = await self._send_and_archive(group)
                    end_ms = self._now_ms()
                    sampling.cancel()
            except BaseExceptionGroup as failures:
                raise _first(failures) from None
            await self._cluster.stop()
        facts = FailoverFacts(
            arrived=len(self._writers.arrived_ms),
            sent=len(self._writers.acknowledged),
            failures=self._writers.failures,
            stored=stored,
            table=flight_table.count_all(self._table, self._writers.acknowledged),
            faults=self._faults,
        )
        return facts, self._timeline(end_ms)

    def _timeline(self, end_ms: int) -> FailoverTimeline:
        return FailoverTimeline(
            brokers=list(BROKERS),
            arrived_ms=self._writers.arrived_ms,
            acknowledged=self._writers.acknowledged,
            samples=self._sampler.samples,
            faults=self._faults,
            moments=self._moments,
            end_ms=end_ms,
        )

    async def _send_and_archive(self, group: asyncio.TaskGroup) -> int:
        """Send flights through all faults; returns the number of messages that are stored."""
        name = await self._in_sync()
        self._screen.step(f"{', '.join(BROKERS)}: one log, three copies; {name} leads")
        await self._create_topic(name)
        archiver = self._start_archiver()
        try:
            await self._send(group)
            return await self._archived(archiver)
        finally:
            await asyncio.to_thread(archiver.stop)

    async def _send(self, group: asyncio.TaskGroup) -> None:
        file = flights.read(flights.archive_path())
        with self._screen.status() as show:
            async with Producer(self._cluster.namesrv, config=PRODUCER) as producer:
                names = self._cluster.names_by_port
                self._started_ms = SYSTEM_CLOCK.monotonic_ms()
                self._sampler.forget()
                self._writers = FlightWriters(producer, names, self._now_ms)
                self._screen.step(f"{self._pace.rate:,} flights a second come from here on")
                sending = group.create_task(self._writers.run(file, self._pace.rate))
                showing = group.create_task(self._show(show))
                try:
                    await self._inject_all()
                    self._writers.stop()
                    await self._sent(sending)
                finally:  # at an error nobody waits for a broker that is frozen
                    self._cluster.mend()
                    sending.cancel()
                    showing.cancel()

    async def _inject_all(self) -> None:
        """Cause one fault after the other, with calm before each and at the end."""
        for action in self._actions:
            await asyncio.sleep(self._pace.calm_s)
            await self._inject(action)
        await asyncio.sleep(self._pace.calm_s)

    async def _sent(self, sending: asyncio.Task[None]) -> None:
        """Wait until every flight is acknowledged; a slow machine may take its time."""
        done = -1
        while not sending.done():
            if done == (done := len(self._writers.acknowledged)):
                raise RoquetError(f"no flight is acknowledged for {WAIT_S} s")
            await asyncio.wait([sending], timeout=WAIT_S)
        await sending

    async def _inject(self, action: FaultAction) -> None:
        """Cause a fault of the master and mend it; ends when all brokers are in sync again."""
        before = await self._in_sync()
        position, start_ms = len(self._writers.acknowledged), self._now_ms()
        self._happens(action.name, f"{before} {action.text}")
        fault = action.fault(self._cluster, before)
        await fault.begin()
        first = await _within(
            f"nobody takes over from {before}",
            self._writers.acknowledged_by_others(before, position),
        )
        waited_s = (first.at_ms - start_ms) / 1000
        self._say(f"{first.broker} acknowledges, {waited_s:.1f} s after the fault")
        await asyncio.sleep(start_ms / 1000 + self._pace.fault_s - self._now_ms() / 1000)
        mended_ms = self._now_ms()
        self._happens(action.mended_name, f"{before} {action.mended_text}")
        await fault.end()
        await self._in_sync()
        self._say("all three are in sync")
        times = [one.at_ms for one in self._writers.acknowledged[position:]]
        self._faults.append(
            MasterFault(
                name=action.name,
                at_ms=start_ms,
                mended_ms=mended_ms,
                before=before,
                after=first.broker,
                pause_ms=longest_pause(times, start_ms),
            )
        )

    async def _in_sync(self) -> str:
        """Wait until one broker leads and the others are in sync; returns the one that leads."""

        async def found() -> str:
            while (name := self._leader_in_sync()) is None:
                self._cluster.check()
                await asyncio.sleep(POLL_S)
            return name

        return await _within("the brokers are not in sync", found())

    def _leader_in_sync(self) -> str | None:
        now_ms, latest = self._now_ms(), self._sampler.latest
        leads = leader(latest, now_ms)
        following = [
            sample
            for sample in latest.values()
            if sample.state is BrokerState.FOLLOWS and now_ms - sample.at_ms < SILENT_MS
        ]
        if leads is None or leads.in_sync < len(BROKERS) - 1 or len(following) < len(BROKERS) - 1:
            return None
        return leads.broker

    async def _create_topic(self, name: str) -> None:
        call = CreateTopic(
            topic=flights.TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=READ_WRITE
        )
        async with ChannelPool() as pool:
            await pool.call(self._cluster.address(name), call)

    def _start_archiver(self) -> Process:
        settings = ArchiverSettings(
            namesrv=self._cluster.namesrv, group=GROUP, table=str(self._table)
        )
        text = msgspec.json.encode(settings).decode()
        command = [sys.executable, "-m", ARCHIVER, text]
        archiver = Process(command, self._directory / "archiver.log", environ=IMPORTABLE)
        archiver.start()
        return archiver

    async def _archived(self, archiver: Process) -> int:
        """Wait until the table has every stored message; returns how many these are.

        A table that does not get there is left to the checks.
        """
        name = await self._in_sync()
        deadline_ms = self._now_ms() + WAIT_S * 1000
        while True:
            stored = (await self._sampler.ask(name)).confirmed
            if flight_table.count_messages(self._table) >= stored:
                return stored
            archiver.check()
            if self._now_ms() > deadline_ms:
                self._say("the archiver did not get through in time")
                return stored
            await asyncio.sleep(POLL_S)

    async def _show(self, show: ShowStatus) -> None:
        """Show who leads and how much is acknowledged, until cancelled."""
        before = 0
        while True:
            done = len(self._writers.acknowledged)
            leads = leader(self._sampler.latest, self._now_ms())
            name = "nobody" if leads is None else leads.broker
            waiting = len(self._writers.arrived_ms) - done
            show(
                f"{name} leads   {(done - before) / STATUS_S:6,.0f}/s   "
                f"{done:,} acknowledged, {waiting:,} waiting"
            )
            before = done
            await asyncio.sleep(STATUS_S)

    def _happens(self, name: str, text: str) -> None:
        self._moments.append((self._now_ms(), name))
        self._say(text)

    def _say(self, text: str) -> None:
        self._screen.step(f"{self._now_ms() / 1000:6.1f} s  {text}")

    def _now_ms(self) -> int:
        return SYSTEM_CLOCK.monotonic_ms() - self._started_ms


async def _within(failure: str, waiting: Awaitable[T]) -> T:
    """Await a result. Raises RoquetError with the sentence of the failure after `WAIT_S`."""
    try:
        async with asyncio.timeout(WAIT_S):
            return await waiting
    except TimeoutError:
        raise RoquetError(f"{failure} within {WAIT_S} s") from None


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group, however deep it is."""
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
