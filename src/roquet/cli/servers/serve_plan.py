"""Serve plan: the brokers and controllers of `roquet serve`, their roles and their ports.

broker-a   0  10911      broker-b   0  10921      …  10 apart
broker-a   1  11911      broker-b   1  11921      …  1,000 above their master

--controllers 1    controller    9878    a file in the data directory
--controllers 3    controller-1  9878    etcd of one member, at 9879
                   controller-2  9888
                   controller-3  9898
"""

import shutil
import string
from typing import Final

import msgspec

from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.model.settings import join_address
from roquet.model.topic import MASTER_ID
from roquet.net.address import LOOPBACK, PORT_MAX
from roquet.rules.replication.acknowledgement import BrokerRole

BROKERS_MAX: Final = len(string.ascii_lowercase)
"""Brokers of one machine: each has a letter, and more brokers than cores are of no use."""

PORT_STEP: Final = 10
"""Between the ports of two brokers: each also listens on the port above its own, for replicas, and
may listen on the port two below it. Between those of two controllers, too: etcd has two between the
first and the second."""

REPLICAS_MAX: Final = 8
"""Replicas of one broker: the ports of more would leave no room below 65,536."""

REPLICA_PORT_STEP: Final = 1_000
"""Between the ports of a master and of its first replica, and so on: more than all masters take, so
that the ports of those that run stay when brokers or replicas are added."""

IN_SYNC: Final = 2
"""Logs that hold a message before its sender is answered, where there are replicas: a message that
was acknowledged survives the loss of one directory."""

CONTROLLERS_MAX: Final = 3
"""Controllers of one machine: any one of them may be killed, and another leads."""

NO_ETCD: Final = (
    "--controllers {count}: two or more controllers share an etcd, and there is none on PATH:"
    " install etcd 3.4 or newer (Debian, Ubuntu: apt-get install etcd-server; macOS: brew install"
    " etcd), or take --controllers 1"
)


class BrokerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of `roquet serve`: a master, or a replica of one."""

    broker: str
    """Name that it shares with its master or its replicas."""
    broker_id: int = MASTER_ID
    port: int
    role: BrokerRole | None = None
    """None: its settings say it, or its controllers."""
    in_sync: int = 1
    """Logs that a message needs before its sender is answered."""
    controllers: tuple[str, ...] = ()
    """Addresses of the controllers that give it its role and id; empty: these are fixed."""

    @property
    def name(self) -> str:
        """Name of the process, its directory and its log: broker-a, broker-a-1."""
        is_master = self.broker_id == MASTER_ID
        return self.broker if is_master else f"{self.broker}-{self.broker_id}"

    @property
    def environ(self) -> dict[str, str]:
        """Settings as environment variables, which win over any file."""
        if self.controllers:
            return {
                "ROQUET_CONTROLLER_MODE": "true",
                "ROQUET_CONTROLLERS": ";".join(self.controllers),
                "ROQUET_MIN_IN_SYNC_REPLICAS": str(self.in_sync),
                "ROQUET_IN_SYNC_REPLICAS": str(self.in_sync),
                "ROQUET_HA_PORT": str(self.port + 1),
            }
        if self.role is None:
            return {}
        return {
            "ROQUET_BROKER_ROLE": self.role,
            "ROQUET_BROKER_ID": str(self.broker_id),
            "ROQUET_IN_SYNC_REPLICAS": str(self.in_sync),
            "ROQUET_HA_PORT": str(self.port + 1),
        }


def broker_processes(
    brokers: int, replicas: int, in_sync: int | None, port: int, controllers: tuple[str, ...] = ()
) -> list[BrokerProcess]:
    """The brokers to start, each master followed by its replicas. Raises UsageError."""
    highest = port + PORT_STEP * (brokers - 1) + REPLICA_PORT_STEP * replicas + 1
    if highest > PORT_MAX:
        named = output.quantity(brokers, "broker")
        named += f" with {output.quantity(replicas, 'replica')} each" if replicas else ""
        raise UsageError(
            f"--port {port}: {named}: ports up to {highest} are needed, beyond {PORT_MAX}"
        )
    if in_sync is not None and not replicas:
        raise UsageError(f"--in-sync {in_sync}: there are no replicas; add --replicas")
    needed = (in_sync or IN_SYNC) if replicas else 1
    if needed > replicas + 1:
        raise UsageError(
            f"--in-sync {needed}: with {output.quantity(replicas, 'replica')} there are "
            f"{replicas + 1} logs"
        )
    return [
        BrokerProcess(
            broker=f"broker-{letter}",
            broker_id=broker_id,
            port=port + PORT_STEP * index + REPLICA_PORT_STEP * broker_id,
            role=_role(broker_id, needed) if replicas and not controllers else None,
            in_sync=needed,
            controllers=controllers,
        )
        for index, letter in enumerate(string.ascii_lowercase[:brokers])
        for broker_id in range(replicas + 1)
    ]


def _role(broker_id: int, needed: int) -> BrokerRole:
    if broker_id != MASTER_ID:
        return BrokerRole.SLAVE
    return BrokerRole.ASYNC_MASTER if needed == 1 else BrokerRole.SYNC_MASTER


class ControllerProcess(msgspec.Struct, frozen=True):
    """One controller."""

    name: str
    """Name of the process, its directory and its log."""
    port: int


class ControllerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The controllers of one machine."""

    count: int
    port: int
    """The first one's."""
    host: str
    """The host that brokers are told."""
    etcd: str | None = None
    """Path of the program; None: the only controller keeps its state in a file."""

    @property
    def processes(self) -> list[ControllerProcess]:
        """The controllers, in the order in which they are started."""
        return [
            ControllerProcess(
                f"controller-{number + 1}" if self.count > 1 else "controller",
                self.port + PORT_STEP * number,
            )
            for number in range(self.count)
        ]

    @property
    def addresses(self) -> tuple[str, ...]:
        """HOST:PORT of each."""
        return tuple(join_address(self.host, one.port) for one in self.processes)

    @property
    def etcd_address(self) -> str:
        """HOST:PORT at which etcd serves the controllers, on this machine alone."""
        return join_address(LOOPBACK, self.port + 1)

    def etcd_command(self, directory: str) -> list[str]:
        """The command line of an etcd of one member, with its data in a directory."""
        assert self.etcd is not None, "there is an etcd"
        clients = f"http://{self.etcd_address}"
        peers = f"http://{join_address(LOOPBACK, self.port + 2)}"
        options = {
            "--name": "roquet",
            "--data-dir": directory,
            "--listen-client-urls": clients,
            "--advertise-client-urls": clients,
            "--listen-peer-urls": peers,
            "--initial-advertise-peer-urls": peers,
            "--initial-cluster": f"roquet={peers}",
            "--auto-compaction-retention": "1",  # hours; without it every revision is kept
        }
        return [self.etcd, *(part for option in options.items() for part in option)]


def controller_plan(count: int, replicas: int, port: int, host: str) -> ControllerPlan | None:
    """The controllers to start; None for none. Raises UsageError if they cannot be had."""
    if not count:
        return None
    if not replicas:
        raise UsageError(f"--controllers {count}: there is nobody to elect; add --replicas")
    highest = port + PORT_STEP * (count - 1)  # etcd's are below the second controller's
    if port < 1:
        raise UsageError(f"--controller-port {port}: a port from 1 to {PORT_MAX} is needed")
    if highest > PORT_MAX:
        raise UsageError(
            f"--controller-port {port}: {output.quantity(count, 'controller')}: ports up to "
            f"{highest} are needed, beyond {PORT_MAX}"
        )
    etcd = shutil.which("etcd") if count > 1 else None
    if count > 1 and etcd is None:
        raise UsageError(NO_ETCD.format(count=count))
    return ControllerPlan(count=count, port=port, host=host, etcd=etcd)
