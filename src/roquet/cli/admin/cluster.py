"""roquet cluster show: brokers, and how they do."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

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
    help="Brokers, and how they do.",
)


@app.command()
def show(
    broker: Annotated[
        str | None,
        typer.Argument(help="All that this one tells.", autocompletion=completion.brokers),
    ] = None,
    *,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show all brokers in a line each, or one of them in full."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_show(namesrv, broker, json=json))


async def _show(namesrv: str | None, broker: str | None, *, json: bool) -> None:
    from roquet.admin import brokers
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        found = await brokers.statuses(admin)
    if broker is not None:
        hint = suggest(broker, [one.broker for one in found])
        found = [one for one in found if one.broker == broker]
        if not found:
            raise UsageError(f"there is no broker {broker!r}{hint}")
    if json:
        output.echo_json(found)
    elif broker is None:
        output.console().print(_lines(found))
        _warn_of_set_aside(found)
    else:
        _print_whole(found)
    silent = [one for one in found if one.fault is not None]
    for one in silent:
        output.echo(f"{one.broker} {one.broker_id} at {one.address}: {one.fault}", err=True)
    if silent:
        sys.exit(FAILED)


def _print_whole(found: "list[BrokerStatus]") -> None:
    for one in found:
        output.echo(f"{one.cluster} {one.broker} {one.broker_id} at {one.address}")
        for name, value in one.info.items():
            output.echo(f"  {name} = {value}")


def _lines(found: "list[BrokerStatus]") -> object:
    columns = ("cluster", "broker", "id", "address", "software", "in/s", "out/s")
    shown = table(*columns, numbers=5)
    for one in found:
        shown.add_row(
            one.cluster,
            one.broker,
            str(one.broker_id),
            one.address,
            one.software,
            _last_10_s(one.puts_per_s),
            _last_10_s(one.gets_per_s),
        )
    return shown


def _warn_of_set_aside(found: "list[BrokerStatus]") -> None:
    for one in found:
        if one.set_aside:
            output.echo(
                f"{one.broker} has set {output.quantity(one.set_aside, 'message')} aside that it"
                " cannot handle: see `roquet set-aside ls`",
                err=True,
            )


def _last_10_s(rates: str) -> str:
    """Of the last ten seconds: the first of three."""
    try:
        return f"{float(rates.split(maxsplit=1)[0]):,.1f}"
    except (IndexError, ValueError):
        return "?"
