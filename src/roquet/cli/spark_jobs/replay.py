"""roquet spark replay: rows of a table become messages of a topic again."""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.spark_jobs.commands import (
    CatalogOption,
    MasterOption,
    SourceOptionsOption,
    StorageOption,
    TableOption,
    check_installed,
    check_java,
    namesrv_source_option,
    parse_pairs,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.name_servers import NamesrvOption
from roquet.cli.terminal.progress import progress_bar
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.spark.jobs.replay.replay_job import Params, ReplayProgress

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?)\s*(?:/\s*s(?:ec)?)?", re.ASCII)

TableKindOption = Annotated[
    str | None,
    typer.Option("--kind", "-k", help="delta, iceberg; else as the directory looks."),
]
ReplayFromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Stored from then on: 2026-01-31T12:00, '-1 h'."),
]
ReplayUntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Stored before then.")]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Earlier messages of the topic are no copies of ours."),
]
SameTopicOption = Annotated[
    bool, typer.Option("--same-topic", help="Even if the topic still has these very messages.")
]
KeysOption = Annotated[
    list[str] | None, typer.Option("--key", help="With this key; may be repeated.")
]
OnlyTopicOption = Annotated[str | None, typer.Option("--topic", help="Only rows of this topic.")]
RateOption = Annotated[str | None, typer.Option(metavar="N/s", help="Messages a second at most.")]
TasksOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Tasks that send; else as many as there are cores here."),
]


def replay(  # noqa: PLR0913 - each is an option
    table_directory: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="An archive, or Parquet files.")
    ],
    topic: Annotated[str, typer.Argument(help="The topic that gets the messages.")],
    *,
    begin: ReplayFromOption = None,
    until: ReplayUntilOption = None,
    key: KeysOption = None,
    only: OnlyTopicOption = None,
    rate: RateOption = None,
    tasks: TasksOption = None,
    since: SinceOption = None,
    same_topic: SameTopicOption = False,
    kind: TableKindOption = None,
    table: TableOption = "",
    catalog: CatalogOption = None,
    storage_option: StorageOption = None,
    option: SourceOptionsOption = None,
    master: MasterOption = None,
    json: output.JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Send a table's messages to a topic: in order, at a rate, each once.

    Messages that are in the topic already are not sent again: after a kill the same command sends
    the rest.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed()
    from roquet.lake.kinds.iceberg import parse_catalog
    from roquet.spark.jobs.replay.replay_job import Params

    params = Params(
        source=table_directory,
        topic=topic,
        kind=kind,
        options={**parse_pairs(option, "--option"), **namesrv_source_option(namesrv)},
        only_topic=only,
        begin=begin,
        until=until,
        keys=tuple(key or ()),
        rate=parse_rate(rate) if rate else None,
        since=since,
        same_topic=same_topic,
        tasks=tasks,
        name=table,
        catalog=parse_catalog(catalog),
        storage=parse_pairs(storage_option, "--storage-option"),
        master=master,
    )
    _replay(params, as_json=json)


def parse_rate(text: str) -> float:
    """Messages per second from `500`, `500/s` or `2.5k/s`. Raises UsageError for another text."""
    match = _RATE.fullmatch(text.strip().lower())
    if match is None or not float(match[1]):
        raise UsageError(f"--rate: {text!r} is no rate such as 500/s")
    return float(match[1]) * (1000 if match[2] else 1)


def _replay(params: "Params", *, as_json: bool) -> None:
    from roquet.net.clock import SYSTEM_CLOCK
    from roquet.spark.jobs.job_runner import spark_for
    from roquet.spark.jobs.replay.replay_job import run

    check_java(params.master)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    with progress_bar(params.topic, quiet=as_json, left="left") as show:

        def tell(done: "ReplayProgress") -> None:
            show(done.rows, done.left)

        done = run(params, lambda: spark_for("roquet replay", params.master), tell)
    if as_json:
        import msgspec

        seconds = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
        place = {"table": params.source, "topic": params.topic}
        output.echo_json([{**place, **msgspec.to_builtins(done), "seconds": seconds}])
        return
    output.echo(_summary_text(params, done))


def _summary_text(params: "Params", done: "ReplayProgress") -> str:
    parts = [f"{params.source}: {output.quantity(done.rows, 'message')} to {params.topic}"]
    if done.there:
        parts.append(f"{done.there:,} were there")
    if done.doubled:
        parts.append(f"{done.doubled:,} are there twice (read with dropDoubles=true)")
    return "; ".join(parts)
