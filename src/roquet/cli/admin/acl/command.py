"""roquet acl: users and their policies; export, import, and why something is allowed or refused."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from roquet.access.translation import AccessDocument, decode_document, document_of, tables_of
from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.cli.admin.acl import changes
from roquet.cli.admin.acl.changes import ONE_BROKER, UserArgument, one_broker
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import BROKERS
from roquet.model.access import AccessTables, Action, Match, Resource, UserStatus
from roquet.model.errors import FieldError, RoquetError, UsageError
from roquet.rules.access import plain_acl
from roquet.rules.access.changes import AccessChangeRefused
from roquet.rules.access.decision import AccessRequest, decide
from roquet.rules.access.patterns import parse_pattern
from roquet.rules.access.plain_acl import MigratedAccess
from roquet.wire.fastjson import codec
from roquet.wire.plain_acl import decode_plain_acl

app: Final = CommandGroup("acl", "Users and what they may do.")
app.add_typer(changes.users)
app.add_typer(changes.policies)


@app.command("export")
async def export_access(
    admin: AdminClient,
    file: Path = argument("The file to write; it must not exist."),
    *,
    broker: str | None = ONE_BROKER,
) -> list[str]:
    """Write users, passwords and policies of a broker to a file that its owner alone can read."""
    found = await access.document(admin, await one_broker(admin, broker))
    write_document(file, found)
    return [_counts(file, len(found.users), len(found.acls))]


@app.command("import")
async def import_access(
    admin: AdminClient,
    approval: Approval,
    file: Path = argument("As `export` writes it."),
    *,
    broker: list[str] | None = BROKERS,
) -> list[str]:
    """Create or replace the users and policies of a file on all brokers; others stay."""
    tables = read_tables(file)
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
    file: Path = argument("plain_acl.yml of Apache RocketMQ 4."),
    to: Path | None = option("File to write for `import`; it must not exist."),
) -> Iterator[str]:
    """Make users and policies of plain_acl.yml, and say what has no equal; asks no broker."""
    found = read_accounts(file)
    if to is not None:
        write_document(to, document_of(found.tables))
    yield _counts(to or file, len(found.tables.users), len(found.tables.acls))
    for note in found.notes:
        yield f"- {note}"


def _counts(file: Path, users: int, acls: int) -> str:
    return f"{file}: {output.quantity(users, 'user')}, {output.quantity(acls, 'ACL')}"


@app.command()
async def why(
    admin: AdminClient,
    name: UserArgument,
    action: Action = argument("What is done.", case_sensitive=False),
    resource: str = argument("Topic:orders, Group:billing, Cluster:…"),
    source: str = option("The IP address that it is done from.", default="127.0.0.1"),
    broker: str | None = ONE_BROKER,
) -> Result:
    """Say whether a user may do something, and by which entry. Exit code 1 when not."""
    request = request_of(action, resource)
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


PRIVATE: Final = 0o600


def write_document(path: Path, document: AccessDocument) -> None:
    """Write an export, which its owner alone can read.

    Raises RoquetError if there are no passwords in it, and UsageError for a path that exists.
    """
    if any(not user.password for user in document.users):
        raise RoquetError("the broker shows passwords to super users alone: export as one of them")
    data = codec.dumps(document, standard=True, pretty=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise UsageError(f"{path} exists already: name another file") from None
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def read_tables(path: Path) -> AccessTables:
    """Read and check an export. Raises UsageError."""
    try:
        return tables_of(decode_document(path.read_bytes()))
    except FieldError as error:
        raise UsageError(f"{path}: {error}") from error


def read_accounts(path: Path) -> MigratedAccess:
    """Read plain_acl.yml of Apache RocketMQ 4 as users and changes. Raises UsageError."""
    try:
        return plain_acl.migrate(decode_plain_acl(path.read_bytes()))
    except (FieldError, AccessChangeRefused) as error:
        raise UsageError(f"{path}: {error}") from error


def request_of(action: Action, resource: str) -> AccessRequest:
    """The request that `why` asks about. Raises UsageError for a text that names no resource."""
    pattern = parse_pattern(resource)
    if pattern is None or pattern.kind is None or pattern.match is not Match.LITERAL:
        raise UsageError(
            f"{resource!r} is not one resource: Topic:orders, Group:billing, Cluster:…"
        )
    return AccessRequest(Resource(pattern.kind, pattern.name), (action,))
