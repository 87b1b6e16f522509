"""roquet serve: name server, controllers, brokers and replicas on one machine, kept running.

start   name server ─▶ etcd ─▶ controllers ─▶ broker-a ─▶ its replicas ─▶ broker-b ─▶ … ─▶ proxy
stop    proxy ─▶ masters, all at once ─▶ replicas, all at once ─▶ controllers ─▶ etcd ─▶ name server

A master ends before its replicas: senders that wait for a replica are answered until then. With
controllers any of them may be the master: all are stopped at once.
"""

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from roquet.broker.settings import config_file
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.value_formats import PORT
from roquet.cli.command_options import option
from roquet.cli.process import runtime
from roquet.cli.process.child_processes import (
    SupervisedProcess,
    start_unless_stopped,
    stop_all,
    supervision,
)
from roquet.cli.servers.proxy import check_installed
from roquet.cli.servers.serve_plan import (
    BROKERS_MAX,
    CONTROLLERS_MAX,
    IN_SYNC,
    PORT_STEP,
    REPLICA_PORT_STEP,
    REPLICAS_MAX,
    BrokerProcess,
    broker_processes,
    controller_plan,
)
from roquet.cli.servers.server_options import (
    ACCESS_FILE,
    ALL_INTERFACES,
    MetricsOptions,
    metrics_address,
    settings_file,
)
from roquet.cli.servers.server_processes import ServerProcesses, client_config
from roquet.cli.servers.supervisor_metrics import SupervisorMetrics
from roquet.cli.terminal import output
from roquet.cli.terminal.output import table
from roquet.controller.config import PORT as CONTROLLER_PORT
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import RoquetError, UsageError
from roquet.model.topic import MASTER_ID
from roquet.namesrv.config import PORT as NAMESRV_PORT
from roquet.net.address import check_port, is_specific, routable_address
from roquet.observe.exporter import ExporterAddress
from roquet.rules.election.handover import stand_ins

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient
    from roquet.admin.controllers import GroupStatus, ReplicaMember

FORMATION_TIMEOUT_S: Final = 30
"""Longest wait: a replica whose log is damaged must not keep others from being shown."""

POLL_S: Final = 0.1
"""Between two questions to the controller."""


class Formation(NamedTuple):
    """Groups after a start, as far as their controllers know them."""

    members: "Mapping[str, ReplicaMember]"
    """Brokers by address."""
    unformed: Sequence[str]
    """Names that took no messages in time; none after a stop signal."""


async def formed(
    admin: "AdminClient",
    names: Collection[str],
    controllers: Sequence[str],
    needed: int,
    stop: asyncio.Event,
) -> Formation:
    """Wait until each name has a master with so many logs in sync, or until a stop signal."""
    members: dict[str, ReplicaMember] = {}
    unformed = list(names)
    with suppress(TimeoutError):
        async with asyncio.timeout(FORMATION_TIMEOUT_S):
            while unformed and not stop.is_set():
                for name in tuple(unformed):
                    group = await _group_status(admin, name, controllers)
                    members |= {one.address: one for one in group.members} if group else {}
                    if group is not None and await _takes_messages(admin, group, needed):
                        unformed.remove(name)
                if unformed:
                    await asyncio.sleep(POLL_S)
    return Formation(members, [] if stop.is_set() else unformed)


async def _group_status(
    admin: "AdminClient", name: str, controllers: Sequence[str]
) -> "GroupStatus | None":
    from roquet.admin import controllers as groups

    try:
        return await groups.group(admin, name, controllers)
    except RoquetError:  # nobody leads yet, or nobody has registered
        return None


async def _takes_messages(admin: "AdminClient", group: "GroupStatus", needed: int) -> bool:
    """Whether a master leads that has enough members in sync, and that name servers know."""
    master = group.master
    if master is None or len(stand_ins(group.standings, master.broker_id)) + 1 < needed:
        return False
    try:
        return (await admin.leaders()).get(group.broker) == master.address
    except RoquetError:
        return False


