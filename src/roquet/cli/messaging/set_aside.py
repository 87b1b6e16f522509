"""roquet set-aside ls, retry: messages that a broker's services cannot handle."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import asdict

from roquet.admin import set_aside
from roquet.admin.client import AdminClient
from roquet.admin.dead_letters import open_reader
from roquet.admin.set_aside import SetAsideMessage
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import output
from roquet.model.errors import RoquetError, UsageError

SHOWN: Final = 20
"""Messages in a preview."""

REASON_MAX: Final = 1_000
"""Characters of a place or a reason in text output; `--json` cuts nothing."""

app: Final = CommandGroup("set-aside", "Messages that a broker's services cannot handle.")


@app.command("ls")
async def list_set_aside(admin: AdminClient, namesrv: str) -> Result:
    """List them, the oldest first: which service, why, and where the message lies."""
    messages: list[SetAsideMessage] = []
    if await set_aside.topic_exists(admin):
        async with open_reader(namesrv) as reader:
            messages, _ = await set_aside.list_messages(reader)
    hints = () if messages else ("no message is set aside",)
    return Result(json=messages, text=map(_line, messages), hints=hints)


@app.command()
async def retry(
    admin: AdminClient,
    namesrv: str,
    approval: Approval,
    message_ids: list[str] | None = argument("As `ls` shows them.", metavar="ID…"),
    everything: bool = option("All that no earlier --all has put back.", "--all"),
) -> Result:
    """Put messages back to the work of their services; the copies stay until they expire.

    One that cannot be handled this time either is set aside again.
    """
    if everything == bool(message_ids):
        raise UsageError("say which: --all, or their ids")
    wanted = [one.upper() for one in message_ids or ()]
    async with open_reader(namesrv) as reader:
        if not await set_aside.topic_exists(admin):
            raise RoquetError("no message is set aside")
        messages, ends = await set_aside.list_messages(reader, not_retried_only=everything)
        chosen = messages if everything else _select(messages, wanted)
        if not chosen:
            raise RoquetError("no message is set aside that was not put back before")
        preview = [_line(one) for one in chosen[:SHOWN]]
        if len(chosen) > SHOWN:
            preview.append(f"… and {len(chosen) - SHOWN} more")
        failed: list[tuple[SetAsideMessage, str]] = []
        if await approval.ask(preview, f"Put {output.quantity(len(chosen), 'message')} back?"):
            failed = await set_aside.retry(admin, chosen)
            if everything and not failed:
                await set_aside.save_retried(reader, ends)
    return _result(chosen, failed, is_done=not approval.dry_run)


def _select(messages: list[SetAsideMessage], wanted: list[str]) -> list[SetAsideMessage]:
    by_id = {one.message_id: one for one in messages}
    for message_id in wanted:
        if message_id not in by_id:
            raise UsageError(f"{message_id} is not the id of a message that is set aside")
    return [by_id[message_id] for message_id in dict.fromkeys(wanted)]


def _result(
    chosen: Sequence[SetAsideMessage],
    failed: Sequence[tuple[SetAsideMessage, str]],
    *,
    is_done: bool,
) -> Result:
    why = {one.message_id: fault for one, fault in failed}
    rows = ({**asdict(one), "put_back": is_done and one.message_id not in why} for one in chosen)
    line = f"{len(chosen) - len(why)} put back"
    faults = [f"{message_id}: {fault}" for message_id, fault in why.items()]
    return Result(json=rows, text=[line] if is_done else (), faults=faults)


def _line(one: SetAsideMessage) -> str:
    fields = (one.broker, one.service, one.place, one.reason)
    shown = "  ".join(output.one_line(text.encode(), REASON_MAX) for text in fields)
    return f"{one.message_id}  {output.time_text(one.kept_ms)}  {shown}"
