"""roquet serve: a name server, brokers and replicas on one machine, restarted when one dies.

start   name server ─▶ broker-a ─▶ its replicas ─▶ broker-b ─▶ …
stop    masters, all at once ─▶ replicas, all at once ─▶ name server

A master ends before its replicas: senders that wait for a replica are answered until then.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.broker.settings import config_file
from roquet.broker.settings.value_formats import PORT
from roquet.cli.process import runtime
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.cli.servers.serve_plan import (
    BROKERS_MAX,
    IN_SYNC,
    PORT_STEP,
    REPLICA_PORT_STEP,
    REPLICAS_MAX,
    BrokerProcess,
    broker_processes,
)
from roquet.cli.servers.start import ALL_INTERFACES, VerboseOption
from roquet.cli.terminal import output
from roquet.cli.terminal.output import table
from roquet.log_records import logger
from roquet.model.errors import RoquetError, UsageError
from roquet.model.settings import join_address
from roquet.model.topic import MASTER_ID
from roquet.namesrv.config import PORT as NAMESRV_PORT
from roquet.store.filesystem.private_files import make_directories

if TYPE_CHECKING:
    from rich.table import Table

log = logger(__name__)

OWN_CONFIG: Final = "broker.conf"
"""File in the directory of a process that is read in place of the one for all."""

PAUSE_MIN_S: Final = 1.0
"""Shortest pause before a process that died is restarted."""

PAUSE_MAX_S: Final = 30.0
"""Longest pause: each failure doubles it, so that a broken process keeps no core busy."""

STABLE_S: Final = 60.0
"""After so long a life the next pause is the shortest again."""

StartProcess = Callable[[], Coroutine[Any, Any, ChildProcess]]
Sleep = Callable[[float], Coroutine[Any, Any, None]]


ReplicasOption = Annotated[
    int,
    typer.Option(min=0, max=REPLICAS_MAX, help="Of each broker, each with the whole log."),
]
InSyncOption = Annotated[
    int | None,
    typer.Option(
        "--in-sync",
        min=1,
        help="Logs that have a message when its sender is answered, the master's included;"
        f" 1 waits for no replica. {IN_SYNC} if there are replicas.",
    ),
]


def serve(  # noqa: PLR0913 - each is an option
    *,
    brokers: Annotated[
        int, typer.Option(min=1, max=BROKERS_MAX, help="How many: about one a core.")
    ] = 1,
    replicas: ReplicasOption = 0,
    in_sync: InSyncOption = None,
    port: Annotated[
        int,
        typer.Option(
            help=f"The first broker's; the next one's is {PORT_STEP} higher,"
            f" a replica's {REPLICA_PORT_STEP:,} higher."
        ),
    ] = PORT,
    namesrv_port: Annotated[int, typer.Option(help="The name server's.")] = NAMESRV_PORT,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="A directory for each process in it.")
    ] = Path("roquet-data"),
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="A broker.conf for all that have none in their directory;"
            " names, ports, directories and roles are ours.",
        ),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="The host that clients are told.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="The interface that all of them listen on.")
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a name server, brokers and replicas, a process each. One that dies is started again.

    Roles are fixed: a replica copies its master, and never becomes the master. With
    slaveReadEnable=true it serves readers.
    """
    runtime.log_to_stderr(verbose=verbose)
    if port < 1 or namesrv_port < 1:
        raise UsageError("--port and --namesrv-port: fixed ones, so that processes can come back")
    if advertise is not None and ":" in advertise.strip("[]"):
        raise UsageError(f"--advertise {advertise!r}: a host alone, each broker has its own port")
    processes = broker_processes(brokers, replicas, in_sync, port)
    if replicas and config is not None:
        _check_shared(config, processes[0])
    plan = ServerProcesses(
        brokers=processes,
        namesrv_port=namesrv_port,
        data=data,
        config=config,
        advertise=advertise,
        host=host,
    )
    runtime.run(run_servers(plan))


def _check_shared(config: Path, broker: BrokerProcess) -> None:
    """Raise UsageError for a file that would have replicas of several brokers copy one log."""
    if config_file.load(config, {**os.environ, **broker.environ}).ha_master is not None:
        raise UsageError(
            f"{config}: haMasterAddress names one master for all replicas: leave it out, each"
            " finds its own by the name server"
        )


