"""roquet spark materialize: a topic of keyed changes becomes a table of the latest state."""

from typing import TYPE_CHECKING, Annotated

import typer

from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    As,
    CatalogOptions,
    ColumnsOption,
    EveryOption,
    SparkOptions,
    TablePlace,
    TopicName,
    check_installed,
    run_on_spark,
    stop_event,
)
from roquet.cli.terminal import output

if TYPE_CHECKING:
    from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, Params


class MaterializeOptions(CatalogOptions, SparkOptions):
    """Options of `roquet spark materialize`."""

    topic: TopicName
    table: TablePlace
    kind: Annotated[str, typer.Option("--kind", "-k", help="delta, iceberg.")] = "delta"
    key: Annotated[
        str, typer.Option(metavar="key|property:NAME", help="What tells rows apart.")
    ] = "key"
    deletes: Annotated[
        str,
        typer.Option(metavar="tombstone|keep", help="Rows of deleted keys go, or are marked."),
    ] = "tombstone"
    null_keys: Annotated[
        str, typer.Option(metavar="refuse|quarantine", help="Messages without a key.")
    ] = "refuse"
    buckets: Annotated[
        int,
        typer.Option(
            metavar="N", help="Partitions of a new table; a commit rewrites touched ones."
        ),
    ] = 16
    every: EveryOption = None
    start: Annotated[
        str | None, typer.Option(help="Where a new table begins: earliest (the default), a time.")
    ] = None
    columns: ColumnsOption = None
    table_name: Annotated[
        str,
        typer.Option("--table", metavar="NAMESPACE.NAME", help="Iceberg: its name in its catalog."),
        As("name"),
    ] = ""


def materialize(options: MaterializeOptions, namesrv: str, as_json: bool) -> Result:
    """Keep a table with the latest message of each key, whatever is killed meanwhile.

    The table keeps its own offsets: the same command continues where it stopped. A message with the
    body `null`, or the property tombstone=true, deletes its key.
    """
    check_installed()
    if options.kind != "iceberg":
        check_installed(("deltalake",), "delta")
    import msgspec

    from roquet.spark.jobs.materialize import materialize_job as job

    source = options.source(namesrv, startingOffsets=options.start)
    params = options.params(job.Params, options=source)
    done, seconds = run_on_spark(
        job.run,
        params,
        lambda done: (done.rows, done.lag),
        stop_event().is_set,
        title=params.topic,
        app="roquet materialize",
        quiet=as_json,
    )
    fields = msgspec.to_builtins(done)
    del fields["merged"], fields["unknown_fields"]  # an archive's alone
    place = {"topic": params.topic, "table": params.target}
    return Result(
        json=[{**place, **fields, "seconds": seconds}], text=[_summary_text(params, done)]
    )


def _summary_text(params: "Params", done: "MaterializeProgress") -> str:
    parts = [f"{params.topic}: {output.quantity(done.rows, 'change')} to {params.target}"]
    parts.append(f"{output.quantity(done.changed, 'row')} written, {done.deleted:,} deleted")
    if done.null_keys:
        parts.append(f"{done.null_keys:,} without a key")
    if done.moved:
        parts.append(f"{output.quantity(done.moved, 'key')} from several queues")
    parts.append(f"commit {done.number}, {done.lag:,} behind")
    return "; ".join(parts)
