"""roquet cluster: brokers, their status, and how far replicas are; elect and retire."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.admin import handover
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.output import table
from roquet.model.errors import UsageError
from roquet.model.settings import suggest

if TYPE_CHECKING:
    from roquet.admin.brokers import BrokerStatus
    from roquet.admin.client import AdminClient

app: Final = CommandGroup("cluster", "Brokers, their status and their roles.")


@app.command()
async def show(
    admin: "AdminClient",
    broker: Annotated[
        str | None,
        typer.Argument(help="Show everything about this one.", autocompletion=completion.brokers),
    ] = None,
) -> Result:
    """Show all brokers in a line each, or one of them in full."""
    from roquet.admin import brokers

    found = await brokers.statuses(admin)
    shown = [each for each in found if broker in {None, each.broker}]
    if not shown:
        hint = suggest(broker or "", [each.broker for each in found])
        raise UsageError(f"there is no broker {broker!r}{hint}")
    return Result(
        json=shown,
        text=_lines(shown) if broker is None else _everything(shown),
        hints=_set_aside_hints(shown) if broker is None else (),
        faults=[
            f"{each.broker} {each.broker_id} at {each.address}: {each.fault}"
            for each in shown
            if each.fault is not None
        ],
    )


@app.command()
async def replicas(
    admin: "AdminClient",
    as_json: bool,
    broker: Annotated[
        str | None,
        typer.Argument(help="Show those of this one.", autocompletion=completion.brokers),
    ] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew every second, until Ctrl-C.")
    ] = False,
) -> Result | None:
    """Show masters and replicas: who is in sync, and how far the others are behind.

    Exit code 1 when a master is away, a replica does not answer, is silent or is not in sync, fewer
    logs are in sync than messages need, a controller misses a member, or no controller answers.
    """
    from roquet.cli.admin import replica_view

    if watch:
        await replica_view.watch(admin, broker, as_json=as_json)
        return None
    return await replica_view.show(admin, broker)


app.command()(handover.elect)
app.command()(handover.retire)


def _everything(brokers: "Sequence[BrokerStatus]") -> Iterator[str]:
    for broker in brokers:
        yield f"{broker.cluster} {broker.broker} {broker.broker_id} at {broker.address}"
        for name, value in broker.info.items():
            yield f"  {name} = {value}"


def _lines(brokers: "Sequence[BrokerStatus]") -> Iterator[Any]:
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
    yield shown


def _set_aside_hints(brokers: "Sequence[BrokerStatus]") -> Iterator[str]:
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
