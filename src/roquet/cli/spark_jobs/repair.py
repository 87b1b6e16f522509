"""roquet spark repair: archives a group's dead letters in a table, and resends selected ones."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.spark_jobs.commands import (
    MasterOption,
    SourceOptionsOption,
    StorageOption,
    check_installed,
    check_java,
    namesrv_source_option,
    parse_pairs,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import GroupArgument
from roquet.cli.terminal.name_servers import NamesrvOption
from roquet.cli.terminal.progress import progress_bar

if TYPE_CHECKING:
    from roquet.spark.jobs.repair.repair_job import Params, RepairProgress

TRIES_MAX: Final = 16
"""A group's default number of retries."""

TriesMaxOption = Annotated[int, typer.Option(min=0, help="Retries that the group allows.")]
WhereOption = Annotated[
    str | None, typer.Option(metavar="SQL", help="Select by SQL: tag = 'new' and tries < 3.")
]
IdsOption = Annotated[
    list[str] | None,
    typer.Option("--id", help="This one: its id, or the message's; may be repeated."),
]


def repair(  # noqa: PLR0913 - each is an option
    group: GroupArgument,
    directory: Annotated[
        str,
        typer.Argument(help="Where the table is, or is to be: a directory or s3://BUCKET/PATH."),
    ],
    *,
    retries: Annotated[bool, typer.Option("--retries", help="Also retry topics.")] = False,
    tries_max: TriesMaxOption = TRIES_MAX,
    resend: Annotated[bool, typer.Option("--resend", help="Send selected ones again.")] = False,
    where: WhereOption = None,
    ids: IdsOption = None,
    storage_option: StorageOption = None,
    option: SourceOptionsOption = None,
    master: MasterOption = None,
    json: output.JsonOption = False,
    namesrv: NamesrvOption = None,
) -> None:
    """Keep a group's dead letters in a table, with their reasons; resend selected ones once.

    The table knows which were resent: the same command sends nothing twice, whatever is killed.
    """
    runtime.log_to_stderr(verbose=False)
    check_installed()
    from roquet.spark.jobs.repair.repair_job import Params

    params = Params(
        group=group,
        directory=directory,
        options={**parse_pairs(option, "--option"), **namesrv_source_option(namesrv)},
        retries=retries,
        tries_max=tries_max,
        resend=resend,
        where=where,
        ids=tuple(ids or ()),
        storage=parse_pairs(storage_option, "--storage-option"),
        master=master,
    )
    _repair(params, as_json=json)


def _repair(params: "Params", *, as_json: bool) -> None:
    import msgspec

    from roquet.spark.jobs.job_runner import spark_for
    from roquet.spark.jobs.repair import repair_job as job

    job.check_params(params)
    check_java(params.master)
    with progress_bar(params.group, quiet=as_json, left="left") as show:

        def tell(done: "RepairProgress") -> None:
            show(done.new + done.sent, 0)

        done = job.run(params, lambda: spark_for("roquet repair", params.master), tell)
    rows = job.count_letters(params).to_pylist()
    if as_json:
        place = {"group": params.group, "table": params.directory}
        plain = [{**row, "day": str(row["day"])} for row in rows]
        output.echo_json([{**place, **msgspec.to_builtins(done), "counts": plain}])
    else:
        _show(rows)
        output.echo(_summary_text(params, done))
    job.raise_if_unsendable(done)


def _show(rows: list[dict[str, Any]]) -> None:
    made = output.table("STATE", "TOPIC", "TAG", "DAY", "REASON", "LETTERS", "SENT", numbers=5)
    for row in rows:
        texts = (row[name] for name in ("state", "origin_topic", "tag", "day", "reason"))
        made.add_row(*(str(one or "-") for one in texts), f"{row['letters']:,}", f"{row['sent']:,}")
    output.console().print(made)


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
