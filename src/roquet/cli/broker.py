"""roquet broker: starts one; roquet broker settings, set: what a running one goes by."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from roquet.cli import completion, output, running, serve
from roquet.cli.namesrv import Namesrv, servers
from roquet.cli.output import DryRun, Json, Yes
from roquet.model.errors import UsageError
from roquet.model.settings import nearest

app: Final = typer.Typer(name="broker", rich_markup_mode=None)
app.callback(invoke_without_command=True)(serve.broker)

Broker = Annotated[
    str, typer.Argument(help="The broker's name.", autocompletion=completion.brokers)
]


@app.command()
def settings(
    broker: Broker,
    *,
    unused: Annotated[
        bool, typer.Option("--all", help="Also Apache's settings that have no effect on it.")
    ] = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Show a broker's settings."""
    running.log_to_stderr(verbose=False)
    running.run(_settings(namesrv, broker, unused=unused, json=json))


@app.command("set")
def change(
    broker: Broker,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="What to change.")],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Change settings of a running broker. All that are given, or none."""
    running.log_to_stderr(verbose=False)
    pairs = [_pair(change) for change in changes]
    _check_doubles(pairs)
    running.run(_change(namesrv, broker, dict(pairs), dry_run=dry_run, yes=yes, json=json))


async def _settings(namesrv: str | None, broker: str, *, unused: bool, json: bool) -> None:
    from roquet.admin import brokers
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await brokers.settings(reach, broker)
    if not unused and _is_ours(found):
        found = _effective(found)
    if json:
        output.echo_json([found])
        return
    for name, value in found.items():
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
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        now = await brokers.settings(reach, broker)
        known = {key: _now(now, broker, key) for key in wanted}
        preview = [
            f"{broker}: {key} is {known[key] or 'not set'}, then {value}"
            for key, value in wanted.items()
        ]
        output.preview_of(preview, dry_run=dry_run, json=json)
        if not dry_run:
            question = f"Change {output.counted(len(wanted), 'setting')}?"
            await output.agreed(question, yes=yes, apart=json)
            await brokers.configure(reach, broker, wanted)
    if json:
        output.echo_json(
            {"broker": broker, "key": k, "now": known[k], "then": v, "changed": not dry_run}
            for k, v in wanted.items()
        )
    elif not dry_run:
        output.echo(f"{broker}: changed")


def _now(told: Mapping[str, str], broker: str, key: str) -> str | None:
    """What a broker has of a setting, which may be named in our words or in genuine ones.

    UsageError when it has no such setting: genuine brokers would say nothing, and change nothing.
    """
    from roquet.broker.settings import OURS, SETTINGS, genuine_keys

    if key in told:
        return told[key]
    name = OURS.get(key, key)
    setting = SETTINGS.get(name)
    if setting is None and key not in genuine_keys():
        raise UsageError(f"{broker} has no setting {key!r}{nearest(key, [*told, *SETTINGS])}")
    if setting is None or not setting.genuine:
        return None
    genuine = setting.genuine[0]
    if key == name and not _is_ours(told):
        raise UsageError(f"{broker} is no broker of ours: there {key} is called {genuine}")
    text = told.get(genuine)
    return text if text is None or key != name else _in_our_words(name, text)


def _is_ours(told: Mapping[str, str]) -> bool:
    """Whether a broker told settings that Apache RocketMQ does not have."""
    from roquet.broker.settings import SETTINGS

    return any(name in told for name, setting in SETTINGS.items() if not setting.genuine)


def _effective(told: Mapping[str, str]) -> dict[str, str]:
    """A broker's settings without those that change nothing on it."""
    from roquet.broker.apache_settings import unused_settings

    return {key: value for key, value in told.items() if key not in unused_settings()}


def _in_our_words(name: str, text: str) -> str:
    """A value that was told in genuine words."""
    from roquet.broker.settings import SETTINGS
    from roquet.broker.spelling import own_text

    setting = SETTINGS[name]
    return own_text(name, (setting.parse_genuine or setting.parse)(text, name))


def _check_doubles(pairs: Sequence[tuple[str, str]]) -> None:
    """UsageError when one setting is given twice, in the same words or in two kinds of them."""
    from roquet.broker.settings import OURS

    seen: dict[str, str] = {}
    for key, value in pairs:
        name, text = OURS.get(key, key), f"{key}={value}"
        if name in seen:
            raise UsageError(f"{seen[name]} and {text} are one setting: give it once")
        seen[name] = text


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"{text!r}: KEY=VALUE is wanted")
    return key, value
