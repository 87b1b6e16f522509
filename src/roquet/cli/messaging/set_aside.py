"""roquet set-aside ls, retry: messages that a broker's services cannot handle."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import DryRunOption, JsonOption, YesOption
from roquet.model.errors import RoquetError, UsageError

if TYPE_CHECKING:
    from roquet.admin.set_aside import SetAsideMessage

SHOWN: Final = 20
"""Messages in a preview."""

REASON_MAX: Final = 1_000
"""Characters of a place or a reason in text output; `--json` cuts nothing."""

app: Final = typer.Typer(
    name="set-aside",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Messages that a broker's services cannot handle.",
)


@app.command("ls")
def list_set_aside(*, json: JsonOption = False, namesrv: NamesrvOption = None) -> None:
    """List them, the oldest first: which service, why, and where the message lies."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_list(namesrv_addresses(namesrv), as_json=json))


@app.command()
def retry(
    message_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID…", help="As `ls` shows them.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All that no earlier --all has put back.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Put messages back to the work of their services; the copies stay until they expire.

    One that cannot be handled this time either is set aside again.
    """
    runtime.log_to_stderr(verbose=False)
    if everything == bool(message_ids):
        raise UsageError("say which: --all, or their ids")
    wanted = None if message_ids is None else [one.upper() for one in message_ids]
    runtime.run(_retry(namesrv_addresses(namesrv), wanted, dry_run=dry_run, yes=yes, json=json))


async def _list(namesrv: str, *, as_json: bool) -> None:
    from roquet.admin import set_aside
    from roquet.admin.client import AdminClient
    from roquet.admin.dead_letters import open_reader

    messages: list[SetAsideMessage] = []
    async with AdminClient(namesrv) as admin:
        if await set_aside.topic_exists(admin):
            async with open_reader(namesrv) as reader:
                messages, _ = await set_aside.list_messages(reader)
    if as_json:
        output.echo_json(messages)
        return
    if not messages:
        output.echo("no message is set aside", err=True)
    for one in messages:
        output.echo(_line(one))


async def _retry(
    namesrv: str, wanted: list[str] | None, *, dry_run: bool, yes: bool, json: bool
) -> None:
    from roquet.admin import set_aside
    from roquet.admin.client import AdminClient
    from roquet.admin.dead_letters import open_reader

    async with AdminClient(namesrv) as admin, open_reader(namesrv) as reader:
        if not await set_aside.topic_exists(admin):
            raise RoquetError("no message is set aside")
        messages, ends = await set_aside.list_messages(reader, not_retried_only=wanted is None)
        chosen = messages if wanted is None else _select(messages, wanted)
        if not chosen:
            raise RoquetError("no message is set aside that was not put back before")
        preview = [_line(one) for one in chosen[:SHOWN]]
        if len(chosen) > SHOWN:
            preview.append(f"… and {len(chosen) - SHOWN} more")
        output.show_preview(preview, dry_run=dry_run, json=json)
        failed: list[tuple[SetAsideMessage, str]] = []
        if not dry_run:
            question = f"Put {output.quantity(len(chosen), 'message')} back?"
            await output.confirm(question, yes=yes, to_stderr=json)
            failed = await set_aside.retry(admin, chosen)
            if wanted is None and not failed:
                await set_aside.save_retried(reader, ends)
    _print_result(chosen, failed, dry_run=dry_run, json=json)


def _select(messages: "list[SetAsideMessage]", wanted: list[str]) -> "list[SetAsideMessage]":
    by_id = {one.message_id: one for one in messages}
    for message_id in wanted:
        if message_id not in by_id:
            raise UsageError(f"{message_id} is not the id of a message that is set aside")
    return [by_id[message_id] for message_id in dict.fromkeys(wanted)]


def _print_result(
    chosen: "list[SetAsideMessage]",
    failed: "list[tuple[SetAsideMessage, str]]",
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """Print the result; ends with FAILED when some could not be put back."""
    from msgspec.structs import asdict

    why = {one.message_id: fault for one, fault in failed}
    if json:
        output.echo_json(
            {**asdict(one), "put_back": not dry_run and one.message_id not in why} for one in chosen
        )
    elif not dry_run:
        output.echo(f"{len(chosen) - len(why)} put back")
    for message_id, fault in why.items():
        output.echo(f"{message_id}: {fault}", err=True)
    if why:
        sys.exit(FAILED)


def _line(one: "SetAsideMessage") -> str:
    fields = (one.broker, one.service, one.place, one.reason)
    shown = "  ".join(output.one_line(text.encode(), REASON_MAX) for text in fields)
    return f"{one.message_id}  {output.time_text(one.kept_ms)}  {shown}"
