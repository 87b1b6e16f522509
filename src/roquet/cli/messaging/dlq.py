"""roquet dlq, set-aside: messages that groups gave up, or that brokers' services cannot handle."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import typer
from msgspec.structs import asdict

from roquet.admin import dead_letters
from roquet.admin import set_aside as set_aside_messages
from roquet.admin.client import AdminClient
from roquet.admin.dead_letters import DeadLetter, DeadLetterCount
from roquet.admin.set_aside import SetAsideMessage
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import GroupArgument
from roquet.client.producer import Producer
from roquet.model.errors import RoquetError, UsageError
from roquet.model.names import dlq_topic

PREVIEW_MAX: Final = 60
"""Characters of a body in text output; `--json` cuts nothing."""

SHOWN: Final = 20
"""Letters shown by default, and lines of a preview."""

LETTERS_STAY: Final = "dead letters stay in {topic} until their files expire: a log only grows"

UNCUT: Final = "One JSON object a line, with nothing cut."

REASON_MAX: Final = 1_000
"""Characters of a place or a reason in text output; `--json` cuts nothing."""

dlq: Final = CommandGroup("dlq", "Messages that groups gave up.")
set_aside: Final = CommandGroup("set-aside", "Messages that a broker's services cannot handle.")


@dlq.command("ls", json_help=UNCUT)
async def list_groups(namesrv: str) -> Result:
    """List the groups with dead letters, and how many each queue holds."""
    counts: list[DeadLetterCount] = []
    async with dead_letters.open_reader(namesrv) as reader:
        for group in await dead_letters.groups(namesrv):
            counts += await dead_letters.counts(reader, group)
    faults = {f"{one.queue.broker_name}: {one.fault}" for one in counts if one.fault is not None}
    return Result(
        json=map(_count_fields, counts),
        text=_counts_table(counts),
        hints=() if counts else ("no group has dead letters",),
        faults=sorted(faults),
    )


@dlq.command(json_help=UNCUT)
async def show(
    namesrv: str,
    group: GroupArgument,
    limit: int = option("How many, the newest ones.", default=SHOWN, min=1),
) -> Result:
    """Show a group's newest dead letters."""
    await dead_letters.check_group(namesrv, group)
    async with dead_letters.open_reader(namesrv) as reader:
        letters = await dead_letters.newest(reader, group, limit)
        counts = await dead_letters.counts(reader, group)
    if not letters:
        raise RoquetError(f"group {group!r} has no dead letters any more")
    total = sum(count.total or 0 for count in counts)
    note = f"the newest {len(letters):,} of {total:,}; --limit shows more"
    return Result(
        json=map(_fields, letters),
        text=map(_line, letters),
        notes=[note] if total > len(letters) else (),
    )


@dlq.command(json_help=UNCUT)
async def resend(  # noqa: PLR0913 - each is an option
    namesrv: str,
    approval: Approval,
    group: GroupArgument,
    *,
    message_id: str | None = option("The one with this id.", "--id"),
    key: str | None = option("Those with this key."),
    tag: str | None = option("Those with this tag."),
    everything: bool = option("All that no earlier --all has sent.", "--all"),
    again: bool = option("With --all: also what was sent before."),
) -> Result:
    """Send dead letters again to the topics they came from.

    Each becomes a new message with the old body, tag, keys and properties, and the property
    RESENT_FROM with the dead letter's id. The dead letters stay where they are: with --id, --key or
    --tag the same ones are sent each time.
    """
    filters = {"--id": message_id, "--key": key, "--tag": tag}
    if everything == any(text is not None for text in filters.values()):
        raise UsageError("say which: --all, or --id, --key and --tag")
    if again and not everything:
        raise UsageError("--again goes with --all")
    choice = dead_letters.DeadLetterFilter(message_id=message_id, key=key, tag=tag)
    fresh_only = everything and not again
    await dead_letters.check_group(namesrv, group)
    async with dead_letters.open_reader(namesrv) as reader:
        found, ends = await dead_letters.select(reader, group, choice, not_resent_only=fresh_only)
        if not found:
            wanted = " and ".join(f"{name} {text}" for name, text in filters.items() if text)
            raise RoquetError(_nothing(group, wanted, fresh_only=fresh_only))
        faults = [letter.fault for letter in found]
        lost = [letter for letter, fault in zip(found, faults, strict=True) if fault]
        letters = [letter for letter, fault in zip(found, faults, strict=True) if not fault]
        approval.show(_preview(letters))
        output.echo_errors(_fault_lines([fault for fault in faults if fault]))
        question = f"Send {output.quantity(len(letters), 'message')} again?"
        if letters and await approval.confirm(question):
            try:
                await _send(namesrv, group, letters, to_stderr=approval.as_json)
            except dead_letters.ResendStopped as stopped:
                if everything:  # the next --all goes on there
                    await dead_letters.save_resent(reader, stopped.sent_ends(ends))
                raise
            if everything:
                await dead_letters.save_resent(reader, ends)
    rows = chain(_sent(letters, is_sent=not approval.dry_run), _sent(lost, is_sent=False))
    return Result(json=rows, is_failed=bool(lost))


