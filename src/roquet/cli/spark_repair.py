"""roquet spark repair: a group's dead letters as a table, and chosen ones sent again."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from roquet.cli import completion, output, running
from roquet.cli.bars import bar
from roquet.cli.namesrv import Namesrv
from roquet.cli.spark import Master, Options, check_installed, check_java, pairs, servers

if TYPE_CHECKING:
    from roquet.spark.jobs.repair import Params, Progress

TRIES_MAX: Final = 16
"""What groups allow when nobody has set it otherwise."""

Group = Annotated[
    str, typer.Argument(help="The consumer group's name.", autocompletion=completion.groups)
]
Tries = Annotated[int, typer.Option(min=0, help="Retries that the group allows.")]
Where = Annotated[
    str | None, typer.Option(metavar="SQL", help="Which ones: tag = 'new' and tries < 3.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", help="This one: its id, or the message's; may be repeated."),
]


def repair(  # noqa: PLR0913 - each is an option
    group: Group,
    directory: Annotated[str, typer.Argument(help="Where the table is, or is to be.")],
    *,
    retries: Annotated[bool, typer.Option("--retries", help="Also retry topics.")] = False,
    tries_max: Tries = TRIES_MAX,
    resend: Annotated[bool, typer.Option("--resend", help="Send chosen ones again.")] = False,
    where: Where = None,
    ids: Ids = None,
    option: Options = None,
    master: Master = None,
    json: output.Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Keep a group's dead letters in a table. It says why; chosen ones are sent again, once.

    The table knows which were sent: the same command sends nothing twice, whatever is killed.
    """
    running.log_to_stderr(verbose=False)
    check_installed()
    from roquet.spark.jobs.repair import Params

    params = Params(
        group=group,
        directory=directory,
        options={**pairs(option, "--option"), **servers(namesrv)},
        retries=retries,
        tries_max=tries_max,
        resend=resend,
        where=where,
        ids=tuple(ids or ()),
        master=master,
    )
    _repair(params, as_json=json)


def _repair(params: "Params", *, as_json: bool) -> None:
    import msgspec

    from roquet.spark.jobs import repair as job
    from roquet.spark.jobs.running import spark_for

    job.check(params)
    check_java(params.master)
    with bar(params.group, quiet=as_json, left="left") as show:

        def tell(done: "Progress") -> None:
            show(done.new + done.sent, 0)

        done = job.run(params, lambda: spark_for("roquet repair", params.master), tell)
    rows = job.summary(params).to_pylist()
    if as_json:
        place = {"group": params.group, "table": params.directory}
        plain = [{**row, "day": str(row["day"])} for row in rows]
        output.echo_json([{**place, **msgspec.to_builtins(done), "counts": plain}])
    else:
        _show(rows)
        output.echo(_told(params, done))
    job.lost_of(done)


def _show(rows: list[dict[str, Any]]) -> None:
    made = output.table("STATE", "TOPIC", "TAG", "DAY", "REASON", "LETTERS", "SENT", numbers=5)
    for row in rows:
        texts = (row[name] for name in ("state", "origin_topic", "tag", "day", "reason"))
        made.add_row(*(str(one or "-") for one in texts), f"{row['letters']:,}", f"{row['sent']:,}")
    output.console().print(made)


def _told(params: "Params", done: "Progress") -> str:
    parts = [f"{params.group}: {output.counted(done.letters, 'letter')} in {params.directory}"]
    parts.append(f"{done.new:,} new")
    if params.resend:
        parts.append(f"{done.sent:,} of {done.chosen:,} chosen sent again")
        if done.before:
            parts.append(f"{done.before:,} had gone before")
        if done.finished:
            parts.append(f"{done.finished:,} of an earlier run")
    return "; ".join(parts)
