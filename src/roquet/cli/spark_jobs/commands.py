"""roquet spark archive, lag, audit: options of the jobs; Spark is imported inside the command."""

import signal
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.name_servers import DEV_NAMESRV, NamesrvOption
from roquet.cli.terminal.progress import progress_bar
from roquet.model.errors import ConfigError, UsageError
from roquet.model.settings import parse_millis

if TYPE_CHECKING:
    from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params

SPARK_PACKAGES: Final = ("pyspark", "pyarrow")
"""Packages that the extra `spark` installs."""

SECRET_OPTIONS: Final[Mapping[str, str]] = {
    "secretkey": "ROCKETMQ_SECRET_KEY",
    "securitytoken": "ROCKETMQ_SECURITY_TOKEN",
}
"""Options of the source that hold a secret, in small letters, and the variables that give it."""

SHOWN_FIELDS: Final = 10
"""Fields without a column that are named on the terminal; --json has them all."""

app: Final = typer.Typer(
    name="spark",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Jobs on Spark: topics to tables.",
)

MasterOption = Annotated[
    str | None,
    typer.Option(help="A Spark master; else the one of spark-submit, else all cores here."),
]
SourceOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="Of the source, as in Spark; may be repeated."
    ),
]


EveryOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Run for ever, with a batch this often: 10s.")
]
StartOption = Annotated[
    str | None,
    typer.Option(help="Where a new table begins: earliest (the default), latest, a time."),
]
ArchiveUntilOption = Annotated[
    str | None, typer.Option(help="End with the last message before this time.")
]
ColumnsOption = Annotated[
    str | None, typer.Option(help="Only these, comma separated, when the table is made.")
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="End with what is there now; the default.")
]
CompactOption = Annotated[bool, typer.Option("--compact", help="Merge small files, too.")]
CleanOption = Annotated[
    bool, typer.Option("--clean", help="Only remove files that kills left behind.")
]
PartitionOption = Annotated[
    str,
    typer.Option(
        metavar="SCHEME", help="Of a new table: day (the default), hour, day,bucket(key,16)."
    ),
]
SortOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMNS", help="Of a new table: the order of rows in merged files."),
]
BodyFormatOption = Annotated[
    str, typer.Option(help="Of a new table: json gives the fields of bodies columns of their own.")
]
BodySchemaOption = Annotated[
    str,
    typer.Option(
        metavar="FIELDS",
        help="The fields: 'id bigint, flight_day=day int'; new ones are added as columns.",
    ),
]
BodyPrefixOption = Annotated[
    str,
    typer.Option(
        metavar="PREFIX", help="The begin of the names of new columns: body_ for body_id."
    ),
]
InferOption = Annotated[
    bool, typer.Option("--infer", help="Add columns for the fields that bodies turn out to have.")
]
TableOption = Annotated[
    str, typer.Option(metavar="NAMESPACE.NAME", help="Iceberg: the table in its catalog.")
]
CatalogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        "--catalog-option",
        metavar="NAME|URI|NAME=VALUE",
        help="Iceberg: a URI, glue, a name in .pyiceberg.yaml, or an option; may be repeated.",
    ),
]

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="Of an object store: AWS_ENDPOINT_URL, AWS_REGION; credentials by the environment.",
    ),
]


@app.callback()
def _spark() -> None:
    """Jobs on Spark; each can be started again at any time."""


