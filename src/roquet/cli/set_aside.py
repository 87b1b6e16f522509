"""roquet set-aside ls, retry: messages that a broker's services cannot handle."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli import output, running
from roquet.cli.exit_codes import FAILED
from roquet.cli.namesrv import Namesrv, servers
from roquet.cli.output import DryRun, Json, Yes
from roquet.model.errors import RoquetError, UsageError

if TYPE_CHECKING:
    from roquet.admin.set_aside import KeptMessage

SHOWN: Final = 20
"""Messages in a preview."""

REASON_MAX: Final = 1_000
"""Characters of a place or a reason in a line; `--json` cuts nothing."""

app: Final = typer.Typer(
    name="set-aside",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Messages that a broker's services cannot handle.",
)


@app.command("ls")
def list_kept(*, json: Json = False, namesrv: Namesrv = None) -> None:
    """List them, the oldest first: which service, why, and where the message lies."""
    running.log_to_stderr(verbose=False)
    running.run(_list(servers(namesrv), as_json=json))


@app.command()
def retry(
    message_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID…", help="As `ls` shows them.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All that no earlier --all has put back.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Put messages back to the work of their services; the copies stay until they expire.

    One that cannot be handled this time either is set aside again.
    """
    running.log_to_stderr(verbose=False)
    if everything == bool(message_ids):
        raise UsageError("say which: --all, or their ids")
    wanted = None if message_ids is None else [one.upper() for one in message_ids]
    running.run(_retry(servers(namesrv), wanted, dry_run=dry_run, yes=yes, json=json))


async def _list(namesrv: str, *, as_json: bool) -> None:
    from roquet.admin import set_aside
    from roquet.admin.dead_letters import reading
    from roquet.admin.reach import Reach

    found: list[KeptMessage] = []
    async with Reach(namesrv) as reach:
        if await set_aside.is_any(reach):
            async with reading(namesrv) as reader:
                found, _ = await set_aside.kept(reader)
    if as_json:
        output.echo_json(found)
        return
    if not found:
        output.echo("no message is set aside", err=True)
    for one in found:
        output.echo(_line(one))


async def _retry(
    namesrv: str, wanted: list[str] | None, *, dry_run: bool, yes: bool, json: bool
) -> None:
    from roquet.admin import set_aside
    from roquet.admin.dead_letters import reading
    from roquet.admin.reach import Reach

    async with Reach(namesrv) as reach, reading(namesrv) as reader:
        if not await set_aside.is_any(reach):
            raise RoquetError("no message is set aside")
        found, ends = await set_aside.kept(reader, fresh_only=wanted is None)
        chosen = found if wanted is None else _chosen(found, wanted)
        if not chosen:
            raise RoquetError("no message is set aside that was not put back before")
        preview = [_line(one) for one in chosen[:SHOWN]]
        if len(chosen) > SHOWN:
            preview.append(f"… and {len(chosen) - SHOWN} more")
        output.preview_of(preview, dry_run=dry_run, json=json)
        failed: list[tuple[KeptMessage, str]] = []
        if not dry_run:
            question = f"Put {output.counted(len(chosen), 'message')} back?"
            await output.agreed(question, yes=yes, apart=json)
            failed = await set_aside.retry(reach, chosen)
            if wanted is None and not failed:
                await set_aside.note_retried(reader, ends)
    _tell(chosen, failed, dry_run=dry_run, json=json)


def _chosen(found: "list[KeptMessage]", wanted: list[str]) -> "list[KeptMessage]":
    by_id = {one.message_id: one for one in found}
    for message_id in wanted:
        if message_id not in by_id:
            raise UsageError(f"{message_id} is not the id of a message that is set aside")
    return [by_id[message_id] for message_id in dict.fromkeys(wanted)]


def _tell(
    chosen: "list[KeptMessage]",
    failed: "list[tuple[KeptMessage, str]]",
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """What became of them; ends with FAILED when some could not be put back."""
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


def _line(one: "KeptMessage") -> str:
    said = (one.broker, one.service, one.place, one.reason)
    shown = "  ".join(output.preview(text.encode(), REASON_MAX) for text in said)
    return f"{one.message_id}  {output.when(one.kept_ms)}  {shown}"
