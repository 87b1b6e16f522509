"""On brokers: work and changes of `roquet acl` on all brokers of a cluster, or on some."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquet.cli.operator_command import Result, show_text
from roquet.cli.terminal import completion, output

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient
    from roquet.wire.call import Call, Reply

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
AccessBrokersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--broker", help="Only on this one; may be repeated.", autocompletion=completion.brokers
    ),
]
OneBrokerOption = Annotated[
    str | None,
    typer.Option("--broker", help="Ask this one.", autocompletion=completion.brokers),
]


class AccessChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and how the command speaks of it."""

    call: "Call[Reply]"
    done: str
    """A line that says what was done, without the brokers."""
    secret: str | None = None
    """A new password to be printed."""
    question: str | None = None
    """Asked before the change."""

    def __repr__(self) -> str:
        return f"AccessChange({self.done!r})"


async def make_change(
    admin: "AdminClient",
    change: AccessChange,
    brokers: list[str] | None,
    *,
    yes: bool = True,
    as_json: bool = False,
) -> Result:
    """Make a change on all brokers or those named, after a question if there is one."""
    from roquet.admin import access
    from roquet.model.errors import CallError, RoquetError

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


async def one_broker(admin: "AdminClient", broker: str | None) -> str:
    """The address of a broker, or of the first one by name."""
    from roquet.admin import access

    return next(iter((await access.every_broker(admin, [broker] if broker else [])).values()))