@app.command()
def archive(  # noqa: PLR0913 - each is an option
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    directory: Annotated[
        str,
        typer.Argument(help="Where the table is, or is to be: a directory or s3://BUCKET/PATH."),
    ],
    *,
    kind: Annotated[str, typer.Option("--kind", "-k", help="delta, iceberg.")] = "delta",
    once: OnceOption = False,
    every: EveryOption = None,
    start: StartOption = None,
    until: ArchiveUntilOption = None,
    columns: ColumnsOption = None,
    partition_by: PartitionOption = "",
    sort_by: SortOption = None,
    body_format: BodyFormatOption = "",
    body_schema: BodySchemaOption = "",
    body_prefix: BodyPrefixOption = "",
    infer: InferOption = False,
    compact: CompactOption = False,
    clean: CleanOption = False,
    table: TableOption = "",
    catalog: CatalogOption = None,
    storage_option: StorageOption = None,
    option: SourceOptionsOption = None,
    master: MasterOption = None,
    json: output.JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Archive a topic's messages in a table, each exactly once, whatever is killed meanwhile.

    The table keeps its own offsets: the same command continues where it stopped. Days are in UTC.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed()
    from roquet.lake.kinds.iceberg import parse_catalog
    from roquet.spark.jobs.archive.archive_job import Params

    if once and every:
        raise UsageError("--once or --every: an archive ends, or it does not")
    params = Params(
        topic=topic,
        target=directory,
        kind=kind,
        options={**_edges(start, until), **_source_options(option, namesrv)},
        columns=_names(columns),
        partition_by=partition_by,
        sort_by=_names(sort_by),
        body_format=body_format,
        body_schema=body_schema,
        body_prefix=body_prefix,
        infer_body=infer,
        every_ms=parse_millis(every, "--every") if every else None,
        compact=compact,
        name=table,
        catalog=parse_catalog(catalog),
        storage=parse_pairs(storage_option, "--storage-option"),
        master=master,
    )
    (_clean if clean else _archive)(params, as_json=json)


@app.command()
def lag(  # noqa: PLR0913 - each is an option
    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help="Of the samples and their page: a directory or s3://BUCKET/PATH.",
        ),
    ] = None,
    *,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Only the lag that its archive has noted; repeatable."),
    ] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to sample.")] = "10s",
    how_long: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="How long to watch; rates are of it."),
    ] = "10m",
    groups: Annotated[
        str | None, typer.Option(help="Only these, comma separated; else all.")
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For brokers that do not report theirs: 48h."),
    ] = None,
    storage_option: StorageOption = None,
    json: output.JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Forecast the lag of all groups: which catch up when, and which lose messages to retention.

    The samples are a table in DIR/samples, the page is DIR/lag.html. A second run adds to them.
    With --table: how far archives are behind, at once and without brokers. Needs no Java. Exit code
    1 when a group will not catch up, or when retention overtakes an archive.
    """
    runtime.log_to_stderr(verbose=False)
    if (directory is None) == (not table):
        raise UsageError("give DIR, to sample all groups, or --table for the lag of archives")
    if table:
        _table_lag(table, parse_pairs(storage_option, "--storage-option"), retention, json)
        return
    assert directory is not None
    check_installed(("pyspark", "pyarrow", "numpy", "matplotlib"), "spark,pictures")
    from roquet.cli.spark_jobs import lag_output
    from roquet.lake.lag.lag_job import Params

    params = Params(
        target=directory,
        namesrv=namesrv_source_option(namesrv)["namesrv"],
        every_ms=parse_millis(every, "--every"),
        for_ms=parse_millis(how_long, "--for"),
        groups=tuple(part.strip() for part in groups.split(",")) if groups else (),
        retention_ms=parse_millis(retention, "--retention") if retention else None,
        storage=parse_pairs(storage_option, "--storage-option"),
    )
    lag_output.run(params, stop_event().is_set, as_json=json)


def _table_lag(
    tables: Sequence[str], storage: Mapping[str, str], retention: str | None, as_json: bool
) -> None:
    check_installed(("pyarrow", "numpy"))
    from roquet.cli.spark_jobs import table_lag_output

    default_ms = parse_millis(retention, "--retention") if retention else None
    table_lag_output.run(tables, storage, default_ms, as_json=as_json)


@app.command()
def audit(  # noqa: PLR0913 - each is an option
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    directory: Annotated[str, typer.Argument(metavar="TABLE", help="Its archive.")],
    *,
    producer: Annotated[
        str,
        typer.Option(
            metavar="COUNTS",
            help="A producer's counts by hour, JSON or Parquet; or rows: keys of our sink.",
        ),
    ] = "",
    page: Annotated[
        str | None, typer.Option(metavar="FILE", help="An HTML page with all of it.")
    ] = None,
    table: TableOption = "",
    catalog: CatalogOption = None,
    storage_option: StorageOption = None,
    option: SourceOptionsOption = None,
    master: Annotated[
        str | None, typer.Option(help="Read the files on this Spark; else in this process.")
    ] = None,
    json: output.JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Compare an archive with its topic: missing and duplicate messages, by queue and offset.

    Nothing is changed, and the archive may run meanwhile. Exit code 1 when they differ.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed()
    from roquet.cli.spark_jobs import audit_output
    from roquet.lake.kinds.iceberg import parse_catalog
    from roquet.spark.jobs.audit.audit_job import Params

    params = Params(
        topic=topic,
        target=directory,
        producer=producer,
        options=_source_options(option, namesrv),
        name=table,
        catalog=parse_catalog(catalog),
        storage=parse_pairs(storage_option, "--storage-option"),
        master=master,
    )
    audit_output.run(params, page, as_json=json)


def check_installed(needed: Sequence[str] = SPARK_PACKAGES, extras: str = "spark") -> None:
    """Raise UsageError, with the command that installs them, when packages are missing."""
    import importlib.util

    from roquet.spark.versions import OWN_SPARK, find_spark

    find_spark()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        is_spark = "pyspark" in missing and extras == "spark"
        advice = OWN_SPARK if is_spark else f"pip install 'roquet[{extras}]'"
        raise UsageError(f"this needs {', '.join(missing)}: {advice}")


def check_java(master: str | None) -> None:
    """Raise ConfigError without a Java, unless a Spark master was given elsewhere."""
    from roquet.spark.java import java_home
    from roquet.spark.jobs.job_runner import is_session_provided

    if not is_session_provided(master):
        java_home()


def namesrv_source_option(namesrv: str | None) -> Mapping[str, str]:
    """The Spark source's option with the name servers."""
    import os

    return {"namesrv": namesrv or os.environ.get("NAMESRV_ADDR") or DEV_NAMESRV}


