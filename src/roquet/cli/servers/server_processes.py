"""Server processes: the command line of each process of `roquet serve`, and its start."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from roquet.broker.settings.config import BrokerConfig
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.cli.servers.controller_plan import ControllerPlan, ControllerProcess
from roquet.cli.servers.serve_plan import BrokerProcess
from roquet.cli.servers.server_options import ALL_INTERFACES
from roquet.cli.servers.shared_security import name_server_options, security_options
from roquet.cli.servers.supervised_process import StartProcess
from roquet.cli.servers.supervisor_metrics import page_addresses
from roquet.model.settings import join_address
from roquet.net.address import LOOPBACK
from roquet.store.filesystem.private_files import make_directories

OWN_CONFIG: Final = "broker.conf"
"""File in the directory of a process that is read in place of the one for all."""

OWN_NAME_SERVER_CONFIG: Final = "namesrv.conf"
OWN_CONTROLLER_CONFIG: Final = "controller.conf"
"""Files in the directories of name server and controllers, with settings of their own."""

RECOVERY_TIMEOUT_S: Final = 4 * 60 * 60
"""Longest start of a broker: after a crash it may have to read its whole log, a second a gigabyte.
One that is ended before would begin anew."""

NAME_SERVER: Final = "namesrv"
"""Name of the name server's process, its directory and its log."""

ETCD_MODULE: Final = "roquet.cli.process.guarded_etcd"


class PortHint(NamedTuple):
    """Words of a process about a port in use, and those that name the option of `roquet serve`."""

    words: str
    ours: str


NAME_SERVER_HINT: Final = PortHint("--port", "--namesrv-port")
ETCD_HINT: Final = PortHint("choose another port", "choose another with --controller-port")
CONTROLLER_HINT: Final = PortHint("--port", "--controller-port")
BROKER_HINT: Final = PortHint("haListenPort", "--port")
"""The port for replicas is the one above a broker's own, whatever its settings say."""


class ServerStart(NamedTuple):
    """A server that is no broker, and how it is started."""

    title: str
    start: StartProcess


class ServerProcesses:
    """The processes of `roquet serve`, and how each is started."""

    def __init__(  # noqa: PLR0913 - each is an option
        self,
        *,
        brokers: Sequence[BrokerProcess],
        namesrv_port: int,
        data: Path,
        controllers: ControllerPlan | None = None,
        config: Path | None = None,
        advertise: str | None = None,
        host: str | None = None,
        metrics_port: int | None = None,
        access_file: Path | None = None,
        shared: BrokerConfig | None = None,
    ) -> None:
        """Plan the processes; their pages of metrics are above `metrics_port`, None: nowhere.

        `access_file` has the users of the name server and of controllers: brokers have their own.
        `shared` are settings of all brokers: their TLS is that of name server and controllers, too.
        """
        self.brokers = brokers
        self.controllers = controllers
        self._namesrv_port = namesrv_port
        self._data = data
        self._config = config
        self._advertise = advertise
        self._host = host
        self._access_file = access_file
        self.shared = shared
        self.metrics_pages: Mapping[str, str] = {}
        """HOST:PORT of the metrics page of each process, by name."""
        if metrics_port is not None:
            electing = controllers.processes if controllers is not None else []
            names = [NAME_SERVER, *(one.name for one in electing), *(one.name for one in brokers)]
            self.metrics_pages = page_addresses(metrics_port, names)

    @property
    def logs(self) -> Path:
        """Directory of the logs of all processes."""
        return self._data / "logs"

    def directory(self, broker: BrokerProcess) -> Path:
        """Directory of a broker's messages."""
        return self._data / broker.name

    def make_folders(self) -> None:
        """Create a directory for each broker and one for the logs."""
        for name in ("logs", NAME_SERVER, *(broker.name for broker in self.brokers)):
            make_directories(self._data / name)

    @property
    def namesrv_address(self) -> str:
        """The name server's address for the brokers."""
        host = self._host or ALL_INTERFACES
        return join_address(
            LOOPBACK if host in {ALL_INTERFACES, "::"} else host, self._namesrv_port
        )

    def support(self) -> Iterator[ServerStart]:
        """The servers that brokers need, in the order in which they are started."""
        yield ServerStart("name server", self.namesrv)
        if self.controllers is None:
            return
        if self.controllers.etcd is not None:
            yield ServerStart("etcd", self.etcd)
        for process in self.controllers.processes:
            yield ServerStart("controller", partial(self.controller, process))

    async def namesrv(self) -> ChildProcess:
        """Start the name server; returns when it is ready."""
        arguments = ["namesrv", "--port", str(self._namesrv_port)]
        arguments += ["--host", self._host or ALL_INTERFACES]
        directory = self._data / NAME_SERVER
        arguments += ["--data", str(directory)]
        arguments += name_server_options(
            directory, OWN_NAME_SERVER_CONFIG, self.shared, self._access_file
        )
        return await self._start(NAME_SERVER, arguments, NAME_SERVER_HINT)

    async def etcd(self) -> ChildProcess:
        """Start the etcd that controllers share; returns when it answers."""
        assert self.controllers is not None, "there are controllers"
        address = self.controllers.etcd_address
        command = self.controllers.etcd_command(str(self._data / "etcd"))
        return await self._start("etcd", [address, *command], ETCD_HINT, module=ETCD_MODULE)

    async def controller(self, process: ControllerProcess) -> ChildProcess:
        """Start a controller; returns when it is ready."""
        assert self.controllers is not None, "there are controllers"
        is_alone = self.controllers.etcd is None
        file, etcd = f"file:{self._data / process.name}", f"etcd:{self.controllers.etcd_address}"
        arguments = ["controller", "--port", str(process.port)]
        arguments += ["--store", file if is_alone else etcd]
        arguments += ["--host", self._host or ALL_INTERFACES]
        arguments += ["--advertise", join_address(self.controllers.host, process.port)]
        directory = self._data / process.name
        arguments += security_options(
            directory, OWN_CONTROLLER_CONFIG, self.shared, self._access_file
        )
        return await self._start(process.name, arguments, CONTROLLER_HINT)

    async def broker(self, broker: BrokerProcess) -> ChildProcess:
        """Start a broker; returns when it is ready."""
        directory = self.directory(broker)
        arguments = ["broker", "--name", broker.broker, "--port", str(broker.port)]
        if self._host is not None:
            arguments += ["--host", self._host]
        arguments += ["--data", str(directory)]
        arguments += ["--namesrv", self.namesrv_address]
        own = directory / OWN_CONFIG
        if (config := own if own.exists() else self._config) is not None:
            arguments += ["--config", str(config)]
        if self._advertise is not None:
            arguments += ["--advertise", f"{self._advertise}:{broker.port}"]
        return await self._start(
            broker.name,
            arguments,
            BROKER_HINT,
            environ=broker.environ,
            timeout_s=RECOVERY_TIMEOUT_S,
        )

    async def _start(
        self,
        name: str,
        arguments: Sequence[str],
        hint: PortHint,
        *,
        module: str = "roquet",
        environ: Mapping[str, str] = {},
        timeout_s: float | None = None,
    ) -> ChildProcess:
        logs = self.logs
        if (page := self.metrics_pages.get(name)) is not None:
            arguments = [*arguments, "--metrics", page]
        child = await ChildProcess.start(name, module, *arguments, logs=logs, environ=environ)
        try:
            child.address = await child.wait_ready("ready at ", timeout_s)
        except BaseException as error:
            await child.stop()
            if isinstance(error, ChildProcessFailed):
                raise ChildProcessFailed(str(error).replace(hint.words, hint.ours)) from None
            raise
        return child
