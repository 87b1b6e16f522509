"""The comparison in a terminal: a strip of queues for each strategy, in its owners' colours."""

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
"""Queues that are shown one by one; beyond that only the numbers say something."""

MEMBERS_MAX: Final = 24
"""Members that are shown in their colours: those begin again after eight."""

COLOURS: Final = (
    "#2f6fde", "#c2700f", "#21845c", "#a33a88", "#6650cc", "#8a7700", "#147f95", "#85583a",
)  # fmt: skip
"""Those of the page, darker: white letters stand on them."""

NOBODY: Final = "-"


def show(
    given: Situation, results: Sequence[StrategyResult], console: Console | None = None
) -> None:
    """Print everything."""
    console = console or PrintableConsole()
    console.print(given.told(), style="bold")
    console.print(_members(given))
    console.print()
    console.print(_table(given, results))
    for line in _notes(given, results):
        console.print(line)


def _members(given: Situation) -> Text:
    """The members in their colours, and their rooms when there are several."""
    text = Text()
    for number, member in enumerate(given.everybody[:MEMBERS_MAX]):
        text.append(f" {printable(member)} ", _style(number))
        room = printable(given.room_of_member(member)) if len(given.rooms) > 1 else ""
        text.append(f" {room}  " if room else " ")
    more = len(given.everybody) - MEMBERS_MAX
    return text.append(f"and {more} more") if more > 0 else text


def _table(given: Situation, results: Sequence[StrategyResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    strips = len(given.queues) <= STRIP_MAX
    table.add_column("strategy", no_wrap=True)
    if strips:
        table.add_column(_labels(given), no_wrap=False)
    for heading in ("share", "waiting", "moves", "least")[: 4 if given.then else 2]:
        if heading != "waiting" or given.lag:
            table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        if strips and given.then:
            table.add_row(result.name, _strip(given, result.before, ()))
        name = "" if strips and given.then else result.name
        table.add_row(name, *_row(given, result, strips=strips))
    return table


def _row(given: Situation, result: StrategyResult, *, strips: bool) -> Iterator[Text | str]:
    """How it is in the end."""
    if strips:
        yield _strip(given, result.after, result.moved)
    yield Text(_range(result.sizes.least, result.sizes.most), _judged(result))
    if given.lag:
        yield _range(result.waiting.least, result.waiting.most)
    if given.then:
        yield Text(f"{len(result.moved):,}", "green" if result.is_least else "")
        yield f"{result.fewest:,}"


def _judged(result: StrategyResult) -> str:
    if result.unowned:
        return "bold red"
    return "green" if result.is_even else ""


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,}-{most:,}"


def _strip(given: Situation, shares: GroupAssignment, moved: Collection[MessageQueue]) -> Text:
    """A cell for each queue: its owner's number, with a star when it was somebody else's."""
    width = _width(given)
    changed = frozenset(moved)
    strip = Text()
    for queue, owner in owners_in_order(given, shares):
        text = NOBODY if owner is None else str(owner + 1)
        mark = "*" if queue in changed else ""
        strip.append(f"{mark}{text}".rjust(width), _style(owner))
        strip.append(" ")
    return strip


def _labels(given: Situation) -> Text:
    """The queues above their cells."""
    width = _width(given)
    return Text(" ".join(_label(given, queue).rjust(width) for queue in given.queues))


def _label(given: Situation, queue: MessageQueue) -> str:
    return printable(given.label(queue))


def _width(given: Situation) -> int:
    labels = max(len(_label(given, queue)) for queue in given.queues)
    return max(len(str(len(given.everybody))) + 1, labels)


def _style(owner: int | None) -> str:
    return "bold red" if owner is None else f"bold #ffffff on {COLOURS[owner % len(COLOURS)]}"


def _notes(given: Situation, results: Sequence[StrategyResult]) -> Iterator[str]:
    """What the numbers mean, and what they say."""
    if any(result.unowned for result in results):
        yield ""
        for result in results:
            if result.unowned:
                yield f"{result.name}: nobody has {_listed(given, result.unowned)}"
    if not given.then:
        return
    yield ""
    yield f"* this queue has moved. least: {_LEAST}"
    yield {
        MemberChange.JOIN: (
            "Each move is a pause of its queue, and messages in flight may come twice."
        ),
        MemberChange.LEAVE: (
            f"{given.who} commits before it leaves: nothing that it had comes twice."
        ),
        MemberChange.KILL: (
            f"{given.who} commits nothing more: what it had in flight comes twice."
        ),
    }[given.then]
    yield from verdict(results)


_LEAST = "so many must move before shares are even, one apart at most."


def verdict(results: Sequence[StrategyResult]) -> Iterator[str]:
    """Of those that end even: who moves how many, and how many would do."""
    even = [result for result in results if result.is_even]
    for fewest in sorted({result.fewest for result in even}):
        told = ", ".join(
            f"{result.name} {'' if number else 'moves '}{len(result.moved):,}"
            for number, result in enumerate(r for r in even if r.fewest == fewest)
        )
        yield f"{told}; {fewest:,} is the least."


def _listed(given: Situation, queues: MessageQueues) -> str:
    shown = ", ".join(given.label(queue) for queue in queues[:12])
    return f"{shown} and {len(queues) - 12:,} more" if len(queues) > 12 else shown
