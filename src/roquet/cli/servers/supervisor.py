"""roquet serve: name server, controllers, brokers and replicas on one machine, kept running.

start   name server ─▶ etcd ─▶ controllers ─▶ broker-a ─▶ its replicas ─▶ broker-b ─▶ …
stop    masters, all at once ─▶ replicas, all at once ─▶ controllers ─▶ etcd ─▶ name server

A master ends before its replicas: senders that wait for a replica are answered until then. With
controllers any of them may be the master: all are stopped at once.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roquet.broker.settings import config_file
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.value_formats import PORT
from roquet.cli.process import runtime, systemd
from roquet.cli.servers.controller_plan import CONTROLLERS_MAX, controller_plan
from roquet.cli.servers.formation import Formation, formed
from roquet.cli.servers.serve_plan import (
    BROKERS_MAX,
    IN_SYNC,
    PORT_STEP,
    REPLICA_PORT_STEP,
    REPLICAS_MAX,
    BrokerProcess,
    broker_processes,
)
from roquet.cli.servers.server_options import (
    ALL_INTERFACES,
    AccessFileOption,
    MetricsOption,
    VerboseOption,
    metrics_address,
    settings_file,
)
from roquet.cli.servers.server_processes import ServerProcesses
from roquet.cli.servers.shared_security import client_config
from roquet.cli.servers.supervised_process import (
    StartProcess,
    SupervisedProcess,
    start_unless_stopped,
    stop_all,
    supervision,
)
from roquet.cli.servers.supervisor_metrics import SupervisorMetrics
from roquet.cli.terminal import output
from roquet.cli.terminal.output import table
from roquet.controller.config import PORT as CONTROLLER_PORT
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import UsageError
from roquet.model.topic import MASTER_ID
from roquet.namesrv.config import PORT as NAMESRV_PORT
from roquet.net.address import is_specific, routable_address
from roquet.observe.exporter import ExporterAddress

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.admin.controllers import ReplicaMember

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
ControllersOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=CONTROLLERS_MAX,
        help="They elect another master when one is lost; 2 and 3 share an etcd, from PATH.",
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        help=f"The first broker's; the next one's is {PORT_STEP} higher,"
        f" a replica's {REPLICA_PORT_STEP:,} higher."
    ),
]
ConfigOption = Annotated[
    Path | None,
    settings_file(
        "A broker.conf for all that have none in their directory; names, ports, directories and"
        " roles are ours."
    ),
]


def serve(  # noqa: PLR0913 - each is an option
    *,
    brokers: Annotated[
        int, typer.Option(min=1, max=BROKERS_MAX, help="How many: about one a core.")
    ] = 1,
    replicas: ReplicasOption = 0,
    in_sync: InSyncOption = None,
    controllers: ControllersOption = 0,
    port: PortOption = PORT,
    namesrv_port: Annotated[int, typer.Option(help="The name server's.")] = NAMESRV_PORT,
    controller_port: Annotated[
        int, typer.Option(help="The first controller's; the next one's is 10 higher.")
    ] = CONTROLLER_PORT,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="A directory for each process in it.")
    ] = Path("roquet-data"),
    config: ConfigOption = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="The host that clients are told.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="The interface that all of them listen on.")
    ] = None,
    access_file: AccessFileOption = None,
    metrics: MetricsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a name server, brokers and replicas, a process each. One that dies is started again.

    Without controllers roles are fixed: a replica never becomes the master. With them another
    broker of its name takes over from a lost master. With slaveReadEnable=true replicas serve
    readers.
    """
    runtime.log_to_stderr(verbose=verbose)
    if port < 1 or namesrv_port < 1:
        raise UsageError("--port and --namesrv-port: fixed ones, so that processes can come back")
    if advertise is not None and ":" in advertise.strip("[]"):
        raise UsageError(f"--advertise {advertise!r}: a host alone, each broker has its own port")
    told = host if host is not None and is_specific(host) else routable_address()
    plan_of_controllers = controller_plan(controllers, replicas, controller_port, told)
    obeyed = plan_of_controllers.addresses if plan_of_controllers else ()
    processes = broker_processes(brokers, replicas, in_sync, port, obeyed)
    shared = _shared_settings(config, processes[0], replicas)
    page = _page(metrics, shared)
    plan = ServerProcesses(
        brokers=processes,
        controllers=plan_of_controllers,
        namesrv_port=namesrv_port,
        data=data,
        config=config,
        advertise=advertise,
        host=host,
        metrics_port=page.port if page is not None else None,
        access_file=access_file,
        shared=shared,
    )
    runtime.run(run_servers(plan, _metrics(plan, page, host)))


