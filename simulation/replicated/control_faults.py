"""ControlFaults: faults of controllers and their etcd, and elections by an operator."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from roquet.testing.clock import VirtualLoop
from simulation.replicated.etcd_cluster import ETCD_HOSTS, EtcdCluster
from simulation.replicated.scenario import PlannedFault, ReplicaFault
from simulation.replicated.servers import ReplicatedServers, host_of

Act = Callable[[str, PlannedFault], Awaitable[bool]]
"""Lets a fault happen to the broker on a host, or to other servers; False if it cannot."""

Later = Callable[[int, Callable[[], object]], bool]
"""Lets a fault end after so many ms, by a function; returns True."""

LEADING: Final = 1
"""`PlannedFault.other` of the controller that leads."""


class ControlFaults:
    """Faults of the servers that elect masters."""

    def __init__(self, servers: ReplicatedServers, loop: VirtualLoop, later: Later) -> None:
        self._servers = servers
        self._loop = loop
        self._later = later
        self.acts: Mapping[ReplicaFault, Act] = {
            ReplicaFault.HAND_OVER: self._hand_over,
            ReplicaFault.CONTROLLER_KILL: self._kill_controller,
            ReplicaFault.CONTROLLER_POWER_LOSS: self._lose_controllers_power,
            ReplicaFault.CONTROLLER_FREEZE: self._freeze_controller,
            ReplicaFault.CONTROLLER_PARTED: self._part_store,
            ReplicaFault.ETCD_KILL: self._kill_member,
            ReplicaFault.ETCD_FREEZE: self._freeze_member,
            ReplicaFault.ETCD_PARTED: self._part_member,
            ReplicaFault.ETCD_STOP: self._stop_etcd,
            ReplicaFault.ETCD_SLOW: self._slow_etcd,
            ReplicaFault.ETCD_LOSES_ANSWERS: self._lose_answers,
            ReplicaFault.ETCD_LOSES_DATA: self._lose_data,
        }

    def controller(self, other: int) -> str:
        """The controller that leads, or the one after it."""
        controllers = self._servers.controllers
        at = controllers.hosts.index(controllers.leader) + other - LEADING
        return controllers.hosts[at % len(controllers.hosts)]

    async def _hand_over(self, _host: str, planned: PlannedFault) -> bool:
        """Have another member of the set lead in the master's place, without losses."""
        others = sorted(self._servers.group.in_sync - {self._servers.group.master})
        others = [number for number in others if self._servers.mode(host_of(number)) is not None]
        if not others:
            return False
        winner = others[planned.other % len(others)]
        controllers = self._servers.controllers

        async def elect() -> None:
            electing = controllers.elect(winner, unclean=False)
            task = self._servers.hosts.run(controllers.leader, electing)
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the controller does not know whether it was stored

        return self._later(0, elect)

    async def _kill_controller(self, _host: str, planned: PlannedFault) -> bool:
        return await self._end_controller(planned)

    async def _lose_controllers_power(self, _host: str, planned: PlannedFault) -> bool:
        return await self._end_controller(planned, loses_power=True)

    async def _end_controller(self, planned: PlannedFault, *, loses_power: bool = False) -> bool:
        host = self.controller(planned.other)
        if host in self._servers.down:
            return False
        await self._servers.kill_controller(host, loses_power=loses_power)
        return self._later(planned.length_ms, lambda: self._servers.come_back(host))

    async def _freeze_controller(self, _host: str, planned: PlannedFault) -> bool:
        return self.freeze(self.controller(planned.other), planned.length_ms)

    def freeze(self, host: str, length_ms: int) -> bool:
        """Let a host stand still for a time; False if it is down or does already."""
        frozen = self._servers.frozen
        if host in self._servers.down or host in frozen.hosts:
            return False
        frozen.freeze(host)
        return self._later(length_ms, lambda: frozen.thaw(host))

    async def _part_store(self, _host: str, planned: PlannedFault) -> bool:
        if self._servers.controllers.etcd is None:
            return False
        return self.part(self.controller(planned.other), ETCD_HOSTS, planned.length_ms)

    def part(self, host: str, others: Sequence[str], length_ms: int) -> bool:
        """Part a host from others for a time; False if nobody can feel that."""
        network, etcd = self._loop.network, self._servers.controllers.etcd
        for other in others:
            network.partition(host, other)

        def rejoin() -> None:
            for other in others:
                network.rejoin(host, other)

        self._later(length_ms, rejoin)
        dead = {*self._servers.down, *(etcd.dead if etcd else ())}
        return host not in dead and not dead.issuperset(others)

    # -- etcd ---------------------------------------------------------------------------------

    def _member(self, planned: PlannedFault) -> str:
        return ETCD_HOSTS[(planned.broker + planned.other) % len(ETCD_HOSTS)]

    async def _kill_member(self, _host: str, planned: PlannedFault) -> bool:
        return self._kill(self._member(planned), planned.length_ms)

    def _kill(self, host: str, length_ms: int) -> bool:
        etcd = self._servers.controllers.etcd
        if etcd is None or host in etcd.dead:
            return False
        self._servers.frozen.thaw(host)
        etcd.kill_member(host)
        return self._later(length_ms, lambda: etcd.start_member(host))

    async def _freeze_member(self, _host: str, planned: PlannedFault) -> bool:
        etcd, host = self._servers.controllers.etcd, self._member(planned)
        if etcd is None or host in etcd.dead:
            return False
        return self.freeze(host, planned.length_ms)

    async def _part_member(self, _host: str, planned: PlannedFault) -> bool:
        host = self._member(planned)
        if self._servers.controllers.etcd is None:
            return False
        others = [other for other in ETCD_HOSTS if other != host]
        return self.part(host, others, planned.length_ms)

    async def _stop_etcd(self, _host: str, planned: PlannedFault) -> bool:
        killed = [self._kill(host, planned.length_ms) for host in ETCD_HOSTS]
        return any(killed)

    async def _slow_etcd(self, _host: str, planned: PlannedFault) -> bool:
        if (etcd := self._servers.controllers.etcd) is None or etcd.is_slow:
            return False
        etcd.is_slow = True
        return self._later(planned.length_ms, lambda: _set(etcd, is_slow=False))

    async def _lose_answers(self, _host: str, planned: PlannedFault) -> bool:
        if (etcd := self._servers.controllers.etcd) is None or etcd.loses_answers:
            return False
        etcd.loses_answers = True
        return self._later(planned.length_ms, lambda: _set(etcd, loses_answers=False))

    async def _lose_data(self, _host: str, planned: PlannedFault) -> bool:
        etcd = self._servers.controllers.etcd
        if etcd is None or etcd.has_lost_data:
            return False
        etcd.lose_data()
        return self._later(planned.length_ms, etcd.restore_data)


def _set(etcd: EtcdCluster, **fields: bool) -> None:
    for name, value in fields.items():
        setattr(etcd, name, value)
