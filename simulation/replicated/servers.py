"""ReplicatedServers: a name server, controllers and three brokers, which die and come back.

host             its files        its process
10.0.0.1         none             name server
10.0.0.2 to 4    state store      controllers
10.0.1.n         log and tables   broker n, which has the id n
10.0.2.n         keys             etcd, where several controllers share it
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from roquet.broker import assembly
from roquet.broker.app import BrokerServer
from roquet.broker.replication.controller_mode import ControllerMode
from roquet.broker.replication.role import Role
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import StoreFull
from roquet.net.clock import SteadyClock
from roquet.rules.election.group import ReplicaGroup
from roquet.rules.replication.acknowledgement import ReplicaAck
from roquet.store.timer.timers import TimerConfig, TimerStore
from roquet.testing.clock import VirtualLoop
from roquet.testing.power_loss_files import PowerLossFiles
from simulation.hosts import Hosts
from simulation.patching import patched
from simulation.replicated.controllers import GROUP, ReplicatedControllers
from simulation.replicated.frozen_hosts import FrozenHosts
from simulation.replicated.history import ReplicatedHistory, RoleChange
from simulation.replicated.host_clock import HostClock
from simulation.replicated.scenario import (
    BROKERS,
    Promise,
    ReplicatedScenario,
)
from simulation.servers import NAMESRV, NAMESRV_HOST, PORT, new_name_server

STORE_DIR: Final = Path("/data")

LOG_FILE_SIZE: Final = 32 * 1024
"""Bytes: about 130 messages, so that logs have several files."""

TIMER_CONFIG: Final = TimerConfig(wheel_slots=200_000, log_file_size=16 * 1024, log_step=16 * 1024)
"""A wheel of little more than the two days that messages may wait in one slot, since a sync of
simulated files copies them whole; and files of some 300 timers."""

STOP_S: Final = 20
"""Time in which a broker has to stop in good order; then it is killed."""

NO_SPACE_S: Final = 0.5
"""Pause before a broker is started again that found its disk full."""


def host_of(number: int) -> str:
    """Host of a broker."""
    return f"10.0.1.{number}"


HOSTS: Final = tuple(host_of(number) for number in range(1, BROKERS + 1))


class ReplicatedServers:
    """Servers of the replicated workload."""

    def __init__(
        self, scenario: ReplicatedScenario, history: ReplicatedHistory, loop: VirtualLoop
    ) -> None:
        self._scenario = scenario
        self._history = history
        self._loop = loop
        self._rng = Random(f"servers {scenario.seed}")
        self.hosts = Hosts(loop)
        self.frozen = FrozenHosts(loop)
        self.controllers = ReplicatedControllers(scenario, history, loop, self.hosts, self.frozen)
        self.clocks = {
            host: HostClock(loop.clock, drift)
            for host, drift in zip(HOSTS, scenario.drifts, strict=False)
        }
        self.files = {host: PowerLossFiles() for host in HOSTS}
        self.brokers: dict[str, BrokerServer] = {}
        """Brokers that serve, or are about to."""
        self.down: dict[str, None] = {}
        """Hosts whose process is dead or ends, controllers among them."""
        self._processes = dict.fromkeys(HOSTS, 0)
        self._boots = dict.fromkeys(HOSTS, 0)

    # -- start --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all servers, the brokers one after the other: each gets its number as id."""
        self._loop.network.delay(*self._scenario.network_ms)
        name_server = new_name_server(self._loop.clock)
        await self.hosts.run(NAMESRV_HOST, name_server.__aenter__())
        await self.controllers.start()
        for host in HOSTS:
            await self.start_broker(host)
            while STORE_DIR / "brokerIdentity" not in self.files[host].contents:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def start_broker(self, host: str) -> None:
        """Start a broker with the files that the process before has left."""
        self._loop.network.revive(host)
        self._processes[host] += 1
        server = BrokerServer(
            self._config(host),
            SteadyClock(self.clocks[host]),
            files=self.files[host],
            rng=Random(f"{self._scenario.seed} {host} {self._processes[host]}"),
            boot_id=f"boot {self._boots[host]}",
        )
        self.brokers[host] = server
        self.down.pop(host, None)
        await self._run_start(host, server)
        if self.brokers.get(host) is server and (mode := self.mode(host)) is not None:
            mode.role.on_change.append(self._role_watcher(host))

    async def _run_start(self, host: str, server: BrokerServer) -> None:
        """Wait until a broker serves, or is killed on the way; a failure is a finding.

        One that has no space is restarted after a random delay, as a supervisor does.
        """
        task = self.hosts.run(host, server.__aenter__())
        await asyncio.wait([task])
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, StoreFull):
            self._history.break_promise(f"start: {host} cannot be started: {error!r}")
            return
        self._history.say(f"{host} has no space to be started")
        if self.brokers.get(host) is not server:  # killed at that moment: the fault starts another
            return
        await self._end(host)
        await asyncio.sleep(NO_SPACE_S)
        await self.start_broker(host)

    def _role_watcher(self, host: str) -> Callable[[Role, Role], None]:
        process = self._processes[host]

        def note(_before: Role, role: Role) -> None:
            text = "leads" if role.is_active else "is fenced" if role.is_fenced else "follows"
            change = RoleChange(
                host=host,
                process=process,
                epoch=role.epoch,
                leads=role.is_active,
                at_ms=self._history.now_ms(),
            )
            self._history.changed_role(change, text)

        return note

    def _config(self, host: str) -> BrokerConfig:
        scenario = self._scenario
        alone = scenario.promise is Promise.WHOLE_SET_ALONE
        reports = ReplicaAck.FLUSHED if scenario.flushed_reports else ReplicaAck.APPENDED
        return BrokerConfig(
            broker_name=GROUP,
            cluster_name="c",
            host=host,
            port=PORT,
            vip_port=False,
            advertise=host,
            name_servers=(NAMESRV,),
            controllers=self.controllers.addresses,
            controller_mode=True,
            store_dir=STORE_DIR,
            log_file_size=LOG_FILE_SIZE,
            queue_file_entries=300,
            index_slots=100,
            index_entries=400,
            all_ack_in_sync_set=scenario.waits_for_all,
            in_sync_replicas=1 if scenario.waits_for_all else 2,
            min_in_sync_replicas=1 if alone else 2,
            sync_flush=scenario.sync_flush,
            replica_ack=reports,
            slave_read_enable=scenario.slave_reads,
            async_learner=scenario.has_learner and host == HOSTS[-1],
            controller_heartbeat_timeout=scenario.heartbeat_timeout_ms,
            controller_poll_interval=scenario.poll_ms,
            sync_set_check_interval=scenario.check_ms,
            ha_behind_max=scenario.behind_max_ms,
            slave_timeout=scenario.slave_timeout_ms,
            ha_housekeeping_interval=scenario.housekeeping_ms,
            ha_heartbeat_interval=scenario.housekeeping_ms // 3,
        )

    # -- looks --------------------------------------------------------------------------------

    def mode(self, host: str) -> ControllerMode | None:
        """Controller mode of a broker that serves; None while it is down or has just begun."""
        server = self.brokers.get(host)
        if server is None or not hasattr(server, "broker"):
            return None
        return server.broker.replication.controller_mode

    @property
    def group(self) -> ReplicaGroup:
        """The group as the controller has stored it last."""
        return self._history.states[-1].group

    @property
    def master(self) -> str:
        """Host of the latest master; the first broker's if there is none."""
        states = self._history.states
        return host_of((states[-1].group.master if states else None) or 1)

    def log_epoch(self, host: str) -> int:
        """Last epoch in the log of a broker, or that it leads in; -1 while it does not serve."""
        if (mode := self.mode(host)) is None:
            return -1
        role = mode.role.current
        return max(role.epoch if role.is_master else -1, mode.transitions.facts().epoch)

    def clock_error_ms(self, host: str) -> int:
        """How wrong a broker's idea of the time is, which outlasts a wrong clock for a while."""
        if self.mode(host) is None:
            return 0
        clock = self.brokers[host].broker.control.clock
        return abs(clock.now_ms() - self._loop.clock.now_ms())

    def process(self, host: str) -> int:
        """Number of a broker's latest process."""
        return self._processes[host]

    def log_of(self, host: str, start: int = 0) -> bytes:
        """Log of a broker that serves, from a position on; empty if it ends before."""
        raw = self.brokers[host].broker.log.store.raw
        position = max(start, raw.begin)
        pieces = list[memoryview]()
        while position < raw.end:
            pieces.append(raw.read(position, raw.file_size))
            position += len(pieces[-1])
        return b"".join(pieces)

    # -- ends and returns ---------------------------------------------------------------------

    async def kill(self, host: str) -> None:
        """Kill a broker's process: what it has written to its files stays."""
        self.files[host] = self.files[host].copy()
        await self._end(host)

    async def lose_power(self, host: str) -> None:
        """Let a broker's machine lose its power; its peers see nothing of that."""
        self.files[host] = self.files[host].after_power_loss(self._rng)
        self._boots[host] += 1
        await self._end(host, silently=True)

    async def stop(self, host: str) -> None:
        """Stop a broker in good order; it is killed if that takes too long."""
        self.down[host] = None
        server = self.brokers.pop(host)
        if hasattr(server, "broker"):
            leaving = self.hosts.run(host, server.__aexit__(None, None, None))
            await asyncio.wait([leaving], timeout=STOP_S)
        self.files[host] = self.files[host].copy()
        await self._end(host)

    async def kill_controller(self, host: str, *, loses_power: bool = False) -> None:
        """Kill a controller's process, or let its machine lose its power."""
        self.controllers.forget(host, loses_power=loses_power)
        await self._end(host, silently=loses_power)

    async def _end(self, host: str, *, silently: bool = False) -> None:
        self.down[host] = None
        self.brokers.pop(host, None)
        self._loop.executor_ms.pop(host, None)
        self.frozen.thaw(host)
        self.hosts.kill(host, silently=silently)
        await self.hosts.wait_ended(host)

    def release(self) -> None:
        """Prepare for the end of the loop: it cannot end tasks of frozen hosts, nor see streams."""
        for host in self.frozen.hosts:
            self.frozen.thaw(host)
        for host in self.controllers.hosts:
            self._loop.network.kill(host)

    async def come_back(self, host: str) -> None:
        """Start the broker or the controller of a host again."""
        if host in self.controllers.hosts:
            self.down.pop(host, None)
            await self.controllers.start_one(host)
        else:
            await self.start_broker(host)


@contextmanager
def small_timers() -> Iterator[None]:
    """Let brokers have small timer files."""
    with patched(assembly, "TimerStore", partial(TimerStore, config=TIMER_CONFIG)):
        yield
