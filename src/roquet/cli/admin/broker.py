"""roquet broker: starts a broker; roquet broker settings, set, drain: a running one."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from roquet.cli.admin.handover import WAIT_S, retire_and_show
from roquet.cli.admin.setting_changes import ChangesArgument, parse_changes
from roquet.cli.process import runtime
from roquet.cli.servers import start
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import BrokerArgument
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import DryRunOption, JsonOption, YesOption
from roquet.model.errors import UsageError
from roquet.model.settings import suggest

app: Final = typer.Typer(name="broker", rich_markup_mode=None)
app.callback(invoke_without_command=True)(start.broker)


@app.command()
def settings(
    broker: BrokerArgument,
    *,
    unused: Annotated[
        bool, typer.Option("--all", help="Also Apache's settings that have no effect on it.")
    ] = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show a broker's settings."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_settings(namesrv, broker, unused=unused, json=json))


@app.command("set")
def set_settings(
    broker: BrokerArgument,
    changes: ChangesArgument,
    *,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Change settings of a running broker: all that are given, or none."""
    from roquet.broker.settings.definitions import OWN_NAMES

    runtime.log_to_stderr(verbose=False)
    wanted = parse_changes(changes, OWN_NAMES)
    runtime.run(_change(namesrv, broker, wanted, dry_run=dry_run, yes=yes, json=json))


@app.command()
def drain(
    broker: BrokerArgument,
    *,
    wait: Annotated[
        int,
        typer.Option(min=0, metavar="SECONDS", help="How long to wait until it may be stopped."),
    ] = WAIT_S,
    undo: Annotated[bool, typer.Option("--undo", help="Let it take messages again.")] = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Take no more messages, and wait until consumers have read what there is.

    As `roquet cluster retire` does. Exit code 1 if the broker must not be stopped yet.
    """
    runtime.log_to_stderr(verbose=False)
    servers = namesrv_addresses(namesrv)
    if undo:
        runtime.run(_undo_drain(servers, broker, json=json))
    else:
        wait_ms = wait * 1_000
        runtime.run(
            retire_and_show(servers, broker, wait_ms=wait_ms, for_good=False, named=None, json=json)
        )


async def _undo_drain(servers: str, broker: str, *, json: bool) -> None:
    from roquet.admin import retire
    from roquet.admin.client import AdminClient

    async with AdminClient(servers) as admin:
        place = await retire.take_back(admin, broker)
    if json:
        output.echo_json([place])
    else:
        output.echo(f"{place.name}: {place.address} takes messages again")


async def _settings(namesrv: str | None, broker: str, *, unused: bool, json: bool) -> None:
    from roquet.admin import brokers
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        values = await brokers.settings(admin, broker)
    if not unused and _is_ours(values):
        values = _effective(values)
    if json:
        output.echo_json([values])
        return
    for name, value in values.items():
        output.echo(f"{name} = {value}")


async def _change(
    namesrv: str | None,
    broker: str,
    wanted: dict[str, str],
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    from roquet.admin import brokers
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        now = await brokers.settings(admin, broker)
        known = {key: current_value(now, broker, key) for key in wanted}
        preview = [
            f"{broker}: {key} is {known[key] or 'not set'}, then {value}"
            for key, value in wanted.items()
        ]
        output.show_preview(preview, dry_run=dry_run, json=json)
        if not dry_run:
            question = f"Change {output.quantity(len(wanted), 'setting')}?"
            await output.confirm(question, yes=yes, to_stderr=json)
            await brokers.configure(admin, broker, wanted)
    if json:
        output.echo_json(
            {"broker": broker, "key": k, "now": known[k], "then": v, "changed": not dry_run}
            for k, v in wanted.items()
        )
    elif not dry_run:
        output.echo(f"{broker}: changed")


def current_value(values: Mapping[str, str], broker: str, key: str) -> str | None:
    """A broker's value of a setting, named in Roquet's or in RocketMQ's words; None if not set.

    Raises UsageError for an unknown setting: Apache's brokers would silently change nothing.
    """
    from roquet.broker.settings.definitions import OWN_NAMES, SETTINGS, apache_keys

    if key in values:
        return values[key]
    name = OWN_NAMES.get(key, key)
    setting = SETTINGS.get(name)
    if setting is None and key not in apache_keys():
        raise UsageError(f"{broker} has no setting {key!r}{suggest(key, [*values, *SETTINGS])}")
    if setting is None or not setting.apache_keys:
        return None
    genuine = setting.apache_keys[0]
    if key == name and not _is_ours(values):
        raise UsageError(f"{broker} is no broker of ours: there {key} is called {genuine}")
    text = values.get(genuine)
    return text if text is None or key != name else _own_format(name, text)


def _is_ours(values: Mapping[str, str]) -> bool:
    """Whether a broker reports settings that Apache RocketMQ does not have."""
    from roquet.broker.settings.definitions import SETTINGS

    return any(name in values for name, setting in SETTINGS.items() if not setting.apache_keys)


def _effective(values: Mapping[str, str]) -> dict[str, str]:
    """A broker's settings without those that have no effect on it."""
    from roquet.broker.settings.apache_settings import unused_settings

    return {key: value for key, value in values.items() if key not in unused_settings()}


def _own_format(name: str, text: str) -> str:
    """A value in RocketMQ's format, in Roquet's."""
    from roquet.broker.settings.definitions import SETTINGS
    from roquet.broker.settings.settings_format import own_text

    return own_text(name, SETTINGS[name].parse_apache(text, name))
