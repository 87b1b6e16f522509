"""On brokers: work and changes of `roquet acl` on all brokers of a cluster, or on some."""

from typing import Annotated, Final

import msgspec
import typer

from roquet.admin import access
from roquet.admin.client import AdminClient
from roquet.cli.command_options import CommandOptions, option
from roquet.cli.operator_command import Result, show_text
from roquet.cli.terminal import arguments, output
from roquet.model.errors import CallError, RoquetError
from roquet.wire.call import Call, Reply

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
BROKERS: Final = option(
    "Only on this one; may be repeated.", "--broker", autocompletion=arguments.complete_brokers
)
ONE_BROKER: Final = option("Ask this one.", autocompletion=arguments.complete_brokers)


class DeletionOptions(CommandOptions):
    """Options of a deletion."""

    broker: list[str] | None = BROKERS
    yes: bool = option("Do not ask.", "-y")


class AccessChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and how the command speaks of it."""

    call: Call[Reply]
    done: str
    """A line that says what was done, without the brokers."""
    secret: str | None = None
    """A new password to be printed."""
    question: str | None = None
    """Asked before the change."""

    def __repr__(self) -> str:
        return f"AccessChange({self.done!r})"


async def make_change(
    admin: AdminClient,
    change: AccessChange,
    brokers: list[str] | None,
    *,
    yes: bool = True,
    as_json: bool = False,
) -> Result:
    """Make a change on all brokers or those named, after a question if there is one."""
    addresses = await access.every_broker(admin, brokers or [])
    if change.question is not None:
        await output.confirm(change.question, yes=yes, to_stderr=as_json)
    password = {} if change.secret is None else {"password": change.secret}
    lines = [f"password: {secret}" for secret in password.values()]
    try:
        names = await access.change(admin, addresses, change.call)
    except RoquetError as error:
        if not isinstance(error, CallError):  # some brokers took it
            show_text(lines)
        raise
    return Result(
        json=[{"brokers": names, "changed": True, **password}],
        text=[f"{change.done}, on {', '.join(names)}", *lines],
    )


async def one_broker(admin: AdminClient, broker: str | None) -> str:
    """The address of a broker, or of the first one by name."""
    return next(iter((await access.every_broker(admin, [broker] if broker else [])).values()))
