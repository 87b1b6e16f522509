"""roquet namesrv: starts a name server; roquet namesrv settings, set: running ones."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from roquet.cli.admin.setting_changes import ChangesArgument, change_line, parse_changes
from roquet.cli.command_options import option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.servers import name_server
from roquet.cli.terminal import output
from roquet.model.errors import RoquetError, UsageError
from roquet.model.settings import suggest

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient

FIXED_NOTE: Final = "   (read at the start)"

app: Final = CommandGroup("namesrv", no_args_is_help=False)
app.callback(invoke_without_command=True)(name_server.namesrv)


@app.command()
async def settings(
    admin: "AdminClient",
    *,
    unused: bool = option("Also Apache's settings that have no effect on them.", "--all"),
) -> Result:
    """Show the settings of the name servers, and which of them may change while they run."""
    from roquet.admin import name_servers
    from roquet.admin.client import failures_text

    found, failed = await name_servers.settings(admin)
    servers = []
    for address, values in found.items():
        shown = values if unused or not _is_ours(values) else _effective(values)
        changeable = [key for key in shown if may_change(values, key)]
        servers.append({"name_server": address, "settings": shown, "changeable": changeable})
    error = RoquetError(failures_text(failed)) if failed else None
    return Result(json=servers, text=_lines(servers), error=error)


def _lines(servers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for server in servers:
        yield server["name_server"]
        for key, value in server["settings"].items():
            note = "" if key in server["changeable"] else FIXED_NOTE
            yield f"  {key} = {value}{note}".rstrip()


@app.command("set")
async def set_settings(
    admin: "AdminClient", approval: Approval, changes: ChangesArgument
) -> Result:
    """Change settings of running name servers, all of them alike, until each one's next start."""
    from roquet.admin import name_servers
    from roquet.admin.client import failures_text
    from roquet.namesrv.handlers.settings import KEYS

    wanted = parse_changes(changes, KEYS)
    found, failed = await name_servers.settings(admin)
    if failed:
        raise RoquetError(f"nothing was changed, since not all answer: {failures_text(failed)}")
    keys = {key: setting_key(found, key) for key in wanted}
    rows = [
        {"name_server": address, "key": key, "now": values.get(keys[key]), "then": then}
        for address, values in found.items()
        for key, then in wanted.items()
    ]
    where = f"{output.quantity(len(found), 'name server')} until the next start"
    question = f"Change {output.quantity(len(wanted), 'setting')} of {where}?"
    if await approval.ask([change_line(str(row["name_server"]), row) for row in rows], question):
        await name_servers.configure(admin, {keys[key]: then for key, then in wanted.items()})
    return approval.result(rows, f"{', '.join(found)}: changed until the next start")


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
    from roquet.namesrv.handlers.settings import BLACK_LIST, UNUSED

    files = {key for key in BLACK_LIST if values.get(key) and key != "configBlackList"}
    without = (UNUSED.keys() | frozenset(BLACK_LIST)) - files
    return {key: value for key, value in values.items() if key not in without}
