import io

import msgspec
import pytest

from roquet.cli.demo.facts import DemoFacts, TableFacts, verdict
from roquet.cli.demo.screen import Screen
from roquet.cli.terminal.printable_console import PrintableConsole

GOOD = DemoFacts(
    flights=4000,
    sent=4000,
    stored=4000,
    handled=4000,
    twice=1,
    table=TableFacts(rows=4000, distinct=4000, gaps=0, disordered=0),
)


@pytest.fixture
def terminal() -> PrintableConsole:
    return PrintableConsole(file=io.StringIO(), width=200)


def shown(terminal: PrintableConsole) -> str:
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue()


def test_the_verdict_shows_every_check(terminal: PrintableConsole) -> None:
    Screen(terminal).verdict(GOOD)
    assert shown(terminal).count("  ok") == 8
    assert verdict(GOOD) in shown(terminal)


def test_a_failed_fact_is_marked(terminal: PrintableConsole) -> None:
    Screen(terminal).verdict(msgspec.structs.replace(GOOD, sent=3999))
    assert shown(terminal).count("WRONG") == 1
    assert "3,999" in shown(terminal)


def test_owners_are_listed_by_name(terminal: PrintableConsole) -> None:
    Screen(terminal).owners({"two": ["b:0"], "one": ["a:0", "a:1"]})
    lines = shown(terminal).splitlines()
    assert [line.split() for line in lines] == [["one", "a:0", "a:1"], ["two", "b:0"]]


def test_a_bar_moves_in_steps_and_arrives(terminal: PrintableConsole) -> None:
    with Screen(terminal).bar("sending", 2500) as bar:
        for done in range(1, 2501):
            bar.to(done)
    assert "2500/2500" in shown(terminal)


def test_brackets_in_a_step_are_text(terminal: PrintableConsole) -> None:
    Screen(terminal).step("[red]")
    assert shown(terminal) == "[red]\n"
