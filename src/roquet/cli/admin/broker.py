"""roquet broker: starts a broker; roquet broker settings, set, drain: a running one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from roquet.cli.command_options import option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.servers import start
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import (
    WAIT,
    BrokerArgument,
    ChangesArgument,
    change_line,
    parse_changes,
)
from roquet.model.errors import UsageError
from roquet.model.settings import suggest

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient

app: Final = CommandGroup("broker", no_args_is_help=False)
app.callback(invoke_without_command=True)(start.broker)


@app.command()
async def settings(
    admin: "AdminClient",
    broker: BrokerArgument,
    unused: bool = option("Also Apache's settings that have no effect on it.", "--all"),
) -> Result:
    """Show a broker's settings."""
    from roquet.admin import brokers
    from roquet.broker.settings.apache_settings import unused_settings

    values = await brokers.settings(admin, broker)
    if not unused and _is_ours(values):
        values = {key: text for key, text in values.items() if key not in unused_settings()}
    return Result(json=[values], text=(f"{name} = {value}" for name, value in values.items()))


@app.command("set")
async def set_settings(
    admin: "AdminClient", approval: Approval, broker: BrokerArgument, changes: ChangesArgument
) -> Result:
    """Change settings of a running broker: all that are given, or none."""
    from roquet.admin import brokers
    from roquet.broker.settings.definitions import OWN_NAMES

    wanted = parse_changes(changes, OWN_NAMES)
    now = await brokers.settings(admin, broker)
    rows = [
        {"broker": broker, "key": key, "now": current_value(now, broker, key), "then": then}
        for key, then in wanted.items()
    ]
    preview = [change_line(broker, row) for row in rows]
    if await approval.ask(preview, f"Change {output.quantity(len(wanted), 'setting')}?"):
        await brokers.configure(admin, broker, wanted)
    return approval.result(rows, f"{broker}: changed")


@app.command()
async def drain(
    admin: "AdminClient",
    as_json: bool,
    broker: BrokerArgument,
    wait: int = WAIT,
    undo: bool = option("Let it take messages again."),
) -> Result | None:
    """Take no more messages, and wait until consumers have read what there is.

    As `roquet cluster retire` does. Exit code 1 if the broker must not be stopped yet.
    """
    from roquet.admin.retire import take_back
    from roquet.cli.admin.handover import retire

    if not undo:
        await retire(admin, as_json, broker, wait=wait)
        return None
    place = await take_back(admin, broker)
    return Result(json=[place], text=[f"{place.name}: {place.address} takes messages again"])


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


def _own_format(name: str, text: str) -> str:
    from roquet.broker.settings.definitions import SETTINGS
    from roquet.broker.settings.settings_format import own_text

    return own_text(name, SETTINGS[name].parse_apache(text, name))
