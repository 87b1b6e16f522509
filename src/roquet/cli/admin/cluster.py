"""roquet cluster: brokers, their status and health, and how far replicas are; elect and retire."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from roquet.admin import brokers, cluster_health
from roquet.admin.brokers import BrokerStatus
from roquet.admin.client import AdminClient
from roquet.admin.replicas import ReplicaStatus, problems
from roquet.admin.replicas import statuses as replica_statuses
from roquet.cli.admin import handover
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.terminal import arguments, output
from roquet.cli.terminal.output import table
from roquet.model.errors import UsageError
from roquet.model.settings import suggest

app: Final = CommandGroup("cluster", "Brokers, their status and their roles.")


@app.command(is_watchable=True)
async def show(
    admin: AdminClient,
    broker: str | None = argument(
        "Show everything about this one.", autocompletion=arguments.complete_brokers
    ),
) -> Result:
    """Show all brokers in a line each, or one of them in full."""
    found = await brokers.statuses(admin)
    shown = [each for each in found if broker in {None, each.broker}]
    if not shown:
        hint = suggest(broker or "", [each.broker for each in found])
        raise UsageError(f"there is no broker {broker!r}{hint}")
    return Result(
        json=shown,
        text=_status_lines(shown) if broker is None else _everything(shown),
        hints=_set_aside_hints(shown) if broker is None else (),
        faults=[
            f"{each.broker} {each.broker_id} at {each.address}: {each.fault}"
            for each in shown
            if each.fault is not None
        ],
    )


@app.command(is_watchable=True)
async def replicas(
    admin: AdminClient,
    broker: str | None = argument(
        "Show those of this one.", autocompletion=arguments.complete_brokers
    ),
) -> Result:
    """Show masters and replicas: who is in sync, and how far the others are behind.

    Exit code 1 when a master is away, a replica does not answer, is silent or is not in sync, fewer
    logs are in sync than messages need, a controller misses a member, or no controller answers.
    """
    shown = await replica_statuses(admin, broker)
    rows = (replica_table(shown, now_ms) for now_ms in [admin.clock.now_ms()])
    return Result(json=shown, text=rows, faults=problems(shown))


@app.command()
async def health(
    admin: AdminClient,
    expected: int = option(
        "How many brokers with a master there have to be.", "--brokers", default=1, min=1
    ),
) -> Result:
    """Say in one line whether the cluster is healthy, for scripts and probes.

    Exit code 1, with what is wrong in the line: a name server is silent or lacks a broker, a master
    is missing, a broker takes no messages or its disk is full, a replica is not in sync, or a topic
    has no route. A broker that the name servers have forgotten is missed only with --brokers.
    """
    facts = await cluster_health.ask(admin)
    wrong = cluster_health.problems(facts, expected)
    counts = {
        "name_servers": len(facts.name_servers),
        "brokers": facts.masters,
        "replicas": sum(not each.is_master for each in facts.replicas),
        "topics": len(facts.routed_topics),
    }
    seen = ", ".join(
        output.quantity(n, word.rstrip("s").replace("_", " ")) for word, n in counts.items()
    )
    return Result(
        json=[{"healthy": not wrong, "problems": wrong, **counts}],
        text=[f"not healthy: {'; '.join(wrong)}" if wrong else f"healthy: {seen}"],
        is_failed=bool(wrong),
    )


app.command()(handover.elect)
app.command()(handover.retire)


def _everything(brokers: Sequence[BrokerStatus]) -> Iterator[str]:
    for broker in brokers:
        yield f"{broker.cluster} {broker.broker} {broker.broker_id} at {broker.address}"
        for name, value in broker.info.items():
            yield f"  {name} = {value}"


def _status_lines(brokers: Sequence[BrokerStatus]) -> Iterator[Any]:
    rows = (
        (
            one.cluster,
            one.broker,
            str(one.broker_id),
            one.address,
            one.software,
            ten_second_rate(one.puts_per_s),
            ten_second_rate(one.gets_per_s),
        )
        for one in brokers
    )
    columns = ("cluster", "broker", "id", "address", "software", "in/s", "out/s")
    yield table(columns, rows, numbers=5)


def _set_aside_hints(brokers: Sequence[BrokerStatus]) -> Iterator[str]:
    for broker in brokers:
        if broker.set_aside:
            messages = output.quantity(broker.set_aside, "message")
            yield (
                f"{broker.broker} has set {messages} aside that it"
                " cannot handle: see `roquet set-aside ls`"
            )


def ten_second_rate(rates: str) -> str:
    """The rate per second of the last ten seconds, the first of three rates; "?" if unreadable."""
    try:
        return f"{float(rates.split(maxsplit=1)[0]):,.1f}"
    except (IndexError, ValueError):
        return "?"


def replica_table(shown: Sequence[ReplicaStatus], now_ms: int) -> "output.Table":
    """A line for each broker; the epoch has a column where a controller gives one."""
    has_epochs = any(each.epoch is not None for each in shown)
    epoch = ("epoch",) if has_epochs else ()
    lag = (*epoch, "lag bytes", "lag", "last contact")
    rows = (_row(one, now_ms, has_epochs=has_epochs) for one in shown)
    return table(("broker", "id", "role", "address", "in sync", *lag), rows, numbers=5)


def _row(each: ReplicaStatus, now_ms: int, *, has_epochs: bool) -> Iterator[object]:
    yield from (each.broker, each.shown_id, "master" if each.is_master else "replica")
    yield from (each.address, _in_sync(each))
    if has_epochs:
        yield each.epoch
    yield from (each.lag_bytes, _seconds(each.lag_ms), _ago(each.last_contact_ms, now_ms))


def _in_sync(each: ReplicaStatus) -> str:
    """In-sync state by the master, and what speaks against it, as in a frozen replica."""
    said = {True: "yes", False: "no", None: "-"}[each.is_in_sync]
    if each.silent_s is not None:
        return f"{said}, silent for {each.silent_s} s"
    if each.is_alive is False:
        return f"{said}, away"
    return f"{said}, no answer" if each.fault is not None else said


def _seconds(millis: int | None) -> str:
    return "-" if millis is None else f"{millis / 1000:,.1f} s"


def _ago(time_ms: int | None, now_ms: int) -> str:
    return "-" if time_ms is None else f"{_seconds(max(now_ms - time_ms, 0))} ago"
