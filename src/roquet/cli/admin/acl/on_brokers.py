"""On brokers: work and changes of `roquet acl` on all brokers of a cluster, or on some."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquet.cli.process import runtime
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.name_servers import namesrv_addresses

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def run_change(
    change: AccessChange, namesrv: str | None, brokers: list[str] | None, *, yes: bool, json: bool
) -> None:
    """Make a change on the brokers, after a question if there is one, and say so."""
    runtime.log_to_stderr(verbose=False)

    async def work(admin: "AdminClient", addresses: "Mapping[str, str]") -> None:
        from roquet.admin import access
        from roquet.model.errors import CallError, RoquetError

        if change.question is not None:
            await output.confirm(change.question, yes=yes, to_stderr=json)
        secret = change.secret
        try:
            names = await access.change(admin, addresses, change.call)
        except RoquetError as error:
            if secret is not None and not isinstance(error, CallError):  # some brokers took it
                output.echo(f"password: {secret}")
            raise
        if json:
            fields = {} if secret is None else {"password": secret}
            output.echo_json([{"brokers": names, "changed": True, **fields}])
            return
        output.echo(f"{change.done}, on {', '.join(names)}")
        if secret is not None:
            output.echo(f"password: {secret}")

    runtime.run(on_brokers(namesrv, brokers or [], work))


async def on_brokers(
    namesrv: str | None,
    brokers: list[str],
    work: "Callable[[AdminClient, Mapping[str, str]], Awaitable[None]]",
) -> None:
    """Do something with the addresses of all brokers, or of those named."""
    from roquet.admin import access
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        await work(admin, await access.every_broker(admin, brokers))


async def on_one_broker(
    namesrv: str | None,
    broker: str | None,
    work: "Callable[[AdminClient, str], Awaitable[None]]",
) -> None:
    """Do something with the address of a broker, or of the first one by name."""

    async def with_first(admin: "AdminClient", addresses: "Mapping[str, str]") -> None:
        await work(admin, next(iter(addresses.values())))

    await on_brokers(namesrv, [broker] if broker else [], with_first)
