"""FaultInjector: lets planned faults happen to a replicated group, and ends each after its time.

A fault that cannot happen is left out: to a broker that is down already, or a loss of power under
which the settings promise nothing. One that nobody can feel is not counted: a parting from servers
that are down, or the end of connections where there are none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Final

import msgspec

from roquet.testing.clock import VirtualLoop
from roquet.wire.replication.epoch_stream import (
    ReplicaHandshake,
    encode_replica_handshake,
    encode_replica_report,
)
from simulation.replicated.confirmed_prefix import ConfirmedPrefix
from simulation.replicated.control_faults import LEADING, Act, ControlFaults
from simulation.replicated.history import ReplicatedHistory
from simulation.replicated.scenario import (
    MASTER,
    PlannedFault,
    Promise,
    ReplicaFault,
    ReplicatedScenario,
)
from simulation.replicated.servers import HOSTS, ReplicatedServers, host_of
from simulation.servers import NAMESRV_HOST

SLOW_MS: Final = (50, 700)
"""Least and most delay of bytes from and to a broker with a slow network."""

JUMPS_MS: Final = (-86_400_000, -3_600_000, -5_000, 700, 90_000, 7_200_000)
"""Errors that a wall clock gets."""

STRANGER_HOST: Final = "10.0.9.9"

ROLLING_PAUSE_MS: Final = 2_500
"""Between the restarts of two brokers: long enough for a replica to come back into the set."""


class FaultInjector:
    """Faults of one group. `on_edge` is called as one begins, and as it ends."""

    def __init__(
        self,
        scenario: ReplicatedScenario,
        servers: ReplicatedServers,
        history: ReplicatedHistory,
        prefix: ConfirmedPrefix,
        loop: VirtualLoop,
        on_edge: Callable[[], object],
    ) -> None:
        self._scenario = scenario
        self._servers = servers
        self._history = history
        self._prefix = prefix
        self._loop = loop
        self._on_edge = on_edge
        self._rng = Random(f"faults {scenario.seed}")
        loop.executor_share = partial(_share_of_work, Random(f"executors {scenario.seed}"))
        self._ends: list[asyncio.Task[None]] = []
        self._doubted: dict[str, None] = {}
        """Brokers that lost their power, and have perhaps not got their log's tail back."""
        self._control = ControlFaults(servers, loop, self._later)
        self._acts: Mapping[ReplicaFault, Act] = {
            ReplicaFault.KILL: self._kill,
            ReplicaFault.POWER_LOSS: self._lose_power,
            ReplicaFault.STOP: self._stop,
            ReplicaFault.ROLLING_RESTART: self._roll,
            ReplicaFault.FREEZE: self._freeze,
            ReplicaFault.ISOLATE: self._isolate,
            ReplicaFault.PART_BROKER: self._part_broker,
            ReplicaFault.PART_ONE_WAY: self._part_one_way,
            ReplicaFault.PART_CONTROLLER: self._part_controller,
            ReplicaFault.BLACKOUT: self._black_out,
            ReplicaFault.CUT: self._cut,
            ReplicaFault.CUT_CONTROLLER: self._cut_controller,
            ReplicaFault.SLOW_NETWORK: self._slow_network,
            ReplicaFault.SLOW_DISK: self._slow_disk,
            ReplicaFault.DISK_FULL: self._fill_disk,
            ReplicaFault.WALL_CLOCK: self._shift_wall_clock,
            ReplicaFault.STRANGER: self._pose,
            **self._control.acts,
        }

    async def inject(self, planned: PlannedFault) -> None:
        """Let a fault happen, if it can."""
        host = self._servers.master if planned.broker == MASTER else host_of(planned.broker)
        self._on_edge()
        self._history.say(f"-- {planned.fault.name} {host} for {planned.length_ms} ms")
        if await self._acts[planned.fault](host, planned):
            self._history.disturb(planned.fault, host)

    async def end_all(self) -> None:
        """Bring everything back: the network, frozen hosts, dead processes, slow disks."""
        self._history.say("-- the faults are over")
        network, servers = self._loop.network, self._servers
        for host in servers.frozen.hosts:
            servers.frozen.thaw(host)
        for host in (*HOSTS, *servers.controllers.hosts):
            network.slow(host, *self._scenario.network_ms)
            self._loop.executor_ms.pop(host, None)
        network.heal()
        self._on_edge()
        for end in self._ends:
            await end

    def _later(self, length_ms: int, end: Callable[[], object]) -> bool:
        """Let a fault end after its time; True, as answer of an act."""
        self._ends.append(asyncio.create_task(self._end(length_ms, end)))
        return True

    async def _end(self, length_ms: int, end: Callable[[], object]) -> None:
        await asyncio.sleep(length_ms / 1_000)
        self._on_edge()
        result = end()
        if isinstance(result, Awaitable):
            await result

    # -- processes ----------------------------------------------------------------------------

    async def _kill(self, host: str, planned: PlannedFault) -> bool:
        if host in self._servers.down:
            return False
        await self._servers.kill(host)
        return self._later(planned.length_ms, lambda: self._servers.come_back(host))

    async def _black_out(self, host: str, planned: PlannedFault) -> bool:
        """Take all brokers down, as much of it without power as the settings bear."""
        victims = [each for each in HOSTS if each not in self._servers.down]
        for victim in victims:
            length_ms = self._rng.randint(0, 2 * planned.length_ms)
            lasting = msgspec.structs.replace(planned, length_ms=length_ms)
            may_lose = self._scenario.is_durable or victim == host
            if not (may_lose and await self._lose_power(victim, lasting)):
                await self._kill(victim, lasting)
        return bool(victims)

    async def _lose_power(self, host: str, planned: PlannedFault) -> bool:
        if host in self._servers.down or not self._may_lose_power(host):
            return False
        if not self._scenario.is_durable:
            self._doubted[host] = None
        if self._servers.group.in_sync <= {HOSTS.index(host) + 1}:
            self._forget_unflushed(host)
        await self._servers.lose_power(host)
        return self._later(planned.length_ms, lambda: self._servers.come_back(host))

    def _forget_unflushed(self, host: str) -> None:
        """Expect no more of the only member of the set than what is acknowledged or on its disk."""
        flushed = 0  # of a broker that is being started: not known
        if self._servers.mode(host) is not None:
            flushed = self._servers.brokers[host].broker.log.store.flushed_position
        position = max(flushed, self._history.acknowledged_position)
        self._prefix.forget(self._servers.group.master_epoch, position)

    def _may_lose_power(self, host: str) -> bool:
        """Whether a loss of power leaves another broker that has all that was acknowledged."""
        if self._scenario.promise not in {Promise.WHOLE_SET, Promise.ON_DISKS}:
            return False
        if self._scenario.is_durable:
            return True
        for other in [*self._doubted]:
            mode = self._servers.mode(other)
            if mode is not None and mode.transitions.may_be_elected:
                del self._doubted[other]
        return not self._doubted.keys() - {host}

    async def _stop(self, host: str, planned: PlannedFault) -> bool:
        if host in self._servers.down or host in self._servers.frozen.hosts:
            return False

        async def stop() -> None:
            if host in self._servers.down:
                return
            await self._servers.stop(host)
            await asyncio.sleep(planned.length_ms / 1_000)
            await self._servers.come_back(host)

        return self._later(0, stop)

    async def _roll(self, _host: str, planned: PlannedFault) -> bool:
        async def roll() -> None:
            for host in HOSTS:
                await self._stop(host, planned)
                await asyncio.sleep((planned.length_ms + ROLLING_PAUSE_MS) / 1_000)

        return self._later(0, roll)

    async def _freeze(self, host: str, planned: PlannedFault) -> bool:
        return self._control.freeze(host, planned.length_ms)

    # -- network, disks and clocks ------------------------------------------------------------

    async def _isolate(self, host: str, planned: PlannedFault) -> bool:
        servers = (*HOSTS, *self._servers.controllers.hosts, NAMESRV_HOST)
        others = [other for other in servers if other != host]
        return self._control.part(host, others, planned.length_ms)

    async def _part_broker(self, host: str, planned: PlannedFault) -> bool:
        return self._control.part(host, [_beside(host, planned.other)], planned.length_ms)

    async def _part_controller(self, host: str, planned: PlannedFault) -> bool:
        """Part a broker from the controller that leads, or from all of them."""
        others = [*self._servers.controllers.hosts]
        if planned.other == LEADING:
            others = [self._control.controller(LEADING)]
        return self._control.part(host, others, planned.length_ms)

    def _is_up(self, host: str) -> bool:
        return host not in self._servers.down

    async def _part_one_way(self, host: str, planned: PlannedFault) -> bool:
        network, other = self._loop.network, _beside(host, planned.other)
        network.partition_one_way(host, other)
        self._later(planned.length_ms, lambda: network.rejoin(host, other))
        return self._is_up(host) and self._is_up(other)

    async def _cut(self, host: str, planned: PlannedFault) -> bool:
        return self._loop.network.drop(host, _beside(host, planned.other))

    async def _cut_controller(self, host: str, _planned: PlannedFault) -> bool:
        return self._loop.network.drop(host, self._control.controller(LEADING))

    async def _slow_network(self, host: str, planned: PlannedFault) -> bool:
        network, usual = self._loop.network, self._scenario.network_ms
        network.slow(host, *SLOW_MS)
        self._later(planned.length_ms, lambda: network.slow(host, *usual))
        return self._is_up(host)

    async def _slow_disk(self, host: str, planned: PlannedFault) -> bool:
        slow = self._loop.executor_ms
        slow[host] = self._rng.randint(5, 1_500)
        self._later(planned.length_ms, lambda: slow.pop(host, None))
        return self._is_up(host)

    async def _fill_disk(self, host: str, planned: PlannedFault) -> bool:
        if self._servers.files[host].is_full:
            return False
        self._servers.files[host].is_full = True

        def free() -> None:  # a process since then has other files
            self._servers.files[host].is_full = False

        self._later(planned.length_ms, free)
        return self._is_up(host)

    async def _pose(self, host: str, planned: PlannedFault) -> bool:
        """Name the id of another broker at the port for replicas, and hang up or stay."""
        mode = self._servers.mode(host)
        if mode is None or not mode.stream_server.port or host in self._servers.frozen.hosts:
            return False
        other = HOSTS.index(_beside(host, planned.other)) + 1
        sent = encode_replica_handshake(ReplicaHandshake(broker_id=other))
        if self._rng.random() < 0.5:
            sent += encode_replica_report(0)
        with self._loop.network.host(STRANGER_HOST):
            _, writer = await asyncio.open_connection(host, mode.stream_server.port)
        writer.write(sent)
        length_ms = self._rng.choice((0, planned.length_ms))
        return self._later(length_ms, lambda: writer.transport.abort())

    async def _shift_wall_clock(self, host: str, planned: PlannedFault) -> bool:
        clock = self._servers.clocks[host]
        clock.ahead_ms = self._rng.choice(JUMPS_MS)

        def set_right() -> None:
            clock.ahead_ms = 0

        self._later(planned.length_ms, set_right)
        return self._is_up(host)


def _beside(host: str, distance: int) -> str:
    """Another broker's host."""
    return HOSTS[(HOSTS.index(host) + distance) % len(HOSTS)]


def _share_of_work(rng: Random) -> float:
    """When work of a slow disk is done: at once, on the way, or as its caller hears of it."""
    return rng.choice((0.0, rng.random(), 1.0))
