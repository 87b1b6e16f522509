"""roquet acl: users and their policies; export, import, and why something is allowed or refused."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.admin.acl import policies, users
from roquet.cli.admin.acl.on_brokers import (
    AccessBrokersOption,
    OneBrokerOption,
    UserArgument,
    on_brokers,
    on_one_broker,
)
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.command_help import HelpfulGroup
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption
from roquet.cli.terminal.output import DryRunOption, JsonOption, YesOption
from roquet.model.access import Action, UserStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.admin.client import AdminClient

app: Final = typer.Typer(
    name="acl", no_args_is_help=True, rich_markup_mode=None, help="Users and what they may do."
)
app.add_typer(users.app, cls=HelpfulGroup)
app.add_typer(policies.app, cls=HelpfulGroup)


@app.command("export")
def export_access(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    *,
    broker: OneBrokerOption = None,
    namesrv: NamesrvOption = None,
) -> None:
    """Write users, passwords and policies of a broker to a file that its owner alone can read."""
    runtime.log_to_stderr(verbose=False)

    async def work(admin: "AdminClient", address: str) -> None:
        from roquet.admin import access
        from roquet.cli.admin.acl import files

        found = await access.document(admin, address)
        files.write(file, found)
        counts = output.quantity(len(found.users), "user"), output.quantity(len(found.acls), "ACL")
        output.echo(f"{file}: {counts[0]}, {counts[1]}")

    runtime.run(on_one_broker(namesrv, broker, work))


@app.command("import")
def import_access(
    file: Annotated[Path, typer.Argument(help="As `export` writes it.")],
    *,
    broker: AccessBrokersOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Create or replace the users and policies of a file on all brokers; others stay."""
    from roquet.cli.admin.acl import files

    runtime.log_to_stderr(verbose=False)
    tables = files.read(file)

    async def work(admin: "AdminClient", brokers: "Mapping[str, str]") -> None:
        from roquet.admin import access

        preview = [
            f"{name}: {user.user_type}, {user.status}"
            + (", with policies" if name in tables.acls else "")
            for name, user in sorted(tables.users.items())
        ]
        output.show_preview(preview, dry_run=dry_run, json=False)
        if dry_run:
            return
        await output.confirm(f"Import them on {', '.join(brokers)}?", yes=yes, to_stderr=False)
        done = await access.load_all(admin, brokers, tables)
        output.echo(f"{output.quantity(len(tables.users), 'user')} on {', '.join(done)}")

    runtime.run(on_brokers(namesrv, broker or [], work))


@app.command()
def migrate(
    file: Annotated[Path, typer.Argument(help="plain_acl.yml of Apache RocketMQ 4.")],
    *,
    to: Annotated[
        Path | None, typer.Option("--to", help="File to write for `import`; it must not exist.")
    ] = None,
) -> None:
    """Make users and policies of plain_acl.yml, and say what has no equal; asks no broker."""
    from roquet.cli.admin.acl import files
    from roquet.net.access.translation import document_of

    found = files.migrate(file)
    if to is not None:
        files.write(to, document_of(found.tables))
    users, acls = (len(table) for table in (found.tables.users, found.tables.acls))
    counts = f"{output.quantity(users, 'user')}, {output.quantity(acls, 'ACL')}"
    output.echo(f"{file if to is None else to}: {counts}")
    for note in found.notes:
        output.echo(f"- {note}")


@app.command()
def why(
    name: UserArgument,
    action: Annotated[Action, typer.Argument(help="What is done.", case_sensitive=False)],
    resource: Annotated[str, typer.Argument(help="Topic:orders, Group:billing, Cluster:…")],
    *,
    source: Annotated[
        str, typer.Option("--source", help="The IP address that it is done from.")
    ] = "127.0.0.1",
    broker: OneBrokerOption = None,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Say whether a user may do something, and by which entry. Exit code 1 when not."""
    from roquet.cli.admin.acl import files

    runtime.log_to_stderr(verbose=False)
    request = files.request(action, resource)

    async def work(admin: "AdminClient", address: str) -> None:
        from roquet.admin import access
        from roquet.rules.access.decision import decide

        tables = access.known_tables(await access.document(admin, address))
        user = tables.users.get(name)
        verdict = decide(tables, name, request, source)
        is_disabled = user is not None and user.status is UserStatus.DISABLE
        is_allowed = verdict.is_allowed and not is_disabled
        reason = f"User:{name} is disabled." if is_disabled else verdict.reason
        if json:
            output.echo_json([{"allowed": is_allowed, "reason": reason, "entry": verdict.entry}])
        else:
            output.echo(f"{'allowed' if is_allowed else 'refused'}: {reason}")
        if not is_allowed:
            sys.exit(FAILED)

    runtime.run(on_one_broker(namesrv, broker, work))
