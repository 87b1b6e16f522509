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
TableOption = Annotated[
    str, typer.Option(metavar="NAMESPACE.NAME", help="Iceberg: the table in its catalog.")
]
CatalogOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Iceberg: another catalog; may be repeated."),
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
    kind: Annotated[str, typer.Option("--kind", "-k", help="parquet, delta, iceberg.")] = "parquet",
    once: Annotated[
        bool, typer.Option("--once", help="End with what is there now; the default.")
    ] = False,
    every: EveryOption = None,
    start: StartOption = None,
    until: ArchiveUntilOption = None,
    columns: ColumnsOption = None,
    compact: Annotated[bool, typer.Option("--compact", help="Merge small files, too.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove files that kills left behind.")
    ] = False,
    table: TableOption = "",
    catalog: CatalogOption = None,
    storage_option: StorageOption = None,
    option: SourceOptionsOption = None,
    master: MasterOption = None,
    json: output.JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Archive a topic's messages in a table, each exactly once, whatever is killed meanwhile.

    The table keeps its own offsets: the same command continues where it stopped. Days are those of
    `stored_at`, in UTC.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed()
    from roquet.spark.jobs.archive.archive_job import Params

    if once and every:
        raise UsageError("--once or --every: an archive ends, or it does not")
    edges = {"startingOffsets": start, "endingOffsets": until}
    options = {name: text for name, text in edges.items() if text is not None}
    params = Params(
        topic=topic,
        target=directory,
        kind=kind,
        options={**options, **parse_pairs(option, "--option"), **namesrv_source_option(namesrv)},
        columns=tuple(part.strip() for part in columns.split(",")) if columns else (),
        every_ms=parse_millis(every, "--every") if every else None,
        compact=compact,
        name=table,
        catalog=parse_pairs(catalog, "--catalog"),
        storage=parse_pairs(storage_option, "--storage-option"),
        master=master,
    )
    if clean:
        _clean(params)
    else:
        _archive(params, as_json=json)


@app.command()
def lag(  # noqa: PLR0913 - each is an option
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="Of the table and its page: a directory or s3://BUCKET/PATH."
        ),
    ],
    *,
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
    Needs no Java. Exit code 1 when a group will not catch up.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed(("pyspark", "pyarrow", "numpy", "matplotlib"), "spark,pictures")
    from roquet.cli.spark_jobs import lag_output
    from roquet.spark.jobs.lag.lag_job import Params

    params = Params(
        target=directory,
        namesrv=namesrv_source_option(namesrv)["namesrv"],
        every_ms=parse_millis(every, "--every"),
        for_ms=parse_millis(how_long, "--for"),
        groups=tuple(part.strip() for part in groups.split(",")) if groups else (),
        retention_ms=parse_millis(retention, "--retention") if retention else None,
        storage=parse_pairs(storage_option, "--storage-option"),
    )
    lag_output.run(params, _stop_event().is_set, as_json=json)


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
    from roquet.spark.jobs.audit.audit_job import Params

    params = Params(
        topic=topic,
        target=directory,
        producer=producer,
        options={**parse_pairs(option, "--option"), **namesrv_source_option(namesrv)},
        name=table,
        catalog=parse_pairs(catalog, "--catalog"),
        storage=parse_pairs(storage_option, "--storage-option"),
        master=master,
    )
    audit_output.run(params, page, as_json=json)


def check_installed(needed: Sequence[str] = SPARK_PACKAGES, extras: str = "spark") -> None:
    """Raise UsageError, with the command that installs them, when packages are missing."""
    import importlib.util

    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"this needs {', '.join(missing)}: pip install 'roquet[{extras}]'")


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


def parse_pairs(texts: Sequence[str] | None, name: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary. Raises ConfigError for another text."""
    values = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{name}: {text!r} is not NAME=VALUE")
        values[key.strip()] = value.strip()
    return values


def _clean(params: "Params") -> None:
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
    stopped = _stop_event()
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


def _summary_text(params: "Params", done: "ArchiveProgress") -> str:
    parts = [f"{params.topic}: {output.quantity(done.rows, 'message')} to {params.target}"]
    if done.skipped:
        parts.append(f"{done.skipped:,} were gone")
    if done.merged:
        parts.append(f"{output.quantity(done.merged, 'small file')} merged")
    parts.append(f"commit {done.number}, {done.lag:,} behind")
    return "; ".join(parts)


def _stop_event() -> threading.Event:
    """An event that SIGTERM sets: the running batch is committed first. Ctrl-C ends at once."""
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop
