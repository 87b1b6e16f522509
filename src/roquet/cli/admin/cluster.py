"""roquet cluster: brokers, their status, and how far replicas are; elect and retire."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.admin import handover
from roquet.cli.process import runtime
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import JsonOption, table
from roquet.model.errors import UsageError
from roquet.model.settings import suggest

if TYPE_CHECKING:
    from roquet.admin.brokers import BrokerStatus

app: Final = typer.Typer(
    name="cluster",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Brokers, their status and their roles.",
)


@app.command()
def show(
    broker: Annotated[
        str | None,
        typer.Argument(help="Show everything about this one.", autocompletion=completion.brokers),
    ] = None,
    *,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show all brokers in a line each, or one of them in full."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_show(namesrv, broker, json=json))


@app.command()
def replicas(
    broker: Annotated[
        str | None,
        typer.Argument(help="Show those of this one.", autocompletion=completion.brokers),
    ] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew every second, until Ctrl-C.")
    ] = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show masters and replicas: who is in sync, and how far the others are behind.

    Exit code 1 when a master is away, a replica does not answer, is silent or is not in sync, fewer
    logs are in sync than messages need, a controller misses a member, or no controller answers.
    """
    from roquet.cli.admin import replica_view

    runtime.log_to_stderr(verbose=False)
    servers = namesrv_addresses(namesrv)
    show_replicas = replica_view.watch if watch else replica_view.show
    runtime.run(show_replicas(servers, broker, json=json))


app.command()(handover.elect)
app.command()(handover.retire)


async def _show(namesrv: str | None, broker: str | None, *, json: bool) -> None:
    from roquet.admin import brokers
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        shown = await brokers.statuses(admin)
    if broker is not None:
        hint = suggest(broker, [each.broker for each in shown])
        shown = [each for each in shown if each.broker == broker]
        if not shown:
            raise UsageError(f"there is no broker {broker!r}{hint}")
    if json:
        output.echo_json(shown)
    elif broker is None:
        output.console().print(_lines(shown))
        _warn_of_set_aside(shown)
    else:
        _print_whole(shown)
    silent = [each for each in shown if each.fault is not None]
    for each in silent:
        output.echo(f"{each.broker} {each.broker_id} at {each.address}: {each.fault}", err=True)
    if silent:
        sys.exit(FAILED)


def _print_whole(brokers: "list[BrokerStatus]") -> None:
    for broker in brokers:
        output.echo(f"{broker.cluster} {broker.broker} {broker.broker_id} at {broker.address}")
        for name, value in broker.info.items():
            output.echo(f"  {name} = {value}")


def _lines(brokers: "list[BrokerStatus]") -> object:
    columns = ("cluster", "broker", "id", "address", "software", "in/s", "out/s")
    shown = table(*columns, numbers=5)
    for broker in brokers:
        shown.add_row(
            broker.cluster,
            broker.broker,
            str(broker.broker_id),
            broker.address,
            broker.software,
            ten_second_rate(broker.puts_per_s),
            ten_second_rate(broker.gets_per_s),
        )
    return shown


def _warn_of_set_aside(brokers: "list[BrokerStatus]") -> None:
    for broker in brokers:
        if broker.set_aside:
            messages = output.quantity(broker.set_aside, "message")
            output.echo(
                f"{broker.broker} has set {messages} aside that it"
                " cannot handle: see `roquet set-aside ls`",
                err=True,
            )


def ten_second_rate(rates: str) -> str:
    """The rate per second of the last ten seconds, the first of three rates; "?" if unreadable."""
    try:
        return f"{float(rates.split(maxsplit=1)[0]):,.1f}"
    except (IndexError, ValueError):
        return "?"
