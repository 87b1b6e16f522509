"""roquet spark materialize: a topic of keyed changes becomes a table of the latest state."""

from typing import TYPE_CHECKING, Annotated

import typer

from roquet.cli.process import runtime
from roquet.cli.spark_jobs.commands import (
    CatalogOption,
    ColumnsOption,
    EveryOption,
    MasterOption,
    SourceOptionsOption,
    StorageOption,
    check_installed,
    check_java,
    namesrv_source_option,
    parse_pairs,
    stop_event,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.name_servers import NamesrvOption
from roquet.cli.terminal.progress import progress_bar
from roquet.model.settings import parse_millis

if TYPE_CHECKING:
    from roquet.spark.jobs.archive.archive_job import ArchiveProgress
    from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, Params

KeyOption = Annotated[str, typer.Option(metavar="key|property:NAME", help="What tells rows apart.")]
DeletesOption = Annotated[
    str, typer.Option(metavar="tombstone|keep", help="Rows of deleted keys go, or are marked.")
]
NullKeysOption = Annotated[
    str, typer.Option(metavar="refuse|quarantine", help="Messages without a key.")
]
BucketsOption = Annotated[
    int,
    typer.Option(metavar="N", help="Partitions of a new table; a commit rewrites touched ones."),
]
MaterializeStartOption = Annotated[
    str | None, typer.Option(help="Where a new table begins: earliest (the default), a time.")
]


def materialize(  # noqa: PLR0913 - each is an option
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    table: Annotated[
        str,
        typer.Argument(help="Where the table is, or is to be: a directory or s3://BUCKET/PATH."),
    ],
    *,
    kind: Annotated[str, typer.Option("--kind", "-k", help="delta, iceberg.")] = "delta",
    key: KeyOption = "key",
    deletes: DeletesOption = "tombstone",
    null_keys: NullKeysOption = "refuse",
    buckets: BucketsOption = 16,
    every: EveryOption = None,
    start: MaterializeStartOption = None,
    columns: ColumnsOption = None,
    table_name: Annotated[
        str,
        typer.Option("--table", metavar="NAMESPACE.NAME", help="Iceberg: its name in its catalog."),
    ] = "",
    catalog: CatalogOption = None,
    storage_option: StorageOption = None,
    option: SourceOptionsOption = None,
    master: MasterOption = None,
    json: output.JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Keep a table with the latest message of each key, whatever is killed meanwhile.

    The table keeps its own offsets: the same command continues where it stopped. A message with the
    body `null`, or the property tombstone=true, deletes its key.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed()
    if kind != "iceberg":
        check_installed(("deltalake",), "delta")
    from roquet.lake.kinds.iceberg import parse_catalog
    from roquet.spark.jobs.materialize.materialize_job import Params

    edges = {"startingOffsets": start} if start is not None else {}
    params = Params(
        topic=topic,
        target=table,
        kind=kind,
        name=table_name,
        catalog=parse_catalog(catalog),
        key=key,
        deletes=deletes,
        null_keys=null_keys,
        buckets=buckets,
        columns=tuple(part.strip() for part in columns.split(",")) if columns else (),
        options={**edges, **parse_pairs(option, "--option"), **namesrv_source_option(namesrv)},
        every_ms=parse_millis(every, "--every") if every else None,
        storage=parse_pairs(storage_option, "--storage-option"),
        master=master,
    )
    _materialize(params, as_json=json)


def _materialize(params: "Params", *, as_json: bool) -> None:
    from roquet.net.clock import SYSTEM_CLOCK
    from roquet.spark.jobs.job_runner import spark_for
    from roquet.spark.jobs.materialize.materialize_job import run

    check_java(params.master)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    stopped = stop_event()
    with progress_bar(params.topic, quiet=as_json) as show:

        def tell(done: "ArchiveProgress") -> None:
            show(done.rows, done.lag)

        done = run(
            params, lambda: spark_for("roquet materialize", params.master), tell, stopped.is_set
        )
    seconds = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
    if as_json:
        import msgspec

        place = {"topic": params.topic, "table": params.target}
        fields = msgspec.to_builtins(done)
        del fields["merged"], fields["unknown_fields"]  # an archive's alone
        output.echo_json([{**place, **fields, "seconds": seconds}])
        return
    output.echo(_summary_text(params, done))


def _summary_text(params: "Params", done: "MaterializeProgress") -> str:
    parts = [f"{params.topic}: {output.quantity(done.rows, 'change')} to {params.target}"]
    parts.append(f"{output.quantity(done.changed, 'row')} written, {done.deleted:,} deleted")
    if done.null_keys:
        parts.append(f"{done.null_keys:,} without a key")
    if done.moved:
        parts.append(f"{output.quantity(done.moved, 'key')} from several queues")
    parts.append(f"commit {done.number}, {done.lag:,} behind")
    return "; ".join(parts)
