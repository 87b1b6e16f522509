"""Controller plan: the controllers of `roquet serve`, where their state is, and their ports.

--controllers 1    controller    9878    a file in the data directory
--controllers 3    controller-1  9878    etcd of one member, at 9879
                   controller-2  9888
                   controller-3  9898
"""

import shutil
from typing import Final

import msgspec

from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.model.settings import join_address
from roquet.net.address import LOOPBACK, PORT_MAX

CONTROLLERS_MAX: Final = 3
"""Controllers of one machine: any one of them may be killed, and another leads."""

PORT_STEP: Final = 10
"""Between the ports of two controllers; etcd has two between the first and the second."""

NO_ETCD: Final = (
    "--controllers {count}: two or more controllers share an etcd, and there is none on PATH:"
    " install etcd 3.4 or newer (Debian, Ubuntu: apt-get install etcd-server; macOS: brew install"
    " etcd), or take --controllers 1"
)


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