def _edges(start: str | None, until: str | None) -> dict[str, str]:
    """The source's options for where an archive begins and ends."""
    edges = {"startingOffsets": start, "endingOffsets": until}
    return {name: text for name, text in edges.items() if text is not None}


def _names(text: str | None) -> tuple[str, ...]:
    """Comma-separated names as a tuple."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def parse_pairs(texts: Sequence[str] | None, name: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary. Raises ConfigError for another text, and for a secret."""
    values = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{name}: {text!r} is not NAME=VALUE")
        if variable := SECRET_OPTIONS.get(key.strip().lower()):
            raise ConfigError(
                f"{name} {key.strip()}: every user of the machine sees the words of a command; set "
                f"{variable} in the environment of the driver and of the workers"
            )
        values[key.strip()] = value.strip()
    return values


def _source_options(option: "Sequence[str] | None", namesrv: str | None) -> dict[str, str]:
    """The options of the source, among them the name server."""
    return {**parse_pairs(option, "--option"), **namesrv_source_option(namesrv)}


def _clean(params: "Params", *, as_json: bool) -> None:  # noqa: ARG001 - it has one line
    """Open the table, which cleans a directory, and remove the orphans of an object store."""
    from roquet.spark.jobs.archive.archive_job import open_archive

    with open_archive(params) as table:
        table.clean()
        number = table.state(()).number
    output.echo(f"{params.target} is clean, at commit {number}")


def _archive(params: "Params", *, as_json: bool) -> None:
    from roquet.net.clock import SYSTEM_CLOCK
    from roquet.spark.jobs.archive.archive_job import run
    from roquet.spark.jobs.job_runner import spark_for

    check_java(params.master)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    stopped = stop_event()
    with progress_bar(params.topic, quiet=as_json) as show:

        def tell(done: "ArchiveProgress") -> None:
            show(done.rows, done.lag)

        done = run(params, lambda: spark_for("roquet archive", params.master), tell, stopped.is_set)
    seconds = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
    if as_json:
        import msgspec

        place = {"topic": params.topic, "table": params.target, "kind": params.kind}
        output.echo_json([{**place, **msgspec.to_builtins(done), "seconds": seconds}])
        return
    output.echo(_summary_text(params, done))
    if done.unknown_fields:
        output.echo(unknown_fields_text(done.unknown_fields))


def unknown_fields_text(counts: "Mapping[str, int]") -> str:
    """Fields of bodies that have no column, the most frequent ones first, and what to do."""
    ranked = sorted(counts.items(), key=lambda field: (-field[1], field[0]))
    names = [f"{name} {count:,}" for name, count in ranked]
    more = f" and {len(names) - SHOWN_FIELDS:,} more" if len(names) > SHOWN_FIELDS else ""
    return (
        f"fields without a column, and bodies that have them: {', '.join(names[:SHOWN_FIELDS])}"
        f"{more}; --body-schema 'COLUMN=FIELD TYPE' adds one, and `roquet spark maintain --refill "
        "COLUMN` fills it for the rows that are there"
    )


def _summary_text(params: "Params", done: "ArchiveProgress") -> str:
    parts = [f"{params.topic}: {output.quantity(done.rows, 'message')} to {params.target}"]
    if done.skipped:
        parts.append(f"{done.skipped:,} were gone")
    if done.merged:
        parts.append(f"{output.quantity(done.merged, 'small file')} merged")
    parts.append(f"commit {done.number}, {done.lag:,} behind")
    return "; ".join(parts)


def stop_event() -> threading.Event:
    """An event that SIGTERM sets: the running batch is committed first. Ctrl-C ends at once."""
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop
