"""roquet spark archive: writes a topic to a table, each message exactly once."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.cli.command_options import As, option
from roquet.cli.operator_command import Result
from roquet.cli.spark_jobs.job_options import (
    COLUMNS,
    EVERY,
    NEW_KIND,
    TABLE,
    TOPIC,
    BodyOptions,
    SparkOptions,
    TableOptions,
    check_installed,
    names,
    run_on_spark,
    stop_event,
)
from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.model.printable_text import size_text

if TYPE_CHECKING:
    from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params

SHOWN_FIELDS: Final = 10
"""Fields without a column that are named on the terminal; --json has them all."""


class ArchiveOptions(TableOptions, BodyOptions, SparkOptions):
    """Options of `roquet spark archive`."""

    topic: str = TOPIC
    directory: str = TABLE
    kind: str = NEW_KIND
    once: bool = option("End with what is there now; the default.")
    every: str | None = EVERY
    start: str | None = option("Where a new table begins: earliest (the default), latest, a time.")
    until: str | None = option("End with the last message before this time.")
    columns: str | None = COLUMNS
    partition_by: str = option(
        "Of a new table: day (the default), hour, day,bucket(key,16).", default="", metavar="SCHEME"
    )
    sort_by: str | None = option(
        "Of a new table: the order of rows in merged files.",
        gives=As("sort_by", names),
        metavar="COLUMNS",
    )
    compact: bool = option("Merge small files, too.")
    clean: bool = option("Only remove files that kills left behind.")


def archive(options: ArchiveOptions, namesrv: str, as_json: bool) -> Result | None:
    """Archive a topic's messages in a table, each exactly once, whatever is killed meanwhile.

    The table keeps its own offsets: the same command continues where it stopped. Days are in UTC.
    """
    check_installed()
    from roquet.spark.jobs.archive import archive_job

    if options.once and options.every:
        raise UsageError("--once or --every: an archive ends, or it does not")
    edges = {"startingOffsets": options.start, "endingOffsets": options.until}
    source = options.source(namesrv, **edges)
    params = options.params(archive_job.Params, options=source, **options.body_source())
    if options.clean:
        _clean(params)
        return None
    done, seconds = run_on_spark(
        "archive", params.topic, archive_job.run, params, stop_event().is_set, quiet=as_json
    )
    place = {"topic": params.topic, "table": params.target}
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
    if done.bytes:
        parts.append(f"{size_text(done.bytes)} of files")
    if done.skipped:
        parts.append(f"{done.skipped:,} were gone")
    if done.merged:
        parts.append(f"{output.quantity(done.merged, 'small file')} merged")
    parts.append(f"commit {done.number}, {done.lag:,} behind")
    yield "; ".join(parts)
    yield from body_lines(done)


def body_lines(done: "ArchiveProgress") -> Iterator[str]:
    """Lines on bodies that could not be parsed, on new columns and on fields without one."""
    if done.bad_bodies:
        bodies = "1 body" if done.bad_bodies == 1 else f"{done.bad_bodies:,} bodies"
        yield f"{bodies} could not be parsed: the reasons are in the column body_error"
    if done.new_columns:
        more = len(done.new_columns) - SHOWN_FIELDS
        also = f" and {more:,} more" if more > 0 else ""
        yield f"new columns: {', '.join(done.new_columns[:SHOWN_FIELDS])}{also}"
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