class ServerProcesses:
    """The processes of `roquet serve`, and how each is started."""

    def __init__(
        self,
        *,
        brokers: Sequence[BrokerProcess],
        namesrv_port: int,
        data: Path,
        config: Path | None = None,
        advertise: str | None = None,
        host: str | None = None,
    ) -> None:
        self.brokers = brokers
        self._namesrv_port = namesrv_port
        self._data = data
        self._config = config
        self._advertise = advertise
        self._host = host

    def directory(self, broker: BrokerProcess) -> Path:
        """Directory of a broker's messages."""
        return self._data / broker.name

    def make_folders(self) -> None:
        """Create a directory for each broker and one for the logs."""
        for name in ("logs", "namesrv", *(broker.name for broker in self.brokers)):
            make_directories(self._data / name)

    @property
    def _names(self) -> str:
        """The name server's address for the brokers."""
        host = self._host or ALL_INTERFACES
        return join_address(
            "127.0.0.1" if host in {ALL_INTERFACES, "::"} else host, self._namesrv_port
        )

    async def namesrv(self) -> ChildProcess:
        """Start the name server; returns when it is ready."""
        arguments = ["namesrv", "--port", str(self._namesrv_port)]
        arguments += ["--host", self._host or ALL_INTERFACES]
        arguments += ["--data", str(self._data / "namesrv")]
        return await self._start("namesrv", arguments, {})

    async def broker(self, broker: BrokerProcess) -> ChildProcess:
        """Start a broker; returns when it is ready."""
        directory = self.directory(broker)
        arguments = ["broker", "--name", broker.broker, "--port", str(broker.port)]
        if self._host is not None:
            arguments += ["--host", self._host]
        arguments += ["--data", str(directory)]
        arguments += ["--namesrv", self._names]
        own = directory / OWN_CONFIG
        if (config := own if own.exists() else self._config) is not None:
            arguments += ["--config", str(config)]
        if self._advertise is not None:
            arguments += ["--advertise", f"{self._advertise}:{broker.port}"]
        return await self._start(broker.name, arguments, broker.environ)

    async def _start(
        self, name: str, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> ChildProcess:
        logs = self._data / "logs"
        child = await ChildProcess.start(name, "roquet", *arguments, logs=logs, environ=environ)
        try:
            child.address = await child.wait_ready("ready at ")
        except BaseException:
            await child.stop()
            raise
        return child


class SupervisedProcess:
    """A process that is restarted, after a pause, whenever it has died."""

    def __init__(
        self, child: ChildProcess, start: StartProcess, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.child = child
        self._start = start
        self._sleep = sleep
        self.pause_s = PAUSE_MIN_S
        self.restarts = 0

    async def supervise(self) -> None:
        """Watch and restart the process until cancelled."""
        while True:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            async for _ in self.child.lines():
                pass
            await self.child.wait()
            if loop.time() - began_s >= STABLE_S:
                self.pause_s = PAUSE_MIN_S
            for line in str(self.child.failure()).splitlines():  # each is a log line of its own
                log.error("%s", line)
            log.error("%s is started again in %g s", self.child.name, self.pause_s)
            await self._again()

    async def _again(self) -> None:
        while True:
            await self._sleep(self.pause_s)
            self.pause_s = min(2 * self.pause_s, PAUSE_MAX_S)
            try:
                self.child = await self._start()
            except (ChildProcessFailed, OSError) as error:  # a full disk has no room for its log
                log.warning("%s: %s; tried again in %g s", self.child.name, error, self.pause_s)
            else:
                self.restarts += 1
                log.warning("%s is back at %s", self.child.name, self.child.address)
                return

    async def stop(self) -> None:
        """Stop it; an error is only logged, because other processes have to be stopped, too."""
        try:
            await self.child.stop()
        except RoquetError as error:
            log.warning("%s", error)


async def run_servers(plan: ServerProcesses) -> None:
    """Start the servers one after another, and supervise them until a stop signal comes."""
    stop = runtime.stop_signal()
    plan.make_folders()
    async with AsyncExitStack() as stack:
        names = SupervisedProcess(await plan.namesrv(), plan.namesrv)
        stack.push_async_callback(names.stop)
        output.echo(f"name server  {names.child.address}")
        masters: list[SupervisedProcess] = []
        replicas: list[SupervisedProcess] = []
        stack.push_async_callback(_stop_all, replicas)
        stack.push_async_callback(_stop_all, masters)
        rows = table("broker", "id", "role", "address", "directory")
        for broker in plan.brokers:
            if stop.is_set():
                return
            process = SupervisedProcess(await plan.broker(broker), _starter(plan, broker))
            (masters if broker.broker_id == MASTER_ID else replicas).append(process)
            _add_row(rows, broker, process.child.address, plan.directory(broker))
        tasks = [
            asyncio.create_task(process.supervise()) for process in (names, *masters, *replicas)
        ]
        stack.push_async_callback(_cancel, tasks)
        output.console().print(rows)
        output.echo("ready (Ctrl-C stops)")
        await stop.wait()


def _add_row(rows: "Table", broker: BrokerProcess, address: str, directory: Path) -> None:
    role = "master" if broker.role is None else broker.role
    rows.add_row(broker.broker, str(broker.broker_id), role, address, str(directory))


def _starter(plan: ServerProcesses, broker: BrokerProcess) -> StartProcess:
    return lambda: plan.broker(broker)


async def _stop_all(processes: Sequence[SupervisedProcess]) -> None:
    await asyncio.gather(*(process.stop() for process in processes))


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
