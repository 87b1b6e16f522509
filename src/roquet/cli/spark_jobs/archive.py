"""roquet spark archive: writes a topic to a table, each message exactly once."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    As,
    ColumnsOption,
    EveryOption,
    SparkOptions,
    TableOptions,
    TablePlace,
    TopicName,
    check_installed,
    names,
    run_on_spark,
    stop_event,
)
from roquet.cli.terminal import output
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params

SHOWN_FIELDS: Final = 10
"""Fields without a column that are named on the terminal; --json has them all."""


class ArchiveOptions(TableOptions, SparkOptions):
    """Options of `roquet spark archive`."""

    topic: TopicName
    directory: TablePlace
    kind: Annotated[str, typer.Option("--kind", "-k", help="delta, iceberg.")] = "delta"
    once: Annotated[
        bool, typer.Option("--once", help="End with what is there now; the default.")
    ] = False
    every: EveryOption = None
    start: Annotated[
        str | None,
        typer.Option(help="Where a new table begins: earliest (the default), latest, a time."),
    ] = None
    until: Annotated[
        str | None, typer.Option(help="End with the last message before this time.")
    ] = None
    columns: ColumnsOption = None
    partition_by: Annotated[
        str,
        typer.Option(
            metavar="SCHEME", help="Of a new table: day (the default), hour, day,bucket(key,16)."
        ),
    ] = ""
    sort_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Of a new table: the order of rows in merged files."),
        As("sort_by", names),
    ] = None
    body_format: Annotated[
        str,
        typer.Option(help="Of a new table: json gives the fields of bodies columns of their own."),
    ] = ""
    body_schema: Annotated[
        str,
        typer.Option(
            metavar="FIELDS",
            help="The fields: 'id bigint, flight_day=day int'; new ones are added as columns.",
        ),
    ] = ""
    body_prefix: Annotated[
        str,
        typer.Option(
            metavar="PREFIX", help="The begin of the names of new columns: body_ for body_id."
        ),
    ] = ""
    infer: Annotated[
        bool,
        typer.Option("--infer", help="Add columns for the fields that bodies turn out to have."),
        As("infer_body"),
    ] = False
    compact: Annotated[bool, typer.Option("--compact", help="Merge small files, too.")] = False
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove files that kills left behind.")
    ] = False


def archive(options: ArchiveOptions, namesrv: str, as_json: bool) -> Result | None:
    """Archive a topic's messages in a table, each exactly once, whatever is killed meanwhile.

    The table keeps its own offsets: the same command continues where it stopped. Days are in UTC.
    """
    check_installed()
    import msgspec

    from roquet.spark.jobs.archive import archive_job

    if options.once and options.every:
        raise UsageError("--once or --every: an archive ends, or it does not")
    edges = {"startingOffsets": options.start, "endingOffsets": options.until}
    params = options.params(archive_job.Params, options=options.source(namesrv, **edges))
    if options.clean:
        _clean(params)
        return None
    done, seconds = run_on_spark(
        archive_job.run,
        params,
        lambda done: (done.rows, done.lag),
        stop_event().is_set,
        title=params.topic,
        app="roquet archive",
        quiet=as_json,
    )
    place = {"topic": params.topic, "table": params.target, "kind": params.kind}
    fields = msgspec.to_builtins(done)
    return Result(json=[{**place, **fields, "seconds": seconds}], text=_lines(params, done))


def _clean(params: "Params") -> None:
    """Open the table, which cleans a directory, and remove the orphans of an object store."""
    from roquet.spark.jobs.archive.archive_job import open_archive

    with open_archive(params) as table:
        table.clean()
        number = table.state(()).number
    output.echo(f"{params.target} is clean, at commit {number}")


def _lines(params: "Params", done: "ArchiveProgress") -> Iterator[str]:
    parts = [f"{params.topic}: {output.quantity(done.rows, 'message')} to {params.target}"]
    if done.skipped:
        parts.append(f"{done.skipped:,} were gone")
    if done.merged:
        parts.append(f"{output.quantity(done.merged, 'small file')} merged")
    parts.append(f"commit {done.number}, {done.lag:,} behind")
    yield "; ".join(parts)
    if done.unknown_fields:
        yield unknown_fields_text(done.unknown_fields)


def unknown_fields_text(counts: Mapping[str, int]) -> str:
    """Fields of bodies that have no column, the most frequent ones first, and what to do."""
    ranked = sorted(counts.items(), key=lambda field: (-field[1], field[0]))
    texts = [f"{name} {count:,}" for name, count in ranked]
    more = f" and {len(texts) - SHOWN_FIELDS:,} more" if len(texts) > SHOWN_FIELDS else ""
    return (
        f"fields without a column, and bodies that have them: {', '.join(texts[:SHOWN_FIELDS])}"
        f"{more}; --body-schema 'COLUMN=FIELD TYPE' adds one, and `roquet spark maintain --refill "
        "COLUMN` fills it for the rows that are there"
    )
