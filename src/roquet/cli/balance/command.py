"""roquet balance: each strategy's assignment of queues to members, and what moves."""

from pathlib import Path
from typing import Final

from roquet.cli.balance import compare, report, screen
from roquet.cli.balance.situation import MemberChange, build_situation
from roquet.cli.command_options import option
from roquet.cli.terminal import output
from roquet.model.errors import UsageError

QUEUES_MAX: Final = 10_000
MEMBERS_MAX: Final = 500
BROKERS_MAX: Final = 26
"""Queues and members: the sizes that strategies are measured with; brokers: one letter each."""


def balance(  # noqa: PLR0913 - the command's options
    *,
    queues: int = option("Of the topic.", default=8, min=1, max=QUEUES_MAX),
    members: int = option("Of the group.", default=3, min=1, max=MEMBERS_MAX),
    brokers: int = option("They hold the queues.", default=1, min=1, max=BROKERS_MAX),
    rooms: int | None = option(
        "Machine rooms; brokers and members are in them in turn; two by default, "
        "one for a single broker.",
        min=1,
    ),
    strategy: str = option("`all` or one name.", default="all"),
    then: MemberChange | None = option("What happens to the members."),
    who: str | None = option("Who leaves or is killed; by default the last."),
    lag: str = option("Messages that wait in each queue: 5,0,9,…", default=""),
    json: bool = option("JSON, with every name."),
    html: Path | None = option("A page with a picture."),
    svg: Path | None = option("The picture alone."),
) -> None:
    """Compare strategies: who has which queue, and what moves.

    No cluster is needed: `roquet balance --queues 8 --members 3 --then join`.
    """
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
        path.write_text(text, "utf-8", "backslashreplace")
    except OSError as error:
        reason = "its folder does not exist" if not path.parent.is_dir() else error.strerror
        raise UsageError(f"{path} cannot be written: {reason}") from error
