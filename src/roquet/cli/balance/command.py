"""roquet balance: each strategy's assignment of queues to members, and what moves."""

from pathlib import Path
from typing import Annotated, Final

import typer

from roquet.cli.balance.situation import MemberChange
from roquet.cli.terminal import output
from roquet.model.errors import UsageError

QUEUES_MAX: Final = 10_000
MEMBERS_MAX: Final = 500
BROKERS_MAX: Final = 26
"""Queues and members: the sizes that strategies are measured with; brokers: one letter each."""


def balance(  # noqa: PLR0913 - the command's options
    *,
    queues: Annotated[int, typer.Option(min=1, max=QUEUES_MAX, help="Of the topic.")] = 8,
    members: Annotated[int, typer.Option(min=1, max=MEMBERS_MAX, help="Of the group.")] = 3,
    brokers: Annotated[int, typer.Option(min=1, max=BROKERS_MAX, help="They hold the queues.")] = 1,
    rooms: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Machine rooms; brokers and members are in them in turn; two by default, "
            "one for a single broker.",
        ),
    ] = None,
    strategy: Annotated[str, typer.Option(help="`all` or one name.")] = "all",
    then: Annotated[MemberChange | None, typer.Option(help="What happens to the members.")] = None,
    who: Annotated[
        str | None, typer.Option(help="Who leaves or is killed; by default the last.")
    ] = None,
    lag: Annotated[str, typer.Option(help="Messages that wait in each queue: 5,0,9,…")] = "",
    json: Annotated[bool, typer.Option("--json", help="JSON, with every name.")] = False,
    html: Annotated[Path | None, typer.Option(help="A page with a picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="The picture alone.")] = None,
) -> None:
    """Compare strategies: who has which queue, and what moves.

    No cluster is needed: `roquet balance --queues 8 --members 3 --then join`.
    """
    from roquet.cli.balance import compare, report, screen
    from roquet.cli.balance.situation import build_situation

    situation = build_situation(
        queues=queues, brokers=brokers, members=members, rooms=rooms, lag=lag, then=then, who=who
    )
    results = compare.compare(situation, compare.strategy_names(strategy))
    if html is not None:
        _write(html, report.html(situation, results, [*screen.verdict(results)]))
    if svg is not None:
        _write(svg, report.svg(situation, results))
    if json:
        output.echo_lines(output.json_text(compare.json_fields(situation, results), pretty=True))
    else:
        screen.show(situation, results)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        reason = "its folder does not exist" if not path.parent.is_dir() else error.strerror
        raise UsageError(f"{path} cannot be written: {reason}") from error
