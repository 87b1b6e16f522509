"""roquet spark replay: rows of a table become messages of a topic again."""

import re
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.cli.command_options import As, argument, option
from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    KIND,
    SparkOptions,
    TableOptions,
    check_installed,
    run_on_spark,
)
from roquet.cli.spark_jobs.lag import duration_text
from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.model.printable_text import size_text

if TYPE_CHECKING:
    from roquet.spark.jobs.replay.replay_job import ReplayProgress
    from roquet.spark.jobs.replay.replay_plan import Params, ReplayPreview

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?)\s*(?:/\s*s(?:ec)?)?", re.ASCII)


def parse_rate(text: str) -> float:
    """Messages per second from `500`, `500/s` or `2.5k/s`. Raises UsageError for another text."""
    match = _RATE.fullmatch(text.strip().lower())
    if match is None or not float(match[1]):
        raise UsageError(f"--rate: {text!r} is no rate such as 500/s")
    return float(match[1]) * (1000 if match[2] else 1)


class ReplayOptions(TableOptions, SparkOptions):
    """Options of `roquet spark replay`."""

    table_directory: str = argument(
        "An archive, or Parquet files.", gives=As("source"), metavar="DIRECTORY"
    )
    topic: str = argument("The topic that gets the messages.")
    begin: str | None = option(
        "Stored from then on: 2026-01-31T12:00, '-1 h'.", "--from", metavar="TIME"
    )
    until: str | None = option("Stored before then.", metavar="TIME")
    key: list[str] | None = option("With this key; may be repeated.", gives=As("keys", tuple))
    only: str | None = option("Only rows of this topic.", "--topic", gives=As("only_topic"))
    limit: int | None = option(
        "Of the chosen messages so many, those that were stored first.", metavar="N", min=1
    )
    rate: str | None = option(
        "Messages a second at most.", gives=As("rate", parse_rate), metavar="N/s"
    )
    tasks: int | None = option(
        "Tasks that send; else as many as there are cores here.", metavar="N", min=1
    )
    since: str | None = option(
        "Earlier messages of the topic are no copies of ours.", metavar="TIME"
    )
    dry_run: bool = option("Only say what would be sent, and to which queues.")
    same_topic: bool = option("Even if the topic still has these very messages.")
    kind: str | None = KIND


def replay(options: ReplayOptions, namesrv: str, as_json: bool) -> Result:
    """Send a table's messages to a topic: in order, at a rate, each once.

    Messages that are in the topic already are not sent again: after a kill the same command sends
    the rest.
    """
    check_installed()
    from roquet.spark.jobs.replay import replay_job, replay_plan

    params = options.params(replay_plan.Params, options=options.source(namesrv))
    if options.dry_run:
        return _preview_result(params, replay_plan.preview(params))
    done, seconds = run_on_spark(
        "replay",
        params.topic,
        replay_job.run,
        params,
        quiet=as_json,
        left="left",
        count=lambda done: (done.rows, done.left),
    )
    place = {"table": params.source, "topic": params.topic}
    fields = {**place, **msgspec.to_builtins(done), "seconds": seconds}
    return Result(json=[fields], text=[_summary_text(params, done)])


def _preview_result(params: "Params", found: "ReplayPreview") -> Result:
    """The numbers of a dry run, and a table of its queues."""
    totals = {"rows": found.rows, "there": found.there, "body_bytes": found.body_bytes}
    fields = {"table": params.source, "topic": params.topic, "dry_run": True, **totals}
    fields |= {"least_seconds": found.least_seconds, "queues": msgspec.to_builtins(found.queues)}
    parts = [
        f"{params.source}: {output.quantity(found.rows, 'message')}, "
        f"{size_text(found.body_bytes)} of bodies, would go to {params.topic}"
    ]
    if found.there:
        parts.append(f"{found.there:,} are there")
    if found.least_seconds is not None:
        parts.append(f"{_least_text(found.least_seconds)} at {found.rate:,g}/s")
    rows = [
        (each.source, each.destination, each.rows, each.there, size_text(each.body_bytes))
        for each in found.queues
    ]
    table = output.table(("from", "to", "messages", "there", "bodies"), rows, numbers=2)
    return Result(json=[fields], text=["; ".join(parts), *([table] if rows else [])])


def _least_text(seconds: float) -> str:
    """`at least 40 s`, `at least 3 h 20 min`."""
    return f"at least {duration_text(seconds) if seconds >= 60 else f'{seconds:.0f} s'}"


def _summary_text(params: "Params", done: "ReplayProgress") -> str:
    parts = [f"{params.source}: {output.quantity(done.rows, 'message')} to {params.topic}"]
    if done.there:
        parts.append(f"{done.there:,} were there")
    if done.doubled:
        parts.append(f"{done.doubled:,} are there twice (read with dropDoubles=true)")
    return "; ".join(parts)
