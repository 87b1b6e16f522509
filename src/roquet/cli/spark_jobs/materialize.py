"""roquet spark materialize: a topic of keyed changes becomes a table of the latest state."""

from typing import TYPE_CHECKING

import msgspec

from roquet.cli.command_options import As, option
from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.archive import body_lines
from roquet.cli.spark_jobs.job_options import (
    COLUMNS,
    EVERY,
    NEW_KIND,
    TABLE,
    TOPIC,
    BodyOptions,
    CatalogOptions,
    SparkOptions,
    check_installed,
    run_on_spark,
    stop_event,
)
from roquet.cli.terminal import output
from roquet.model.printable_text import size_text

if TYPE_CHECKING:
    from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, Params


class MaterializeOptions(CatalogOptions, BodyOptions, SparkOptions):
    """Options of `roquet spark materialize`."""

    topic: str = TOPIC
    table: str = TABLE
    kind: str = NEW_KIND
    key: str = option(
        "Of a new table: what tells rows apart; key (the default).",
        default="",
        metavar="key|property:NAME",
    )
    deletes: str = option(
        "Of a new table: rows of deleted keys go (tombstone, the default), or are marked.",
        default="",
        metavar="tombstone|keep",
    )
    null_keys: str = option(
        "Messages without a key.", default="refuse", metavar="refuse|quarantine"
    )
    buckets: int | None = option(
        "Of a new table: partitions, 16 if not said; a commit rewrites touched ones.", metavar="N"
    )
    every: str | None = EVERY
    start: str | None = option("Where a new table begins: earliest (the default), a time.")
    columns: str | None = COLUMNS
    table_name: str = option(
        "Iceberg: its name in its catalog.",
        "--table",
        default="",
        gives=As("name"),
        metavar="NAMESPACE.NAME",
    )


def materialize(options: MaterializeOptions, namesrv: str, as_json: bool) -> Result:
    """Keep a table with the latest message of each key, whatever is killed meanwhile.

    The table keeps its own offsets: the same command continues where it stopped. A message with the
    body `null`, or the property tombstone=true, deletes its key.
    """
    check_installed()
    if options.kind == "delta":
        check_installed(("deltalake",), "delta")
    from roquet.spark.jobs.materialize import materialize_job as job

    source = options.source(namesrv, startingOffsets=options.start)
    params = options.params(job.Params, options=source, **options.body_source())
    done, seconds = run_on_spark(
        "materialize", params.topic, job.run, params, stop_event().is_set, quiet=as_json
    )
    fields = msgspec.to_builtins(done)
    del fields["merged"]  # an archive's alone
    place = {"topic": params.topic, "table": params.target}
    return Result(
        json=[{**place, **fields, "seconds": seconds}],
        text=[_summary_text(params, done), *body_lines(done)],
    )


def _summary_text(params: "Params", done: "MaterializeProgress") -> str:
    parts = [f"{params.topic}: {output.quantity(done.rows, 'change')} to {params.target}"]
    parts.append(f"{output.quantity(done.changed, 'row')} written, {done.deleted:,} deleted")
    if done.bytes:
        parts.append(f"{size_text(done.bytes)} of files")
    if done.null_keys:
        parts.append(f"{done.null_keys:,} without a key")
    if done.moved:
        parts.append(f"{output.quantity(done.moved, 'key')} from several queues")
    parts.append(f"commit {done.number}, {done.lag:,} behind")
    return "; ".join(parts)
