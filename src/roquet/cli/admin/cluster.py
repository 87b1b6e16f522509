"""roquet cluster: brokers, their status, and how far replicas are; elect and retire."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from roquet.admin import brokers
from roquet.admin.brokers import BrokerStatus
from roquet.admin.client import AdminClient
from roquet.admin.replicas import ReplicaStatus, problems
from roquet.admin.replicas import statuses as replica_statuses
from roquet.cli.admin import handover
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.process import runtime
from roquet.cli.terminal import arguments, output
from roquet.cli.terminal.output import table
from roquet.model.errors import RoquetError, UsageError
from roquet.model.settings import suggest

if TYPE_CHECKING:
    from rich.console import RenderableType

app: Final = CommandGroup("cluster", "Brokers, their status and their roles.")


@app.command()
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


@app.command()
async def replicas(
    admin: AdminClient,
    as_json: bool,
    broker: str | None = argument(
        "Show those of this one.", autocompletion=arguments.complete_brokers
    ),
    watch: bool = option("Show it anew every second, until Ctrl-C.", "-w"),
) -> Result | None:
    """Show masters and replicas: who is in sync, and how far the others are behind.

    Exit code 1 when a master is away, a replica does not answer, is silent or is not in sync, fewer
    logs are in sync than messages need, a controller misses a member, or no controller answers.
    """
    if watch:
        await watch_replicas(admin, broker, as_json=as_json)
        return None
    return await show_replicas(admin, broker)


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


WATCH_S: Final = 1.0
"""Between two looks of --watch."""


async def show_replicas(admin: AdminClient, broker: str | None) -> Result:
    """The replicas now; a failure if something is amiss."""
    shown = await replica_statuses(admin, broker)
    rows = (replica_table(shown, now_ms) for now_ms in [admin.clock.now_ms()])
    return Result(json=shown, text=rows, faults=problems(shown))


async def watch_replicas(admin: AdminClient, broker: str | None, *, as_json: bool) -> None:
    """Print the replicas every second until a stop signal; in place on a terminal."""
    from rich.live import Live

    console = output.console()
    looks = _looks(admin, broker, runtime.stop_signal())
    if as_json:
        async for look in looks:
            output.echo_json(look if isinstance(look, list) else [{"fault": look}])
    elif not console.is_terminal:
        async for look in looks:
            console.print(_picture(look, admin.clock.now_ms()))
    else:
        with Live(console=console, auto_refresh=False) as live:
            async for look in looks:
                live.update(_picture(look, admin.clock.now_ms()), refresh=True)


async def _looks(
    admin: AdminClient, broker: str | None, stop: asyncio.Event
) -> AsyncIterator[list[ReplicaStatus] | str]:
    """The replicas every second, or why nothing is known; errors of the first look are raised."""
    yield await replica_statuses(admin, broker)
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_S):
                await stop.wait()
                return
        try:
            yield await replica_statuses(admin, broker)
        except RoquetError as error:
            yield str(error)


def _picture(look: list[ReplicaStatus] | str, now_ms: int) -> "RenderableType":
    """A look as a table, and lines of what is amiss below it."""
    from rich.console import Group

    if isinstance(look, str):
        return output.styled_text(look, "red")
    lines = (output.styled_text(line, "red") for line in problems(look))
    return Group(replica_table(look, now_ms), *lines)


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
