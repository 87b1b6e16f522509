"""roquet spark replay: rows of a table become messages of a topic again."""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    As,
    SparkOptions,
    TableKindOption,
    TableOptions,
    check_installed,
    run_on_spark,
)
from roquet.cli.terminal import output
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.spark.jobs.replay.replay_job import Params, ReplayProgress

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?)\s*(?:/\s*s(?:ec)?)?", re.ASCII)


def parse_rate(text: str) -> float:
    """Messages per second from `500`, `500/s` or `2.5k/s`. Raises UsageError for another text."""
    match = _RATE.fullmatch(text.strip().lower())
    if match is None or not float(match[1]):
        raise UsageError(f"--rate: {text!r} is no rate such as 500/s")
    return float(match[1]) * (1000 if match[2] else 1)


class ReplayOptions(TableOptions, SparkOptions):
    """Options of `roquet spark replay`."""

    table_directory: Annotated[
        str,
        typer.Argument(metavar="DIRECTORY", help="An archive, or Parquet files."),
        As("source"),
    ]
    topic: Annotated[str, typer.Argument(help="The topic that gets the messages.")]
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Stored from then on: 2026-01-31T12:00, '-1 h'."
        ),
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Stored before then.")] = None
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="With this key; may be repeated."),
        As("keys", tuple),
    ] = None
    only: Annotated[
        str | None, typer.Option("--topic", help="Only rows of this topic."), As("only_topic")
    ] = None
    rate: Annotated[
        str | None,
        typer.Option(metavar="N/s", help="Messages a second at most."),
        As("rate", parse_rate),
    ] = None
    tasks: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Tasks that send; else as many as there are cores here."
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Earlier messages of the topic are no copies of ours."),
    ] = None
    same_topic: Annotated[
        bool, typer.Option("--same-topic", help="Even if the topic still has these very messages.")
    ] = False
    kind: TableKindOption = None


def replay(options: ReplayOptions, namesrv: str, as_json: bool) -> Result:
    """Send a table's messages to a topic: in order, at a rate, each once.

    Messages that are in the topic already are not sent again: after a kill the same command sends
    the rest.
    """
    check_installed()
    import msgspec

    from roquet.spark.jobs.replay import replay_job

    params = options.params(replay_job.Params, options=options.source(namesrv))
    done, seconds = run_on_spark(
        replay_job.run,
        params,
        lambda done: (done.rows, done.left),
        title=params.topic,
        app="roquet replay",
        quiet=as_json,
        left="left",
    )
    place = {"table": params.source, "topic": params.topic}
    fields = {**place, **msgspec.to_builtins(done), "seconds": seconds}
    return Result(json=[fields], text=[_summary_text(params, done)])


def _summary_text(params: "Params", done: "ReplayProgress") -> str:
    parts = [f"{params.source}: {output.quantity(done.rows, 'message')} to {params.topic}"]
    if done.there:
        parts.append(f"{done.there:,} were there")
    if done.doubled:
        parts.append(f"{done.doubled:,} are there twice (read with dropDoubles=true)")
    return "; ".join(parts)
