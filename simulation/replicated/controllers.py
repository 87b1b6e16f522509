"""ReplicatedControllers: the controllers of a simulated group, one or several that share an etcd.

One has its state in memory that survives it, or in a file; several have it in etcd, and one of them
leads. A controller that is killed comes back with what its store has.
"""

import asyncio
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.controller.state_store.etcd import EtcdStore
from roquet.controller.state_store.etcd_gateway import EtcdGateway
from roquet.controller.state_store.file import FileStore
from roquet.controller.state_store.interface import StateStore
from roquet.controller.state_store.memory import MemoryStore
from roquet.model.errors import CallRefused
from roquet.rules.election.elect import ElectionRequest
from roquet.rules.election.group import ReplicaGroup
from roquet.testing.clock import VirtualLoop
from roquet.testing.power_loss_files import PowerLossFiles
from simulation.hosts import Hosts
from simulation.replicated.etcd_cluster import ETCD_HOSTS, ETCD_PORT, EtcdCluster
from simulation.replicated.frozen_hosts import FrozenHosts
from simulation.replicated.history import ReplicatedHistory
from simulation.replicated.host_clock import HostClock
from simulation.replicated.recording_store import RecordingStore
from simulation.replicated.scenario import (
    BROKERS,
    ControllerStore,
    ReplicatedScenario,
)

CONTROLLER_HOST: Final = "10.0.0.2"
"""Host of the first controller."""

CONTROLLER_HOSTS: Final = (CONTROLLER_HOST, "10.0.0.3", "10.0.0.4")

CONTROLLER_PORT: Final = 9878

STATE_DIR: Final = Path("/controller")

SHARED_NAME: Final = "controllers"
"""Name under which the controllers share etcd."""

GROUP: Final = "g"
"""Name of the brokers."""

GROUP_KEYS: Final = f"/roquet/{SHARED_NAME}/groups/"


class ReplicatedControllers:
    """Controllers of the replicated workload, and their store."""

    def __init__(
        self,
        scenario: ReplicatedScenario,
        history: ReplicatedHistory,
        loop: VirtualLoop,
        hosts: Hosts,
        frozen: FrozenHosts,
    ) -> None:
        self.hosts = CONTROLLER_HOSTS[: scenario.controllers]
        self.clocks = {
            host: HostClock(loop.clock, drift)
            for host, drift in zip(self.hosts, scenario.drifts[BROKERS:], strict=False)
        }
        self.etcd: EtcdCluster | None = None
        """None: the one controller has its state for itself."""
        if scenario.store is ControllerStore.ETCD:
            rng = Random(f"etcd {scenario.seed}")
            self.etcd = EtcdCluster(
                loop, hosts, rng, lambda host: host in frozen.hosts, self._note_write
            )
        self._scenario = scenario
        self._history = history
        self._loop = loop
        self._tasks = hosts
        self._servers: dict[str, ControllerServer] = {}
        self._files = PowerLossFiles()
        self._rng = Random(f"controllers {scenario.seed}")
        self._memory = MemoryStore()

    @property
    def addresses(self) -> tuple[str, ...]:
        """HOST:PORT of each controller."""
        return tuple(f"{host}:{CONTROLLER_PORT}" for host in self.hosts)

    @property
    def leader(self) -> str:
        """Host of the controller that leads, by its own account; the first one if none does."""
        for host in self.hosts:
            server = self._servers.get(host)
            if server is not None and hasattr(server, "controller"):
                state = server.controller.leadership.state
                if state is not None and not state.has_ended:
                    return host
        return self.hosts[0]

    async def start(self) -> None:
        """Start etcd, if there is one, and all controllers."""
        if self.etcd is not None:
            await self.etcd.start()
        for host in self.hosts:
            await self.start_one(host)

    async def start_one(self, host: str) -> None:
        """Start a controller, with the state that its store has."""
        self._loop.network.revive(host)
        config = ControllerConfig(
            host=host,
            port=CONTROLLER_PORT,
            advertise=host,
            lease_ms=self._scenario.lease_ms,
        )
        server = ControllerServer(config, self.clocks[host], store=self._open_store(host))
        self._servers[host] = server
        task = self._tasks.run(host, server.__aenter__())
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            self._history.break_promise(f"start: {host} cannot be started: {error!r}")

    def forget(self, host: str, *, loses_power: bool = False) -> None:
        """Note that a controller's process is about to be killed, perhaps with its machine."""
        self._servers.pop(host, None)
        files = self._files
        self._files = files.after_power_loss(self._rng) if loses_power else files.copy()

    async def elect(self, broker_id: int, *, unclean: bool = True) -> int | None:
        """Do what an operator does by `roquet cluster elect`; returns the new epoch.

        None if nobody was elected, or no controller leads. Raises CallRefused if nobody knows.
        """
        server = self._servers.get(self.leader)
        if server is None or not hasattr(server, "controller"):
            return None
        controller = server.controller
        request = ElectionRequest(asker=broker_id, designated=True, unclean=unclean)
        try:
            state = controller.leadership.leader_state()
            result = await controller.elections.elect_designated(state, GROUP, request)
        except CallRefused as error:
            if not error.definite:
                raise
            return None
        return result.group.master_epoch if result.refusal is None else None

    def _open_store(self, host: str) -> StateStore:
        if self.etcd is not None:
            first = self.hosts.index(host)
            members = (*ETCD_HOSTS[first:], *ETCD_HOSTS[:first])
            gateway = EtcdGateway([f"{member}:{ETCD_PORT}" for member in members])
            return EtcdStore(gateway, SHARED_NAME)
        if self._scenario.store is ControllerStore.FILE:
            return RecordingStore(FileStore(STATE_DIR, self._files), self._history)
        return RecordingStore(self._memory, self._history)

    def _note_write(self, key: str, value: bytes) -> None:
        """Note a group that was written to etcd, whether or not its controller ever learns that."""
        if not key.startswith(GROUP_KEYS):
            return
        group = msgspec.json.decode(value, type=ReplicaGroup)
        if self.etcd is None or not self.etcd.has_lost_data:
            self._history.saved(group)
        elif group.master is not None:
            self._history.break_promise(
                f"epochs: {group.master} was elected in epoch {group.master_epoch} while the "
                "controllers' state was lost"
            )
