"""roquet acl user: list, create, update and delete users on all brokers."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.admin.acl.on_brokers import (
    AccessBrokersOption,
    AccessChange,
    OneBrokerOption,
    UserArgument,
    make_change,
    one_broker,
)
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.terminal.output import YesOption, table
from roquet.model.access import UserStatus, UserType
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient
    from roquet.wire.call import Call, Reply
    from roquet.wire.calls.access import UserInfo

PASSWORD_BYTES: Final = 24
"""Random bytes of a generated password."""

app: Final = CommandGroup("user", "Users of a cluster.")

PasswordFileOption = Annotated[
    Path | None,
    typer.Option(help="File whose first line is the password; - is standard input."),
]
GenerateOption = Annotated[
    bool, typer.Option("--generate", help="Make a random password, and print it.")
]
SuperOption = Annotated[
    bool | None, typer.Option("--super/--normal", help="Whether the user may do everything.")
]
EnabledOption = Annotated[
    bool | None, typer.Option("--enable/--disable", help="Whether its requests are accepted.")
]


@app.command("list")
async def list_users(
    admin: "AdminClient",
    part: Annotated[str, typer.Argument(help="Part of the names.")] = "",
    *,
    broker: OneBrokerOption = None,
) -> Result:
    """List users, without their passwords."""
    from roquet.admin import access

    found = await access.users(admin, await one_broker(admin, broker), part)
    return Result(
        json=({"name": u.username, "type": u.user_type, "status": u.user_status} for u in found),
        text=_lines(found),
    )


def _lines(users: "Sequence[UserInfo]") -> Iterator[Any]:
    shown = table("user", "type", "status")
    for user in users:
        shown.add_row(user.username or "", user.user_type or "", user.user_status or "")
    yield shown if users else "no user"


@app.command("create")
async def create_user(
    admin: "AdminClient",
    name: UserArgument,
    *,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
    is_super: SuperOption = None,
    enabled: EnabledOption = None,
    broker: AccessBrokersOption = None,
) -> Result:
    """Create a user on all brokers. Without a policy a normal one may do nothing."""
    if (password := _password(password_file, generate=generate)) is None:
        raise UsageError("a password is wanted: --password-file FILE, or --generate")
    call = _user_call(name, password, is_super, enabled, create=True)
    secret = password if generate else None
    change = AccessChange(call=call, done=f"{name}: created", secret=secret)
    return await make_change(admin, change, broker)


@app.command("update")
async def update_user(
    admin: "AdminClient",
    name: UserArgument,
    *,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
    is_super: SuperOption = None,
    enabled: EnabledOption = None,
    broker: AccessBrokersOption = None,
) -> Result:
    """Change a user's password, type or status on all brokers; what is not given stays."""
    password = _password(password_file, generate=generate)
    if password is None and is_super is None and enabled is None:
        raise UsageError("say what is to be changed: --help lists it")
    call = _user_call(name, password, is_super, enabled, create=False)
    secret = password if generate else None
    change = AccessChange(call=call, done=f"{name}: changed", secret=secret)
    return await make_change(admin, change, broker)


@app.command("delete")
async def delete_user(
    admin: "AdminClient",
    as_json: bool,
    name: UserArgument,
    *,
    broker: AccessBrokersOption = None,
    yes: YesOption = False,
) -> Result:
    """Delete a user and its policies on all brokers."""
    from roquet.admin import access

    change = AccessChange(
        call=access.delete_user_call(name),
        done=f"{name}: deleted",
        question=f"Delete {name} and its policies?",
    )
    return await make_change(admin, change, broker, yes=yes, as_json=as_json)


def _user_call(
    name: str, password: str | None, is_super: bool | None, enabled: bool | None, *, create: bool
) -> "Call[Reply]":
    from roquet.admin import access

    user_type = status = None
    if is_super is not None:
        user_type = str(UserType.SUPER if is_super else UserType.NORMAL)
    if enabled is not None:
        status = str(UserStatus.ENABLE if enabled else UserStatus.DISABLE)
    return access.user_call(
        name, create=create, password=password, user_type=user_type, status=status
    )


def _password(file: Path | None, *, generate: bool) -> str | None:
    """The password of a file, or a new one; None without either. Options never hold one."""
    if generate:
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
