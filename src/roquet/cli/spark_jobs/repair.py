"""roquet spark repair: archives a group's dead letters in a table, and resends selected ones."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.cli.command_options import As, argument, option
from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    SparkOptions,
    StorageOptions,
    check_installed,
    run_on_spark,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import GroupArgument

if TYPE_CHECKING:
    from roquet.spark.jobs.repair.repair_job import Params, RepairProgress

TRIES_MAX: Final = 16
"""A group's default number of retries."""


class RepairOptions(StorageOptions, SparkOptions):
    """Options of `roquet spark repair`."""

    group: GroupArgument
    directory: str = argument("Where the table is, or is to be: a directory or s3://BUCKET/PATH.")
    retries: bool = option("Also retry topics.")
    tries_max: int = option("Retries that the group allows.", default=TRIES_MAX, min=0)
    resend: bool = option("Send selected ones again.")
    where: str | None = option("Select by SQL: tag = 'new' and tries < 3.", metavar="SQL")
    ids: list[str] | None = option(
        "This one: its id, or the message's; may be repeated.", "--id", gives=As("ids", tuple)
    )


def repair(options: RepairOptions, namesrv: str, as_json: bool) -> None:
    """Keep a group's dead letters in a table, with their reasons; resend selected ones once.

    The table knows which were resent: the same command sends nothing twice, whatever is killed.
    """
    check_installed()
    from roquet.spark.jobs.repair import repair_job as job

    params = options.params(job.Params, options=options.source(namesrv))
    job.check_params(params)
    done, _ = run_on_spark(
        "repair",
        params.group,
        job.run,
        params,
        quiet=as_json,
        left="left",
        count=lambda done: (done.new + done.sent, 0),
    )
    rows = job.count_letters(params).to_pylist()
    place = {"group": params.group, "table": params.directory}
    counts = [{**row, "day": str(row["day"])} for row in rows]
    Result(
        json=[{**place, **msgspec.to_builtins(done), "counts": counts}],
        text=_parts(rows, _summary_text(params, done)),
    ).show(as_json=as_json)
    job.raise_if_unsendable(done)


def _parts(rows: Sequence[Mapping[str, Any]], summary: str) -> Iterator[Any]:
    columns = ("STATE", "TOPIC", "TAG", "DAY", "REASON", "LETTERS", "SENT")
    yield output.table(columns, map(_cells, rows), numbers=5)
    yield summary


def _cells(row: Mapping[str, Any]) -> Iterator[object]:
    for name in ("state", "origin_topic", "tag", "day", "reason"):
        yield str(row[name] or "-")
    yield from (row["letters"], row["sent"])


def _summary_text(params: "Params", done: "RepairProgress") -> str:
    parts = [f"{params.group}: {output.quantity(done.letters, 'letter')} in {params.directory}"]
    parts.append(f"{done.new:,} new")
    if params.resend:
        parts.append(f"{done.sent:,} of {done.chosen:,} chosen sent again")
        if done.before:
            parts.append(f"{done.before:,} had gone before")
        if done.finished:
            parts.append(f"{done.finished:,} of an earlier run")
    return "; ".join(parts)