def _sent(letters: Sequence[DeadLetter], *, is_sent: bool) -> Iterator[dict[str, Any]]:
    for letter in letters:
        yield {**_fields(letter), "sent": is_sent}


def _fault_lines(faults: Sequence[str]) -> Iterator[str]:
    if faults:
        yield f"{output.quantity(len(faults), 'letter')} cannot be sent:"
    for fault in faults[:SHOWN]:
        yield f"  {fault}"


def _nothing(group: str, wanted: str, *, fresh_only: bool) -> str:
    """The error text when no letter is selected; `wanted` is empty with --all."""
    if wanted:
        return f"group {group!r} has no dead letter with {wanted}: `roquet dlq show` lists"
    hint = ", or all were sent already: --again sends them once more"
    return f"group {group!r} has no dead letters{hint if fresh_only else ''}"


async def _send(
    namesrv: str, group: str, letters: Sequence[DeadLetter], *, to_stderr: bool
) -> None:
    async with Producer(namesrv, group=dead_letters.READER) as producer:
        hidden = not sys.stderr.isatty()
        with typer.progressbar(
            length=len(letters), label="sending", hidden=hidden, file=sys.stderr
        ) as bar:
            await dead_letters.resend(producer, letters, bar.update)
    stay = LETTERS_STAY.format(topic=dlq_topic(group))
    output.echo(f"{len(letters)} sent; {stay}", err=to_stderr)


def _preview(letters: Sequence[DeadLetter]) -> Iterator[str]:
    yield from map(_line, letters[:SHOWN])
    if len(letters) > SHOWN:
        yield f"… and {len(letters) - SHOWN} more"
    for topic, count in sorted(Counter(str(one.origin_topic) for one in letters).items()):
        yield f"{count} to topic {topic}"


def _counts_table(counts: Sequence[DeadLetterCount]) -> Iterator[Any]:
    if counts:
        columns = ("group", "queue", "letters", "not resent")
        yield output.table(columns, map(_count_row, counts), numbers=2)


def _count_row(count: DeadLetterCount) -> Sequence[str]:
    numbers = ("?" if one is None else str(one) for one in (count.total, count.not_resent))
    return count.group, f"{count.queue.broker_name}:{count.queue.queue_id}", *numbers


def _line(letter: DeadLetter) -> str:
    message = letter.message
    preview = output.one_line(message.body, PREVIEW_MAX)
    key = " ".join(message.keys) or "-"
    why = f" ({output.one_line(letter.reason, REASON_MAX)})" if letter.reason else ""
    return (
        f"{letter.message_id}  {output.time_text(message.stored_ms)}"
        f"  from {letter.origin_topic or '?'}"
        f"  key {key}  failed {message.reconsume_times}{why}  {preview}"
    )


def _fields(letter: DeadLetter) -> dict[str, Any]:
    more = {
        "group": letter.group, "origin_topic": letter.origin_topic, "reason": letter.reason
    }  # fmt: skip
    return {**output.message_fields(letter.message), **more}


def _count_fields(count: DeadLetterCount) -> dict[str, Any]:
    return {
        "group": count.group,
        "broker": count.queue.broker_name,
        "queue": count.queue.queue_id,
        "letters": count.total,
        "not_resent": count.not_resent,
        "fault": count.fault,
    }


@set_aside.command("ls")
async def list_set_aside(admin: AdminClient, namesrv: str) -> Result:
    """List them, the oldest first: which service, why, and where the message lies."""
    messages: list[SetAsideMessage] = []
    if await set_aside_messages.topic_exists(admin):
        async with dead_letters.open_reader(namesrv) as reader:
            messages, _ = await set_aside_messages.list_messages(reader)
    hints = () if messages else ("no message is set aside",)
    return Result(json=messages, text=map(_set_aside_line, messages), hints=hints)


@set_aside.command()
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
    async with dead_letters.open_reader(namesrv) as reader:
        if not await set_aside_messages.topic_exists(admin):
            raise RoquetError("no message is set aside")
        messages, ends = await set_aside_messages.list_messages(reader, not_retried_only=everything)
        chosen = messages if everything else _select(messages, wanted)
        if not chosen:
            raise RoquetError("no message is set aside that was not put back before")
        preview = [_set_aside_line(one) for one in chosen[:SHOWN]]
        if len(chosen) > SHOWN:
            preview.append(f"… and {len(chosen) - SHOWN} more")
        failed: list[tuple[SetAsideMessage, str]] = []
        if await approval.ask(preview, f"Put {output.quantity(len(chosen), 'message')} back?"):
            failed = await set_aside_messages.retry(admin, chosen)
            if everything and not failed:
                await set_aside_messages.save_retried(reader, ends)
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


def _set_aside_line(one: SetAsideMessage) -> str:
    fields = (one.broker, one.service, one.place, one.reason)
    shown = "  ".join(output.one_line(text, REASON_MAX) for text in fields)
    return f"{one.message_id}  {output.time_text(one.kept_ms)}  {shown}"
