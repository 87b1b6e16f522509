"""roquet namesrv: starts a name server; roquet namesrv settings, set: running ones."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from roquet.cli.admin.setting_changes import ChangesArgument, parse_changes
from roquet.cli.process import runtime
from roquet.cli.servers import name_server
from roquet.cli.terminal import output
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import DryRunOption, JsonOption, YesOption
from roquet.model.errors import RoquetError, UsageError
from roquet.model.settings import suggest

FIXED_NOTE: Final = "   (read at the start)"

app: Final = typer.Typer(name="namesrv", rich_markup_mode=None)
app.callback(invoke_without_command=True)(name_server.namesrv)


@app.command()
def settings(
    *,
    unused: Annotated[
        bool, typer.Option("--all", help="Also Apache's settings that have no effect on them.")
    ] = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show the settings of the name servers, and which of them may change while they run."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_settings(namesrv, unused=unused, json=json))


@app.command("set")
def set_settings(
    changes: ChangesArgument,
    *,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Change settings of running name servers, all of them alike, until each one's next start."""
    from roquet.namesrv.handlers.settings import KEYS

    runtime.log_to_stderr(verbose=False)
    wanted = parse_changes(changes, KEYS)
    runtime.run(_change(namesrv, wanted, dry_run=dry_run, yes=yes, json=json))


async def _settings(namesrv: str | None, *, unused: bool, json: bool) -> None:
    from roquet.admin import name_servers
    from roquet.admin.client import AdminClient, failures_text

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        found, failed = await name_servers.settings(admin)
    for address, values in found.items():
        shown = values if unused or not _is_ours(values) else _effective(values)
        changeable = [key for key in shown if may_change(values, key)]
        if json:
            server = {"name_server": address, "settings": shown, "changeable": changeable}
            output.echo_json([server])
            continue
        output.echo(address)
        for key, value in shown.items():
            note = "" if key in changeable else FIXED_NOTE
            output.echo(f"  {key} = {value}{note}".rstrip())
    if failed:
        raise RoquetError(failures_text(failed))


async def _change(
    namesrv: str | None, wanted: Mapping[str, str], *, dry_run: bool, yes: bool, json: bool
) -> None:
    from roquet.admin import name_servers
    from roquet.admin.client import AdminClient, failures_text

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        found, failed = await name_servers.settings(admin)
        if failed:
            raise RoquetError(f"nothing was changed, since not all answer: {failures_text(failed)}")
        keys = {key: setting_key(found, key) for key in wanted}
        facts = [
            {"name_server": address, "key": key, "now": values.get(keys[key]), "then": then}
            for address, values in found.items()
            for key, then in wanted.items()
        ]
        preview = [
            f"{one['name_server']}: {one['key']} is {one['now'] or 'not set'}, then {one['then']}"
            for one in facts
        ]
        output.show_preview(preview, dry_run=dry_run, json=json)
        if not dry_run:
            where = f"{output.quantity(len(found), 'name server')} until the next start"
            question = f"Change {output.quantity(len(wanted), 'setting')} of {where}?"
            await output.confirm(question, yes=yes, to_stderr=json)
            changes = {keys[key]: then for key, then in wanted.items()}
            await name_servers.configure(admin, changes)
    if json:
        output.echo_json({**one, "changed": not dry_run} for one in facts)
    elif not dry_run:
        output.echo(f"{', '.join(found)}: changed until the next start")


def setting_key(servers: Mapping[str, Mapping[str, str]], key: str) -> str:
    """The key on the wire of a setting, named in Roquet's or in RocketMQ's words.

    Raises UsageError for one that some server lacks, which it would silently ignore, or that does
    not change while it runs.
    """
    from roquet.namesrv.handlers.settings import KEYS

    own = {name: apache for apache, name in KEYS.items()}
    known = own.get(key, key)
    for address, values in servers.items():
        if known not in values:
            hint = suggest(key, [*values, *(own if _is_ours(values) else ())])
            raise UsageError(f"{address} has no setting {key!r}{hint}")
        if not may_change(values, known):
            raise UsageError(f"{address} reads {key} at its start: it cannot be changed now")
    return known


def may_change(values: Mapping[str, str], key: str) -> bool:
    """Whether a name server with these settings lets one of them change while it runs."""
    from roquet.namesrv.handlers.settings import BLACK_LIST, CHANGEABLE, KEYS

    if key in BLACK_LIST:
        return False
    return not _is_ours(values) or KEYS.get(key) in CHANGEABLE


def _is_ours(values: Mapping[str, str]) -> bool:
    """Whether a name server reports a setting that Apache RocketMQ does not have."""
    return "logLevels" in values


def _effective(values: Mapping[str, str]) -> dict[str, str]:
    """Settings of a name server of ours without those that have no effect on it."""
    from roquet.namesrv.handlers.settings import BLACK_LIST, UNUSED

    files = {key for key in BLACK_LIST if values.get(key) and key != "configBlackList"}
    without = (UNUSED.keys() | frozenset(BLACK_LIST)) - files
    return {key: value for key, value in values.items() if key not in without}
