"""roquet acl user: list, create, update and delete users on all brokers."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final

from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.cli.admin.acl.on_brokers import (
    BROKERS,
    ONE_BROKER,
    AccessChange,
    DeletionOptions,
    UserArgument,
    make_change,
    one_broker,
)
from roquet.cli.command_options import CommandOptions, argument, option
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.terminal.output import table
from roquet.model.access import UserStatus, UserType
from roquet.model.errors import UsageError
from roquet.wire.calls.access import UserInfo

PASSWORD_BYTES: Final = 24
"""Random bytes of a generated password."""

app: Final = CommandGroup("user", "Users of a cluster.")


class UserOptions(CommandOptions):
    """What a user is created with, or changed to."""

    password_file: Path | None = option(
        "File whose first line is the password; - is standard input."
    )
    generate: bool = option("Make a random password, and print it.")
    is_super: bool | None = option("Whether the user may do everything.", "--super/--normal")
    enabled: bool | None = option("Whether its requests are accepted.", "--enable/--disable")
    broker: list[str] | None = BROKERS


@app.command("list")
async def list_users(
    admin: AdminClient,
    part: str = argument("Part of the names.", default=""),
    *,
    broker: str | None = ONE_BROKER,
) -> Result:
    """List users, without their passwords."""
    found = await access.users(admin, await one_broker(admin, broker), part)
    return Result(
        json=({"name": u.username, "type": u.user_type, "status": u.user_status} for u in found),
        text=_lines(found),
    )


def _lines(users: Sequence[UserInfo]) -> Iterator[Any]:
    rows = ((one.username or "", one.user_type or "", one.user_status or "") for one in users)
    yield table(("user", "type", "status"), rows) if users else "no user"


@app.command("create")
async def create_user(admin: AdminClient, name: UserArgument, options: UserOptions) -> Result:
    """Create a user on all brokers. Without a policy a normal one may do nothing."""
    if (password := _password(options)) is None:
        raise UsageError("a password is wanted: --password-file FILE, or --generate")
    return await _change_user(admin, name, options, password, create=True)


@app.command("update")
async def update_user(admin: AdminClient, name: UserArgument, options: UserOptions) -> Result:
    """Change a user's password, type or status on all brokers; what is not given stays."""
    password = _password(options)
    if password is None and options.is_super is None and options.enabled is None:
        raise UsageError("say what is to be changed: --help lists it")
    return await _change_user(admin, name, options, password, create=False)


async def _change_user(
    admin: AdminClient, name: str, options: UserOptions, password: str | None, *, create: bool
) -> Result:
    user_type = status = None
    if options.is_super is not None:
        user_type = str(UserType.SUPER if options.is_super else UserType.NORMAL)
    if options.enabled is not None:
        status = str(UserStatus.ENABLE if options.enabled else UserStatus.DISABLE)
    call = access.user_call(
        name, create=create, password=password, user_type=user_type, status=status
    )
    done = f"{name}: {'created' if create else 'changed'}"
    secret = password if options.generate else None
    return await make_change(
        admin, AccessChange(call=call, done=done, secret=secret), options.broker
    )


@app.command("delete")
async def delete_user(
    admin: AdminClient, name: UserArgument, options: DeletionOptions, as_json: bool
) -> Result:
    """Delete a user and its policies on all brokers."""
    change = AccessChange(
        call=access.delete_user_call(name),
        done=f"{name}: deleted",
        question=f"Delete {name} and its policies?",
    )
    return await make_change(admin, change, options.broker, yes=options.yes, as_json=as_json)


def _password(options: UserOptions) -> str | None:
    """The password of a file, or a new one; None without either. Options never hold one."""
    file = options.password_file
    if options.generate:
        if file is not None:
            raise UsageError("--generate and --password-file exclude each other")
        return token_urlsafe(PASSWORD_BYTES)
    if file is None:
        return None
    text = sys.stdin.readline() if str(file) == "-" else file.read_text("utf-8")
    password = text.partition("\n")[0].rstrip("\r")
    if not password.strip():
        raise UsageError(f"{file}: the first line is empty; it is to be the password")
    return password
