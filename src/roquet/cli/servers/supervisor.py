"""roquet serve: a name server and several brokers on one machine, started again when one dies.

start   name server ─▶ broker-a ─▶ broker-b ─▶ …
stop    brokers, all at once ─▶ name server
"""

import asyncio
import string
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from roquet.broker.settings.value_formats import PORT
from roquet.cli.process import runtime
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.cli.servers.start import ALL_INTERFACES, VerboseOption
from roquet.cli.terminal import output
from roquet.log_records import logger
from roquet.model.errors import RoquetError, UsageError
from roquet.model.settings import join_address
from roquet.namesrv.config import PORT as NAMESRV_PORT
from roquet.store.filesystem.private_files import make_directories

log = logger(__name__)

BROKERS_MAX: Final = len(string.ascii_lowercase)
"""Brokers of one machine: each has a letter, and more brokers than cores are of no use."""

PORT_STEP: Final = 10
"""Between the ports of two brokers: each may also listen on the port two below its own."""

PAUSE_MIN_S: Final = 1.0
"""Shortest pause before a process that died is restarted."""

PAUSE_MAX_S: Final = 30.0
"""Longest pause: each failure doubles it, so that a broken process keeps no core busy."""

STABLE_S: Final = 60.0
"""After so long a life the next pause is the shortest again."""

StartProcess = Callable[[], Coroutine[Any, Any, ChildProcess]]
Sleep = Callable[[float], Coroutine[Any, Any, None]]


def serve(  # noqa: PLR0913 - each is an option
    *,
    brokers: Annotated[
        int, typer.Option(min=1, max=BROKERS_MAX, help="How many: about one a core.")
    ] = 1,
    port: Annotated[
        int, typer.Option(help=f"The first broker's; the next one's is {PORT_STEP} higher.")
    ] = PORT,
    namesrv_port: Annotated[int, typer.Option(help="The name server's.")] = NAMESRV_PORT,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="A directory for each broker in it.")
    ] = Path("roquet-data"),
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A broker.conf for all; names and places are ours."),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="The host that clients are told.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="The interface that all of them listen on.")
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a name server and brokers, a process each. One that dies is started again."""
    runtime.log_to_stderr(verbose=verbose)
    if port < 1 or namesrv_port < 1:
        raise UsageError("--port and --namesrv-port: fixed ones, so that processes can come back")
    if port + PORT_STEP * (brokers - 1) > 65_535:
        raise UsageError(f"--port {port}: {brokers} brokers need ports up to 65535")
    if advertise is not None and ":" in advertise.strip("[]"):
        raise UsageError(f"--advertise {advertise!r}: a host alone, each broker has its own port")
    plan = ServerProcesses(
        brokers=brokers,
        port=port,
        namesrv_port=namesrv_port,
        data=data,
        config=config,
        advertise=advertise,
        host=host,
    )
    runtime.run(run_servers(plan))


class ServerProcesses:
    """The processes of `roquet serve`, and how each is started."""

    def __init__(
        self,
        *,
        brokers: int,
        port: int,
        namesrv_port: int,
        data: Path,
        config: Path | None = None,
        advertise: str | None = None,
        host: str | None = None,
    ) -> None:
        self.names = [f"broker-{letter}" for letter in string.ascii_lowercase[:brokers]]
        self._port = port
        self._namesrv_port = namesrv_port
        self._data = data
        self._config = config
        self._advertise = advertise
        self._host = host

    def make_folders(self) -> None:
        """Create a directory for each broker and one for the logs."""
        for name in ("logs", "namesrv", *self.names):
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
        return await self._start("namesrv", [*arguments, "--data", str(self._data / "namesrv")])

    async def broker(self, name: str) -> ChildProcess:
        """Start a broker; returns when it is ready."""
        port = self._port + PORT_STEP * self.names.index(name)
        arguments = ["broker", "--name", name, "--port", str(port)]
        if self._host is not None:
            arguments += ["--host", self._host]
        arguments += ["--data", str(self._data / name)]
        arguments += ["--namesrv", self._names]
        if self._config is not None:
            arguments += ["--config", str(self._config)]
        if self._advertise is not None:
            arguments += ["--advertise", f"{self._advertise}:{port}"]
        return await self._start(name, arguments)

    async def _start(self, name: str, arguments: Sequence[str]) -> ChildProcess:
        child = await ChildProcess.start(name, "roquet", *arguments, logs=self._data / "logs")
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
        brokers: list[SupervisedProcess] = []
        stack.push_async_callback(_stop_all, brokers)
        for name in plan.names:
            if stop.is_set():
                return
            process = SupervisedProcess(await plan.broker(name), _starter(plan, name))
            brokers.append(process)
            output.echo(f"{name:12} {process.child.address}")
        tasks = [asyncio.create_task(process.supervise()) for process in (names, *brokers)]
        stack.push_async_callback(_cancel, tasks)
        output.echo("ready (Ctrl-C stops)")
        await stop.wait()


def _starter(plan: ServerProcesses, name: str) -> StartProcess:
    return lambda: plan.broker(name)


async def _stop_all(processes: Sequence[SupervisedProcess]) -> None:
    await asyncio.gather(*(process.stop() for process in processes))


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
