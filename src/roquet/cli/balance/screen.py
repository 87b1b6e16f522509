"""Terminal view of the comparison: a strip of queues for each strategy, in the owners' colours."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roquet.cli.balance.compare import StrategyResult, owners_in_order
from roquet.cli.balance.situation import MemberChange, Situation
from roquet.cli.terminal.printable_console import PrintableConsole
from roquet.model.printable_text import printable
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment, MessageQueues

STRIP_MAX: Final = 160
"""Queues that are shown one by one; of more only the numbers are shown."""

MEMBERS_MAX: Final = 24
"""Members that are shown in colours, which repeat after eight."""

COLOURS: Final = (
    "#2f6fde", "#c2700f", "#21845c", "#a33a88", "#6650cc", "#8a7700", "#147f95", "#85583a",
)  # fmt: skip
"""The page's colours, darker, for white letters on them."""

NOBODY: Final = "-"


def show(
    situation: Situation, results: Sequence[StrategyResult], console: Console | None = None
) -> None:
    """Print the comparison."""
    console = console or PrintableConsole()
    console.print(situation.summary(), style="bold")
    console.print(_members(situation))
    console.print()
    console.print(_table(situation, results))
    for line in _notes(situation, results):
        console.print(line)


def _members(situation: Situation) -> Text:
    text = Text()
    for number, member in enumerate(situation.all_members[:MEMBERS_MAX]):
        text.append(f" {printable(member)} ", _style(number))
        room = printable(situation.room_of_member(member)) if len(situation.rooms) > 1 else ""
        text.append(f" {room}  " if room else " ")
    more = len(situation.all_members) - MEMBERS_MAX
    return text.append(f"and {more} more") if more > 0 else text


def _table(situation: Situation, results: Sequence[StrategyResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    strips = len(situation.queues) <= STRIP_MAX
    table.add_column("strategy", no_wrap=True)
    if strips:
        table.add_column(_labels(situation), no_wrap=False)
    for heading in ("share", "waiting", "moves", "least")[: 4 if situation.then else 2]:
        if heading != "waiting" or situation.lag:
            table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        if strips and situation.then:
            table.add_row(result.name, _strip(situation, result.before, ()))
        name = "" if strips and situation.then else result.name
        table.add_row(name, *_row(situation, result, strips=strips))
    return table


def _row(situation: Situation, result: StrategyResult, *, strips: bool) -> Iterator[Text | str]:
    if strips:
        yield _strip(situation, result.after, result.moved)
    yield Text(_range(result.sizes.least, result.sizes.most), _judged(result))
    if situation.lag:
        yield _range(result.waiting.least, result.waiting.most)
    if situation.then:
        yield Text(f"{len(result.moved):,}", "green" if result.is_least else "")
        yield f"{result.fewest:,}"


def _judged(result: StrategyResult) -> str:
    if result.unowned:
        return "bold red"
    return "green" if result.is_even else ""


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,}-{most:,}"


def _strip(situation: Situation, shares: GroupAssignment, moved: Collection[MessageQueue]) -> Text:
    """A cell for each queue: its owner's number, with a star if it has moved."""
    width = _width(situation)
    changed = frozenset(moved)
    strip = Text()
    for queue, owner in owners_in_order(situation, shares):
        text = NOBODY if owner is None else str(owner + 1)
        mark = "*" if queue in changed else ""
        strip.append(f"{mark}{text}".rjust(width), _style(owner))
        strip.append(" ")
    return strip


def _labels(situation: Situation) -> Text:
    width = _width(situation)
    return Text(" ".join(_label(situation, queue).rjust(width) for queue in situation.queues))


def _label(situation: Situation, queue: MessageQueue) -> str:
    return printable(situation.label(queue))


def _width(situation: Situation) -> int:
    labels = max(len(_label(situation, queue)) for queue in situation.queues)
    return max(len(str(len(situation.all_members))) + 1, labels)


def _style(owner: int | None) -> str:
    return "bold red" if owner is None else f"bold #ffffff on {COLOURS[owner % len(COLOURS)]}"


def _notes(situation: Situation, results: Sequence[StrategyResult]) -> Iterator[str]:
    """Notes below the table: queues without an owner, the meaning of moves, the verdict."""
    if any(result.unowned for result in results):
        yield ""
        for result in results:
            if result.unowned:
                yield f"{result.name}: nobody has {_listed(situation, result.unowned)}"
    if not situation.then:
        return
    yield ""
    yield f"* this queue has moved. least: {_LEAST}"
    yield {
        MemberChange.JOIN: (
            "Each move is a pause of its queue, and messages in flight may come twice."
        ),
        MemberChange.LEAVE: (
            f"{situation.changed_member} commits before it leaves: nothing that it had comes twice."
        ),
        MemberChange.KILL: (
            f"{situation.changed_member} commits nothing more: what it had in flight comes twice."
        ),
    }[situation.then]
    yield from verdict(results)


_LEAST = "so many must move before shares are even, one apart at most."


def verdict(results: Sequence[StrategyResult]) -> Iterator[str]:
    """Lines on the strategies that end even: their moves, and the fewest possible."""
    even = [result for result in results if result.is_even]
    for fewest in sorted({result.fewest for result in even}):
        moves = ", ".join(
            f"{result.name} {'' if number else 'moves '}{len(result.moved):,}"
            for number, result in enumerate(r for r in even if r.fewest == fewest)
        )
        yield f"{moves}; {fewest:,} is the least."


def _listed(situation: Situation, queues: MessageQueues) -> str:
    shown = ", ".join(situation.label(queue) for queue in queues[:12])
    return f"{shown} and {len(queues) - 12:,} more" if len(queues) > 12 else shown
