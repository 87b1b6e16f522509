import io

import pytest
from rich.progress import Progress

from roquet.cli.terminal.printable_console import (
    LINE_INTERVAL_MS,
    PrintableColumn,
    PrintableConsole,
    progress_bar,
    progress_lines,
)
from roquet.testing.clock import in_virtual_time, this_loop


def test_a_string_is_printed_as_it_is_and_escaped() -> None:
    screen = PrintableConsole(file=io.StringIO(), width=80)
    screen.print("[red]x[/red] :smile: \x1b[1m\u202e")
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue() == r"[red]x[/red] :smile: \x1b[1m\u202e" + "\n"


def test_on_a_terminal_only_our_own_colours_are_escape_sequences() -> None:
    screen = PrintableConsole(file=io.StringIO(), width=80, force_terminal=True)
    screen.print("\x1b[31mred", style="bold")
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue() == "\x1b[1m" + r"\x1b[31mred" + "\x1b[0m\n"


def test_a_bar_shows_a_name_as_it_is() -> None:
    screen = PrintableConsole(file=io.StringIO(), width=80)
    with Progress(PrintableColumn("{task.description}"), console=screen) as shown:
        shown.add_task("[red]{a}\x1b[2J", total=None)
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue().strip() == r"[red]{a}\x1b[2J"


def test_a_log_gets_a_line_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("orders", quiet=False) as show:
        show(1_200, 34_000)
    assert capsys.readouterr().err == "orders: 1,200 rows, 34,000 behind\n"


def test_programs_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("orders", quiet=True) as show:
        show(1, 2)
    assert capsys.readouterr().err == ""


def test_an_error_has_no_empty_bar_above(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    for rows in (0, 5):
        with pytest.raises(ZeroDivisionError):
            fail(rows)
        last = capsys.readouterr().err.replace("\r", "\n").rpartition("orders")[2]
        assert ("5 rows" in last) is (rows == 5)


def fail(rows: int) -> None:
    with progress_bar("orders", quiet=False) as show:
        if rows:
            show(rows, 10)
        raise ZeroDivisionError


@in_virtual_time
async def test_a_line_comes_now_and_then_and_only_when_something_has_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = this_loop().clock
    show = progress_lines("orders", "left", clock)
    for rows, pause_ms in (
        (1, 10),
        (2, LINE_INTERVAL_MS),
        (2, LINE_INTERVAL_MS),
        (2, LINE_INTERVAL_MS),
        (3, 0),
    ):
        show(rows, 0)
        await clock.sleep(pause_ms)
    counts = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert counts == ["1", "2", "3"]
