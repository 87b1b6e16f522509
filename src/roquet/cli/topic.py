"""roquet topic ls, show, create, update, resize, delete: topics on all brokers of a cluster."""

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli import completion, output, running, topic_view
from roquet.cli.exit_codes import FAILED
from roquet.cli.namesrv import Namesrv, servers
from roquet.cli.output import DryRun, Json, Yes
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.admin.resizing import Step
    from roquet.admin.topics import Settings

app: Final = typer.Typer(
    name="topic", no_args_is_help=True, rich_markup_mode=None, help="Topics and their queues."
)

Name = Annotated[str, typer.Argument(help="The topic's name.", autocompletion=completion.topics)]
Brokers = Annotated[
    list[str] | None,
    typer.Option(
        "--broker", help="On this one alone; may be repeated.", autocompletion=completion.brokers
    ),
]
Permission = Annotated[str | None, typer.Option("--perm", help="RW, R, W, or - for neither.")]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", help="+message.type=FIFO or -message.type; may be repeated."),
]


@app.command("ls")
def list_topics(
    *,
    system: Annotated[
        bool, typer.Option("--system", help="Retry, dead-letter and system topics, too.")
    ] = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """List the topics."""
    running.log_to_stderr(verbose=False)
    running.run(_list(namesrv, system=system, json=json))


@app.command()
def show(name: Name, *, json: Json = False, namesrv: Namesrv = None) -> None:
    """Show a topic: brokers, settings, queues, and who listens."""
    running.log_to_stderr(verbose=False)
    running.run(_show(namesrv, name, json=json))


@app.command()
def create(  # noqa: PLR0913 - each is an option
    name: Name,
    *,
    queues: Annotated[int, typer.Option(min=1, help="On each broker.")] = 8,
    brokers: Brokers = None,
    permission: Permission = None,
    order: Annotated[bool, typer.Option("--order", help="An ordered topic.")] = False,
    attributes: Attributes = None,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Create a topic on all brokers, or on those named."""
    running.log_to_stderr(verbose=False)
    settings = _settings((queues, queues), permission, order or None, attributes)
    running.run(_create(namesrv, name, settings, brokers or [], json=json))


@app.command()
def update(  # noqa: PLR0913 - each is an option
    name: Name,
    *,
    read_queues: Annotated[int | None, typer.Option(min=1, help="On each broker.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="On each broker.")] = None,
    brokers: Brokers = None,
    permission: Permission = None,
    order: Annotated[bool | None, typer.Option(help="Whether it is an ordered topic.")] = None,
    attributes: Attributes = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Change a topic's settings; what is not given stays. `resize` changes queues safely.

    It asks when messages would be in queues that cannot be read.
    """
    running.log_to_stderr(verbose=False)
    settings = _settings((read_queues, write_queues), permission, order, attributes)
    work = _update(namesrv, name, settings, brokers or [], dry_run=dry_run, yes=yes, json=json)
    running.run(work)


@app.command()
def resize(
    name: Name,
    queues: Annotated[int, typer.Argument(help="How many, on each broker.")],
    *,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds in which producers may not have heard of it.")
    ] = 35.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Give a topic more or fewer queues. It may be in use; nothing is left behind.

    Fewer: no new messages for the last queues, then every group reads what is in them, then they
    go. That takes as long as the slowest group; Ctrl-C is safe, and the same command goes on.
    """
    running.log_to_stderr(verbose=False)
    running.run(_resize(namesrv, name, queues, settle, dry_run=dry_run, yes=yes, json=json))


@app.command()
def delete(
    name: Name,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Delete a topic with all its messages."""
    running.log_to_stderr(verbose=False)
    running.run(_delete(namesrv, name, dry_run=dry_run, yes=yes, json=json))


async def _list(namesrv: str | None, *, system: bool, json: bool) -> None:
    from roquet.admin import topics
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await topics.listed(reach, system=system)
    if json:
        output.echo_json(found)
    else:
        for name in found or ["no topic"]:
            output.echo(name)


async def _show(namesrv: str | None, name: str, *, json: bool) -> None:
    from roquet.admin import topics
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await topics.show(reach, name)
    if json:
        output.echo_json([found])
    else:
        console = output.console()
        for part in topic_view.parts(found):
            console.print(part)
    if found.problems:
        sys.exit(FAILED)


async def _create(
    namesrv: str | None, name: str, settings: "Settings", brokers: list[str], *, json: bool
) -> None:
    from roquet.admin import topics
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        done = await topics.create(reach, name, settings, brokers)
    if json:
        output.echo_json([{"name": name, "brokers": done, "changed": True}])
        return
    queues = output.counted(settings.write_queues or 0, "queue")
    output.echo(f"{name}: {queues} on each of {', '.join(done)}")


async def _update(
    namesrv: str | None,
    name: str,
    settings: "Settings",
    brokers: list[str],
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    from roquet.admin import topics
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await topics.show(reach, name)
        change = topic_view.Change(found, settings, topics.chosen(found, brokers))
        if dry_run or change.hides:
            output.preview_of(change.preview(), dry_run=dry_run, json=json)
        if not dry_run:
            if change.hides:
                await output.agreed(f"Change {name}?", yes=yes, apart=json)
            await topics.update(reach, name, settings, brokers)
    if json:
        output.echo_json([{**change.fields(), "changed": not dry_run}])
    elif not dry_run:
        output.echo(f"{name}: changed on {', '.join(change.brokers)}")


async def _resize(
    namesrv: str | None,
    name: str,
    count: int,
    settle_s: float,
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    from roquet.admin import resizing, topics
    from roquet.admin.reach import Reach

    resizing.check_count(count)
    queues = output.counted(count, "queue")
    async with Reach(servers(namesrv)) as reach:
        found = await topics.show(reach, name)
        own = await resizing.broadcasting(reach, found.groups)
        preview = topic_view.resize_preview(found, count, own)
        output.preview_of(preview, dry_run=dry_run, json=json)
        if not dry_run:
            await output.agreed(f"Give {name} {queues}?", yes=yes, apart=json)
            settle_ms = int(settle_s * 1000)
            with closing(_Progress()) as progress:
                async for step in resizing.resize(reach, name, count, settle_ms=settle_ms):
                    progress.tell(step)
    if json:
        fields = topic_view.resize_fields(found, count, own)
        output.echo_json([{**fields, "changed": not dry_run}])
    elif not dry_run:
        output.echo(f"{name}: {queues} on each broker")


async def _delete(namesrv: str | None, name: str, *, dry_run: bool, yes: bool, json: bool) -> None:
    from roquet.admin import topics
    from roquet.admin.reach import Reach

    async with Reach(servers(namesrv)) as reach:
        found = await topics.show(reach, name)
        output.preview_of(topic_view.delete_preview(found), dry_run=dry_run, json=json)
        if not dry_run:
            await output.agreed(f"Delete {name} and all its messages?", yes=yes, apart=json)
            await topics.delete(reach, name)
    if json:
        output.echo_json([{**topic_view.delete_fields(found), "changed": not dry_run}])
    elif not dry_run:
        output.echo(f"{name}: deleted on {topic_view.where(found)}")


class _Progress:
    """One line on a terminal that tells what a resize waits for; elsewhere a line a change."""

    def __init__(self) -> None:
        self._last = ""
        self._is_live = sys.stderr.isatty()

    def tell(self, step: "Step") -> None:
        """Say what is being done."""
        waiting = "".join(f", {group} has {left:,} to read" for group, left in step.waiting.items())
        line = f"{step.doing}{waiting}"
        if self._is_live:
            left = f" ({step.left_ms / 1000:.0f} s)" if step.left_ms else ""
            output.rewrite_line(f"{line}{left}")
        elif line != self._last:
            output.echo(line, err=True)
        self._last = line

    def close(self) -> None:
        """End the line."""
        if self._is_live and self._last:
            output.rewrite_line("")


def _settings(
    queues: tuple[int | None, int | None],
    permission: str | None,
    order: bool | None,
    attributes: list[str] | None,
) -> "Settings":
    from roquet.admin.topics import Settings, parse_permission

    read, write = queues
    found = Settings(
        read_queues=read,
        write_queues=write,
        permission=None if permission is None else parse_permission(permission),
        order=order,
        attributes=",".join(attributes) if attributes else None,
    )
    if found == Settings():
        raise UsageError("say what is to be changed: --help lists it")
    return found
