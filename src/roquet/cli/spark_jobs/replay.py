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
    rate: str | None = option(
        "Messages a second at most.", gives=As("rate", parse_rate), metavar="N/s"
    )
    tasks: int | None = option(
        "Tasks that send; else as many as there are cores here.", metavar="N", min=1
    )
    since: str | None = option(
        "Earlier messages of the topic are no copies of ours.", metavar="TIME"
    )
    same_topic: bool = option("Even if the topic still has these very messages.")
    kind: str | None = KIND


def replay(options: ReplayOptions, namesrv: str, as_json: bool) -> Result:
    """Send a table's messages to a topic: in order, at a rate, each once.

    Messages that are in the topic already are not sent again: after a kill the same command sends
    the rest.
    """
    check_installed()
    from roquet.spark.jobs.replay import replay_job

    params = options.params(replay_job.Params, options=options.source(namesrv))
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


def _summary_text(params: "Params", done: "ReplayProgress") -> str:
    parts = [f"{params.source}: {output.quantity(done.rows, 'message')} to {params.topic}"]
    if done.there:
        parts.append(f"{done.there:,} were there")
    if done.doubled:
        parts.append(f"{done.doubled:,} are there twice (read with dropDoubles=true)")
    return "; ".join(parts)
