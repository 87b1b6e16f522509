"""roquet broker: starts one; roquet broker settings, set: what a running one goes by."""

from typing import Annotated, Final

import typer

from roquet.cli import output, running, serve
from roquet.cli.messages import Namesrv, servers
from roquet.cli.output import DRY, DryRun, Json, Yes
from roquet.model.errors import UsageError

app: Final = typer.Typer(name="broker", rich_markup_mode=None)
app.callback(invoke_without_command=True)(serve.broker)

Broker = Annotated[str, typer.Argument(help="The broker's name.")]


@app.command()
def settings(broker: Broker, *, json: Json = False, namesrv: Namesrv = None) -> None:
    """Show a broker's settings."""
    running.log_to_stderr(verbose=False)
    running.run(_settings(namesrv, broker, json=json))


@app.command("set")
def change(
    broker: Broker,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="What to change.")],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    namesrv: Namesrv = None,
) -> None:
    """Change settings of a broker while it runs: all that are given, or none."""
    running.log_to_stderr(verbose=False)
    wanted = dict(_pair(change) for change in changes)
    running.run(_change(namesrv, broker, wanted, dry_run=dry_run, yes=yes))


async def _settings(namesrv: str | None, broker: str, *, json: bool) -> None:
    from roquet.admin import brokers
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await brokers.settings(reach, broker)
    if json:
        output.echo_json([found])
        return
    for name, value in found.items():
        typer.echo(f"{name} = {value}")


async def _change(
    namesrv: str | None, broker: str, wanted: dict[str, str], *, dry_run: bool, yes: bool
) -> None:
    from roquet.admin import brokers
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        now = await brokers.settings(reach, broker)
        for key, value in wanted.items():
            typer.echo(f"{broker}: {key} is {now.get(key, 'unknown')}, then {value}")
        if dry_run:
            typer.echo(DRY)
            return
        await output.agreed(f"Change {output.counted(len(wanted), 'setting')}?", yes=yes)
        await brokers.configure(reach, broker, wanted)
        typer.echo(f"{broker}: changed")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"{text!r}: KEY=VALUE is wanted")
    return key, value
