"""roquet acl: users and their policies; export, import, and why something is allowed or refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.admin.acl import policies, users
from roquet.cli.admin.acl.on_brokers import (
    AccessBrokersOption,
    OneBrokerOption,
    UserArgument,
    one_broker,
)
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import output
from roquet.model.access import Action, UserStatus

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient

app: Final = CommandGroup("acl", "Users and what they may do.")
app.add_typer(users.app)
app.add_typer(policies.app)


@app.command("export")
async def export_access(
    admin: "AdminClient",
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    *,
    broker: OneBrokerOption = None,
) -> list[str]:
    """Write users, passwords and policies of a broker to a file that its owner alone can read."""
    from roquet.admin import access
    from roquet.cli.admin.acl import files

    found = await access.document(admin, await one_broker(admin, broker))
    files.write(file, found)
    return [_counts(file, len(found.users), len(found.acls))]


@app.command("import")
async def import_access(
    admin: "AdminClient",
    approval: Approval,
    file: Annotated[Path, typer.Argument(help="As `export` writes it.")],
    *,
    broker: AccessBrokersOption = None,
) -> list[str]:
    """Create or replace the users and policies of a file on all brokers; others stay."""
    from roquet.admin import access
    from roquet.cli.admin.acl import files

    tables = files.read(file)
    brokers = await access.every_broker(admin, broker or [])
    preview = [
        f"{name}: {user.user_type}, {user.status}"
        + (", with policies" if name in tables.acls else "")
        for name, user in sorted(tables.users.items())
    ]
    if not await approval.ask(preview, f"Import them on {', '.join(brokers)}?"):
        return []
    done = await access.load_all(admin, brokers, tables)
    return [f"{output.quantity(len(tables.users), 'user')} on {', '.join(done)}"]


@app.command()
def migrate(
    file: Annotated[Path, typer.Argument(help="plain_acl.yml of Apache RocketMQ 4.")],
    *,
    to: Annotated[
        Path | None, typer.Option("--to", help="File to write for `import`; it must not exist.")
    ] = None,
) -> Iterator[str]:
    """Make users and policies of plain_acl.yml, and say what has no equal; asks no broker."""
    from roquet.access.translation import document_of
    from roquet.cli.admin.acl import files

    found = files.migrate(file)
    if to is not None:
        files.write(to, document_of(found.tables))
    yield _counts(to or file, len(found.tables.users), len(found.tables.acls))
    for note in found.notes:
        yield f"- {note}"


def _counts(file: Path, users: int, acls: int) -> str:
    return f"{file}: {output.quantity(users, 'user')}, {output.quantity(acls, 'ACL')}"


@app.command()
async def why(
    admin: "AdminClient",
    name: UserArgument,
    action: Annotated[Action, typer.Argument(help="What is done.", case_sensitive=False)],
    resource: Annotated[str, typer.Argument(help="Topic:orders, Group:billing, Cluster:…")],
    *,
    source: Annotated[
        str, typer.Option("--source", help="The IP address that it is done from.")
    ] = "127.0.0.1",
    broker: OneBrokerOption = None,
) -> Result:
    """Say whether a user may do something, and by which entry. Exit code 1 when not."""
    from roquet.admin import access
    from roquet.cli.admin.acl import files
    from roquet.rules.access.decision import decide

    request = files.request(action, resource)
    document = await access.document(admin, await one_broker(admin, broker))
    tables = access.known_tables(document)
    user = tables.users.get(name)
    verdict = decide(tables, name, request, source)
    is_disabled = user is not None and user.status is UserStatus.DISABLE
    is_allowed = verdict.is_allowed and not is_disabled
    reason = f"User:{name} is disabled." if is_disabled else verdict.reason
    return Result(
        json=[{"allowed": is_allowed, "reason": reason, "entry": verdict.entry}],
        text=[f"{'allowed' if is_allowed else 'refused'}: {reason}"],
        is_failed=not is_allowed,
    )
