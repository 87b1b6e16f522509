"""roquet spark replay: rows of a table become messages of a topic again."""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli import output, running
from roquet.cli.bars import bar
from roquet.cli.namesrv import Namesrv
from roquet.cli.spark import (
    Catalog,
    Master,
    Options,
    Table,
    check_installed,
    check_java,
    pairs,
    servers,
)
from roquet.model.errors import UsageError

if TYPE_CHECKING:
    from roquet.spark.jobs.replay import Params, Progress

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?)\s*(?:/\s*s(?:ec)?)?", re.ASCII)

Kind = Annotated[
    str | None,
    typer.Option("--kind", "-k", help="parquet, delta, iceberg; else as the directory looks."),
]
Begin = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Stored from then on: 2026-01-31T12:00, '-1 h'."),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Stored before then.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="What the topic got before then is no copy of ours."),
]
SameTopic = Annotated[
    bool, typer.Option("--same-topic", help="Even where the topic still has these very messages.")
]
Keys = Annotated[list[str] | None, typer.Option("--key", help="With this key; may be repeated.")]
Only = Annotated[str | None, typer.Option("--topic", help="Only rows of this topic.")]
Rate = Annotated[str | None, typer.Option(metavar="N/s", help="Messages a second at most.")]
Tasks = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Tasks that send; else as many as there are cores here."),
]


def replay(  # noqa: PLR0913 - each is an option
    table_directory: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="An archive, or Parquet files.")
    ],
    topic: Annotated[str, typer.Argument(help="The topic that gets the messages.")],
    *,
    begin: Begin = None,
    until: Until = None,
    key: Keys = None,
    only: Only = None,
    rate: Rate = None,
    tasks: Tasks = None,
    since: Since = None,
    same_topic: SameTopic = False,
    kind: Kind = None,
    table: Table = "",
    catalog: Catalog = None,
    option: Options = None,
    master: Master = None,
    json: output.Json = False,
    namesrv: Namesrv = None,
) -> None:
    """Send a table's messages to a topic: in order, at a rate, each once.

    What is in the topic already is not sent again: the same command does the rest after a kill.
    """
    running.log_to_stderr(verbose=False)
    check_installed()
    from roquet.spark.jobs.replay import Params

    params = Params(
        source=table_directory,
        topic=topic,
        kind=kind,
        options={**pairs(option, "--option"), **servers(namesrv)},
        only_topic=only,
        begin=begin,
        until=until,
        keys=tuple(key or ()),
        rate=rate_of(rate) if rate else None,
        since=since,
        same_topic=same_topic,
        tasks=tasks,
        name=table,
        catalog=pairs(catalog, "--catalog"),
        master=master,
    )
    _replay(params, as_json=json)


def rate_of(text: str) -> float:
    """Messages a second: `500`, `500/s`, `2.5k/s`."""
    found = _RATE.fullmatch(text.strip().lower())
    if found is None or not float(found[1]):
        raise UsageError(f"--rate: {text!r} is no rate such as 500/s")
    return float(found[1]) * (1000 if found[2] else 1)


def _replay(params: "Params", *, as_json: bool) -> None:
    from roquet.net.clock import SYSTEM_CLOCK
    from roquet.spark.jobs.replay import run
    from roquet.spark.jobs.running import spark_for

    check_java(params.master)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    with bar(params.topic, quiet=as_json, left="left") as show:

        def tell(done: "Progress") -> None:
            show(done.rows, done.left)

        done = run(params, lambda: spark_for("roquet replay", params.master), tell)
    if as_json:
        import msgspec

        seconds = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
        place = {"table": params.source, "topic": params.topic}
        output.echo_json([{**place, **msgspec.to_builtins(done), "seconds": seconds}])
        return
    output.echo(_told(params, done))


def _told(params: "Params", done: "Progress") -> str:
    parts = [f"{params.source}: {output.counted(done.rows, 'message')} to {params.topic}"]
    if done.there:
        parts.append(f"{done.there:,} were there")
    if done.doubled:
        parts.append(f"{done.doubled:,} are there twice (read with dropDoubles=true)")
    return "; ".join(parts)
