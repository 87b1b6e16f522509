"""roquet topic ls, show, create, update, resize, delete: topics on all brokers of a cluster."""

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.admin import topic_view
from roquet.cli.process import runtime
from roquet.cli.terminal import completion, output
from roquet.cli.terminal.arguments import TopicArgument
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import DryRunOption, JsonOption, YesOption
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.admin.resizing import ResizeStep
    from roquet.admin.topics import TopicSettings

app: Final = typer.Typer(
    name="topic", no_args_is_help=True, rich_markup_mode=None, help="Topics and their queues."
)

BrokersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--broker", help="Only on this one; may be repeated.", autocompletion=completion.brokers
    ),
]
PermissionOption = Annotated[str | None, typer.Option("--perm", help="RW, R, W, or - for neither.")]
AttributesOption = Annotated[
    list[str] | None,
    typer.Option("--attribute", help="+message.type=FIFO or -message.type; may be repeated."),
]


@app.command("ls")
def list_topics(
    *,
    system: Annotated[
        bool, typer.Option("--system", help="Retry, dead-letter and system topics, too.")
    ] = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """List the topics."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_list(namesrv, system=system, json=json))


@app.command()
def show(name: TopicArgument, *, json: JsonOption = False, namesrv: NamesrvOption = None) -> None:
    """Show a topic: brokers, settings, queues and groups."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_show(namesrv, name, json=json))


@app.command()
def create(  # noqa: PLR0913 - each is an option
    name: TopicArgument,
    *,
    queues: Annotated[int, typer.Option(min=1, help="On each broker.")] = 8,
    brokers: BrokersOption = None,
    permission: PermissionOption = None,
    order: Annotated[bool, typer.Option("--order", help="An ordered topic.")] = False,
    attributes: AttributesOption = None,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Create a topic on all brokers, or on those named."""
    runtime.log_to_stderr(verbose=False)
    settings = _settings((queues, queues), permission, order or None, attributes)
    runtime.run(_create(namesrv, name, settings, brokers or [], json=json))


@app.command()
def update(  # noqa: PLR0913 - each is an option
    name: TopicArgument,
    *,
    read_queues: Annotated[int | None, typer.Option(min=1, help="On each broker.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="On each broker.")] = None,
    brokers: BrokersOption = None,
    permission: PermissionOption = None,
    order: Annotated[bool | None, typer.Option(help="Whether it is an ordered topic.")] = None,
    attributes: AttributesOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Change a topic's settings. `resize` changes the number of queues safely.

    Options that are not given stay. Asks before messages end up in queues that cannot be read.
    """
    runtime.log_to_stderr(verbose=False)
    settings = _settings((read_queues, write_queues), permission, order, attributes)
    work = _update(namesrv, name, settings, brokers or [], dry_run=dry_run, yes=yes, json=json)
    runtime.run(work)


@app.command()
def resize(
    name: TopicArgument,
    queues: Annotated[int, typer.Argument(help="How many, on each broker.")],
    *,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for producers to refresh their routes.")
    ] = 35.0,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Give a topic more or fewer queues while it is in use; no message is left behind.

    Fewer: the last queues get no new messages, every group reads what is in them, then they are
    removed. That takes as long as the slowest group; after Ctrl-C the same command continues.
    """
    runtime.log_to_stderr(verbose=False)
    runtime.run(_resize(namesrv, name, queues, settle, dry_run=dry_run, yes=yes, json=json))


@app.command()
def delete(
    name: TopicArgument,
    *,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Delete a topic with all its messages."""
    runtime.log_to_stderr(verbose=False)
    runtime.run(_delete(namesrv, name, dry_run=dry_run, yes=yes, json=json))


async def _list(namesrv: str | None, *, system: bool, json: bool) -> None:
    from roquet.admin import topics
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        names = await topics.list_names(admin, system=system)
    if json:
        output.echo_json(names)
    else:
        for name in names or ["no topic"]:
            output.echo(name)


async def _show(namesrv: str | None, name: str, *, json: bool) -> None:
    from roquet.admin import topics
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        info = await topics.show(admin, name)
    if json:
        output.echo_json([info])
    else:
        console = output.console()
        for part in topic_view.topic_parts(info):
            console.print(part)
    if info.problems:
        sys.exit(FAILED)


async def _create(
    namesrv: str | None, name: str, settings: "TopicSettings", brokers: list[str], *, json: bool
) -> None:
    from roquet.admin import topics
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        done = await topics.create(admin, name, settings, brokers)
    if json:
        output.echo_json([{"name": name, "brokers": done, "changed": True}])
        return
    queues = output.quantity(settings.write_queues or 0, "queue")
    output.echo(f"{name}: {queues} on each of {', '.join(done)}")


async def _update(
    namesrv: str | None,
    name: str,
    settings: "TopicSettings",
    brokers: list[str],
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    from roquet.admin import topic_preview, topics
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        info = await topics.show(admin, name)
        change = topic_preview.TopicChange(info, settings, topics.select_brokers(info, brokers))
        if dry_run or change.hides:
            output.show_preview(change.preview(), dry_run=dry_run, json=json)
        if not dry_run:
            if change.hides:
                await output.confirm(f"Change {name}?", yes=yes, to_stderr=json)
            await topics.update(admin, name, settings, brokers)
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
    from roquet.admin import resizing, topic_preview
    from roquet.admin.client import AdminClient

    resizing.check_queue_count(count)
    queues = output.quantity(count, "queue")
    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        info = await resizing.whole_topic(admin, name)
        own = await resizing.broadcasting_groups(admin, info.groups or ())
        preview = topic_preview.resize_preview(info, count, own)
        output.show_preview(preview, dry_run=dry_run, json=json)
        if not dry_run:
            await output.confirm(f"Give {name} {queues}?", yes=yes, to_stderr=json)
            settle_ms = int(settle_s * 1000)
            with closing(_ResizeProgress()) as progress:
                async for step in resizing.resize(admin, name, count, settle_ms=settle_ms):
                    progress.show(step)
    if json:
        fields = topic_preview.resize_fields(info, count, own)
        output.echo_json([{**fields, "changed": not dry_run}])
    elif not dry_run:
        output.echo(f"{name}: {queues} on each broker")


async def _delete(namesrv: str | None, name: str, *, dry_run: bool, yes: bool, json: bool) -> None:
    from roquet.admin import topic_preview, topics
    from roquet.admin.client import AdminClient

    async with AdminClient(namesrv_addresses(namesrv)) as admin:
        info = await topics.show(admin, name)
        output.show_preview(topic_preview.delete_preview(info), dry_run=dry_run, json=json)
        if not dry_run:
            await output.confirm(f"Delete {name} and all its messages?", yes=yes, to_stderr=json)
            await topics.delete(admin, name)
    if json:
        output.echo_json([{**topic_preview.delete_fields(info), "changed": not dry_run}])
    elif not dry_run:
        output.echo(f"{name}: deleted on {topic_preview.broker_names(info)}")


class _ResizeProgress:
    """Shows what a resize waits for: one changing line on a terminal, elsewhere a line a change."""

    def __init__(self) -> None:
        self._last = ""
        self._is_live = sys.stderr.isatty()

    def show(self, step: "ResizeStep") -> None:
        """Show a step."""
        waiting = "".join(f", {group} has {left:,} to read" for group, left in step.waiting.items())
        line = f"{step.doing}{waiting}"
        if self._is_live:
            left = f" ({step.left_ms / 1000:.0f} s)" if step.left_ms else ""
            output.rewrite_line(f"{line}{left}")
        elif line != self._last:
            output.echo(line, err=True)
        self._last = line

    def close(self) -> None:
        """Erase the line on a terminal."""
        if self._is_live and self._last:
            output.rewrite_line("")


def _settings(
    queues: tuple[int | None, int | None],
    permission: str | None,
    order: bool | None,
    attributes: list[str] | None,
) -> "TopicSettings":
    from roquet.admin.topics import TopicSettings, parse_permission

    read, write = queues
    settings = TopicSettings(
        read_queues=read,
        write_queues=write,
        permission=None if permission is None else parse_permission(permission),
        order=order,
        attributes=",".join(attributes) if attributes else None,
    )
    if settings == TopicSettings():
        raise UsageError("say what is to be changed: --help lists it")
    return settings