def _shared_settings(config: Path | None, broker: BrokerProcess, replicas: int) -> BrokerConfig:
    """The settings for all brokers, of the file and the environment. Raises ConfigError."""
    environ = {**os.environ, **broker.environ}  # the file alone may be no broker's
    if config is None:
        return config_file.read("", "", environ)
    shared = config_file.load(config, environ)
    if replicas and shared.ha_master is not None:
        raise UsageError(
            f"{config}: haMasterAddress names one master for all replicas: leave it out, each"
            " finds its own by the name server"
        )
    return shared


def _page(metrics: str | None, shared: BrokerConfig) -> ExporterAddress | None:
    """Where the page of all processes is, by the option or the settings for all brokers."""
    if metrics is not None:
        return metrics_address(metrics)
    if shared.metrics_exporter is not MetricsExporterType.PROM:
        return None
    return ExporterAddress(shared.metrics_host, shared.metrics_port)


def _metrics(
    plan: ServerProcesses, page: ExporterAddress | None, host: str | None
) -> SupervisorMetrics | None:
    """The page of all processes; None: there is none."""
    if page is None:
        return None
    address = ExporterAddress(page.host or host or ALL_INTERFACES, page.port)
    return SupervisorMetrics(address, plan.metrics_pages)


async def run_servers(plan: ServerProcesses, metrics: SupervisorMetrics | None = None) -> None:
    """Start the servers one after another, and supervise them until a stop signal comes."""
    stop = runtime.stop_signal()
    plan.make_folders()
    async with AsyncExitStack() as stack, supervision() as supervise:
        if metrics is not None:
            await stack.enter_async_context(metrics.server)
        for title, start in plan.support():
            if stop.is_set():
                return
            child = await start_unless_stopped(start, stop)
            if child is None:
                return
            process = SupervisedProcess(child, start)
            stack.push_async_callback(process.stop)
            supervise(process)
            output.echo(f"{title:<11}  {process.child.address}")
        masters: list[SupervisedProcess] = []
        replicas: list[SupervisedProcess] = []
        stack.push_async_callback(stop_all, replicas)
        stack.push_async_callback(stop_all, masters)
        for broker in plan.brokers:
            if stop.is_set():
                return
            starter = _starter(plan, broker)
            child = await start_unless_stopped(starter, stop)
            if child is None:
                return
            process = SupervisedProcess(child, starter)
            may_lead = broker.broker_id == MASTER_ID or plan.controllers is not None
            (masters if may_lead else replicas).append(process)
            supervise(process)
        addresses = [process.child.address for process in (*masters, *replicas)]
        formation = await _formation(plan, stop)
        output.console().print(_brokers_table(plan, addresses, formation.members))
        _warn_of_unformed(plan, formation)
        output.echo("ready (Ctrl-C stops)")
        await systemd.serve_until(stop)


def _brokers_table(
    plan: ServerProcesses, addresses: Sequence[str], elected: "Mapping[str, ReplicaMember]"
) -> "Table":
    """A row for each broker; with controllers these say who it is."""
    rows = table("broker", "id", "role", "address", "directory")
    by_port = {address.rpartition(":")[2]: address for address in addresses}
    for broker in plan.brokers:
        address = by_port[str(broker.port)]
        role, number = broker.role or "master", str(broker.broker_id)
        if plan.controllers is not None:
            member = elected.get(address)
            role = "?" if member is None else "master" if member.is_master else "replica"
            number = "?" if member is None else str(member.broker_id)
        rows.add_row(broker.broker, number, role, address, str(plan.directory(broker)))
    return rows


async def _formation(plan: ServerProcesses, stop: asyncio.Event) -> Formation:
    """Wait until controllers have had masters elected; nothing to wait for without them."""
    from roquet.admin.client import AdminClient

    if plan.controllers is None:
        return Formation({}, ())
    names = dict.fromkeys(broker.broker for broker in plan.brokers)
    needed = plan.brokers[0].in_sync
    async with AdminClient(plan.namesrv_address, client_config(plan.shared)) as admin:
        return await formed(admin, names, plan.controllers.addresses, needed, stop)


def _warn_of_unformed(plan: ServerProcesses, formation: Formation) -> None:
    """Print a line for each name that takes no messages yet."""
    for name in formation.unformed:
        members = [broker for broker in plan.brokers if broker.broker == name]
        logs = ", ".join(str(plan.logs / f"{broker.name}.log") for broker in members)
        output.echo(
            f"{name} takes no messages yet: no master that has {members[0].in_sync} logs in sync"
            f" leads; see {logs}",
            err=True,
        )


def _starter(plan: ServerProcesses, broker: BrokerProcess) -> StartProcess:
    return lambda: plan.broker(broker)