class ServeOptions(MetricsOptions):
    """Options of `roquet serve`."""

    brokers: int = option("How many: about one a core.", default=1, min=1, max=BROKERS_MAX)
    replicas: int = option(
        "Of each broker, each with the whole log.", default=0, min=0, max=REPLICAS_MAX
    )
    in_sync: int | None = option(
        "Logs that have a message when its sender is answered, the master's included;"
        f" 1 waits for no replica. {IN_SYNC} if there are replicas.",
        min=1,
    )
    controllers: int = option(
        "They elect another master when one is lost; 2 and 3 share an etcd, from PATH.",
        default=0,
        min=0,
        max=CONTROLLERS_MAX,
    )
    port: int = option(
        f"The first broker's; the next one's is {PORT_STEP} higher,"
        f" a replica's {REPLICA_PORT_STEP:,} higher.",
        default=PORT,
    )
    namesrv_port: int = option("The name server's.", default=NAMESRV_PORT)
    controller_port: int = option(
        "The first controller's; the next one's is 10 higher.", default=CONTROLLER_PORT
    )
    data: Path = option(
        "A directory for each process in it.", default=Path("roquet-data"), metavar="DIR"
    )
    config: Path | None = settings_file(
        "A broker.conf for all that have none in their directory; names, ports, directories and"
        " roles are ours."
    )
    grpc_port: int | None = option("Serve RocketMQ 5's clients there, too.", metavar="N", min=1)
    advertise: str | None = option("The host that clients are told.", metavar="HOST")
    host: str | None = option("The interface that all of them listen on.")
    access_file: Path | None = ACCESS_FILE


def serve(options: ServeOptions) -> None:
    """Start a name server, brokers and replicas, a process each. One that dies is started again.

    Without controllers roles are fixed: a replica never becomes the master. With them another
    broker of its name takes over from a lost master. With slaveReadEnable=true replicas serve
    readers.
    """
    host, advertise = options.host, options.advertise
    if options.port < 1 or options.namesrv_port < 1:
        raise UsageError("--port and --namesrv-port: fixed ones, so that processes can come back")
    if advertise is not None and ":" in advertise.strip("[]"):
        raise UsageError(f"--advertise {advertise!r}: a host alone, each broker has its own port")
    if options.grpc_port is not None:
        check_installed()
        check_port(options.grpc_port)
    named = host if host is not None and is_specific(host) else routable_address()
    controllers = controller_plan(
        options.controllers, options.replicas, options.controller_port, named
    )
    obeyed = controllers.addresses if controllers else ()
    brokers = broker_processes(
        options.brokers, options.replicas, options.in_sync, options.port, obeyed
    )
    shared = _shared_settings(options.config, brokers[0], options.replicas)
    page = _page(options.metrics, shared)
    plan = ServerProcesses(
        brokers=brokers,
        controllers=controllers,
        namesrv_port=options.namesrv_port,
        data=options.data,
        config=options.config,
        advertise=advertise,
        host=host,
        grpc_port=options.grpc_port,
        metrics_port=page.port if page is not None else None,
        access_file=options.access_file,
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
    if metrics is not None:
        return metrics_address(metrics)
    if shared.metrics_exporter is not MetricsExporterType.PROM:
        return None
    return ExporterAddress(shared.metrics_host, shared.metrics_port)


def _metrics(
    plan: ServerProcesses, page: ExporterAddress | None, host: str | None
) -> SupervisorMetrics | None:
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
            if stop.is_set() or (child := await start_unless_stopped(start, stop)) is None:
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
            starter = partial(plan.broker, broker)
            if stop.is_set() or (child := await start_unless_stopped(starter, stop)) is None:
                return
            process = SupervisedProcess(child, starter)
            may_lead = broker.broker_id == MASTER_ID or plan.controllers is not None
            (masters if may_lead else replicas).append(process)
            supervise(process)
        if plan.grpc_port is not None:
            if (child := await start_unless_stopped(plan.proxy, stop)) is None:
                return
            process = SupervisedProcess(child, plan.proxy)
            stack.push_async_callback(process.stop)
            supervise(process)
            output.echo(f"{'gRPC':<11}  {process.child.address}")
        addresses = [process.child.address for process in (*masters, *replicas)]
        formation = await _formation(plan, stop)
        output.console().print(_brokers_table(plan, addresses, formation.members))
        _warn_of_unformed(plan, formation)
        output.echo("ready (Ctrl-C stops)")
        await runtime.serve_until(stop)


def _brokers_table(
    plan: ServerProcesses, addresses: Sequence[str], elected: "Mapping[str, ReplicaMember]"
) -> "output.Table":
    by_port = {address.rpartition(":")[2]: address for address in addresses}
    rows = []
    for broker in plan.brokers:
        address = by_port[str(broker.port)]
        role, number = broker.role or "master", str(broker.broker_id)
        if plan.controllers is not None:
            member = elected.get(address)
            role = "?" if member is None else "master" if member.is_master else "replica"
            number = "?" if member is None else str(member.broker_id)
        rows.append((broker.broker, number, role, address, str(plan.directory(broker))))
    return table(("broker", "id", "role", "address", "directory"), rows)


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
    for name in formation.unformed:
        members = [broker for broker in plan.brokers if broker.broker == name]
        logs = ", ".join(str(plan.logs / f"{broker.name}.log") for broker in members)
        output.echo(
            f"{name} takes no messages yet: no master that has {members[0].in_sync} logs in sync"
            f" leads; see {logs}",
            err=True,
        )
