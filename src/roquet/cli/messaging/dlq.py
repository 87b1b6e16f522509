"""roquet dlq ls, show, resend: messages that groups gave up."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import GroupArgument
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.model.errors import RoquetError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from roquet.admin.dead_letters import DeadLetter, DeadLetterCount, DeadLetterFilter

PREVIEW_MAX: Final = 60
"""Characters of a body in text output; `--json` cuts nothing."""

SHOWN: Final = 20
"""Letters shown by default, and lines of a preview."""

FILTER_OPTIONS: Final = ("--id", "--key", "--tag")

LETTERS_STAY: Final = "dead letters stay in {topic} until their files expire: a log only grows"

app: Final = typer.Typer(
    name="dlq", no_args_is_help=True, rich_markup_mode=None, help="Messages that groups gave up."
)

UncutJsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object a line, with nothing cut.")
]


@app.command("ls")
def list_groups(*, json: UncutJsonOption = False, namesrv: NamesrvOption = None) -> None:
    """List the groups with dead letters, and how many each queue holds."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_list(namesrv_addresses(namesrv), as_json=json))


@app.command()
def show(
    group: GroupArgument,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest ones.")] = SHOWN,
    json: UncutJsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Show a group's newest dead letters."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_show(namesrv_addresses(namesrv), group, limit, as_json=json))


@app.command()
def resend(  # noqa: PLR0913 - each is an option
    group: GroupArgument,
    *,
    message_id: Annotated[str | None, typer.Option("--id", help="The one with this id.")] = None,
    key: Annotated[str | None, typer.Option(help="Those with this key.")] = None,
    tag: Annotated[str | None, typer.Option(help="Those with this tag.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that no earlier --all has sent.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="With --all: also what was sent before.")
    ] = False,
    dry_run: output.DryRunOption = False,
    yes: output.YesOption = False,
    json: UncutJsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Send dead letters again to the topics they came from.

    Each becomes a new message with the old body, tag, keys and properties, and the property
    RESENT_FROM with the dead letter's id. The dead letters stay where they are: with --id, --key or
    --tag the same ones are sent each time.
    """
    from roquet.admin.dead_letters import DeadLetterFilter

    runtime.log_to_stderr(verbose=False)
    picks = (message_id, key, tag)
    if everything == any(pick is not None for pick in picks):
        raise UsageError("say which: --all, or --id, --key and --tag")
    if again and not everything:
        raise UsageError("--again goes with --all")
    choice = DeadLetterFilter(message_id=message_id, key=key, tag=tag)
    not_resent_only = everything and not again
    work = _Resend(
        namesrv_addresses(namesrv),
        group,
        choice,
        not_resent_only=not_resent_only,
        is_all=everything,
    )
    runtime.run(work.run(dry_run=dry_run, yes=yes, json=json))


class _Resend:
    """One run of `roquet dlq resend`."""

    def __init__(
        self,
        namesrv: str,
        group: str,
        choice: "DeadLetterFilter",
        *,
        not_resent_only: bool,
        is_all: bool,
    ) -> None:
        self._namesrv = namesrv
        self._group = group
        self._choice = choice
        self._fresh_only = not_resent_only
        self._is_all = is_all

    async def run(self, *, dry_run: bool, yes: bool, json: bool) -> None:
        """Read, show, ask, send; ends with code 1 when some cannot be sent."""
        from roquet.admin import dead_letters

        await dead_letters.check_group(self._namesrv, self._group)
        async with dead_letters.open_reader(self._namesrv) as reader:
            letters, ends = await dead_letters.select(
                reader, self._group, self._choice, not_resent_only=self._fresh_only
            )
            if not letters:
                raise RoquetError(self._nothing())
            faults = [letter.fault for letter in letters]
            lost = [letter for letter, fault in zip(letters, faults, strict=True) if fault]
            letters = [letter for letter, fault in zip(letters, faults, strict=True) if not fault]
            output.show_preview(_preview(letters), dry_run=dry_run, json=json)
            if lost:
                output.echo(f"{output.quantity(len(lost), 'letter')} cannot be sent:", err=True)
            for fault in [fault for fault in faults if fault][:SHOWN]:
                output.echo(f"  {fault}", err=True)
            if letters and not dry_run:
                question = f"Send {output.quantity(len(letters), 'message')} again?"
                await output.confirm(question, yes=yes, to_stderr=json)
                await self._send(letters, to_stderr=json)
                if self._is_all:
                    await dead_letters.save_resent(reader, ends)
        if json:
            output.echo_json({**_fields(letter), "sent": not dry_run} for letter in letters)
            output.echo_json({**_fields(letter), "sent": False} for letter in lost)
        if lost:
            sys.exit(FAILED)

    def _nothing(self) -> str:
        """The error text when no letter is selected."""
        group = repr(self._group)
        if self._is_all:
            hint = ", or all were sent already: --again sends them once more"
            return f"group {group} has no dead letters{hint if self._fresh_only else ''}"
        picks = self._choice.message_id, self._choice.key, self._choice.tag
        filters = [
            f"{name} {value}" for name, value in zip(FILTER_OPTIONS, picks, strict=True) if value
        ]
        wanted = " and ".join(filters)
        return f"group {group} has no dead letter with {wanted}: `roquet dlq show` lists"

    async def _send(self, letters: "Sequence[DeadLetter]", *, to_stderr: bool) -> None:
        from roquet.admin import dead_letters
        from roquet.client.producer import Producer
        from roquet.model.names import dlq_topic

        async with Producer(self._namesrv, group=dead_letters.READER) as producer:
            hidden = not sys.stderr.isatty()
            with typer.progressbar(
                length=len(letters), label="sending", hidden=hidden, file=sys.stderr
            ) as bar:
                await dead_letters.resend(producer, letters, bar.update)
        stay = LETTERS_STAY.format(topic=dlq_topic(self._group))
        output.echo(f"{len(letters)} sent; {stay}", err=to_stderr)


def _preview(letters: "Sequence[DeadLetter]") -> Iterator[str]:
    """Lines that say what is sent, and to which topics."""
    yield from map(_line, letters[:SHOWN])
    if len(letters) > SHOWN:
        yield f"… and {len(letters) - SHOWN} more"
    for topic, count in sorted(Counter(str(one.origin_topic) for one in letters).items()):
        yield f"{count} to topic {topic}"


async def _list(namesrv: str, *, as_json: bool) -> None:
    from roquet.admin import dead_letters

    counts: list[DeadLetterCount] = []
    async with dead_letters.open_reader(namesrv) as reader:
        for group in await dead_letters.groups(namesrv):
            counts += await dead_letters.counts(reader, group)
    if as_json:
        output.echo_json(map(_count_fields, counts))
    elif counts:
        output.console().print(_counts_table(counts))
    else:
        output.echo("no group has dead letters", err=True)
    faults = {f"{one.queue.broker_name}: {one.fault}" for one in counts if one.fault is not None}
    for fault in sorted(faults):
        output.echo(fault, err=True)
    if faults:
        sys.exit(FAILED)


def _counts_table(counts: "Sequence[DeadLetterCount]") -> "Table":
    lines = output.table("group", "queue", "letters", "not resent", numbers=2)
    for count in counts:
        queue = f"{count.queue.broker_name}:{count.queue.queue_id}"
        lines.add_row(count.group, queue, _shown(count.total), _shown(count.not_resent))
    return lines


async def _show(namesrv: str, group: str, limit: int, *, as_json: bool) -> None:
    from roquet.admin import dead_letters

    await dead_letters.check_group(namesrv, group)
    async with dead_letters.open_reader(namesrv) as reader:
        letters = await dead_letters.newest(reader, group, limit)
        counts = await dead_letters.counts(reader, group)
    if not letters:
        raise RoquetError(f"group {group!r} has no dead letters any more")
    for letter in letters:
        if as_json:
            output.echo_json([_fields(letter)])
        else:
            output.echo(_line(letter))
    total = sum(count.total or 0 for count in counts)
    if total > len(letters):
        output.echo(f"the newest {len(letters):,} of {total:,}; --limit shows more", err=True)


def _shown(count: int | None) -> str:
    return "?" if count is None else str(count)


def _line(letter: "DeadLetter") -> str:
    """One letter as a line of text."""
    message = letter.message
    preview = output.one_line(message.body, PREVIEW_MAX)
    key = " ".join(message.keys) or "-"
    return (
        f"{letter.message_id}  {output.time_text(message.stored_ms)}"
        f"  from {letter.origin_topic or '?'}"
        f"  key {key}  failed {message.reconsume_times}  {preview}"
    )


def _fields(letter: "DeadLetter") -> dict[str, Any]:
    more = {"group": letter.group, "origin_topic": letter.origin_topic}
    return {**output.message_fields(letter.message), **more}


def _count_fields(count: "DeadLetterCount") -> dict[str, Any]:
    return {
        "group": count.group,
        "broker": count.queue.broker_name,
        "queue": count.queue.queue_id,
        "letters": count.total,
        "not_resent": count.not_resent,
        "fault": count.fault,
    }
