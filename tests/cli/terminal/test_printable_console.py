import io

from rich.progress import Progress

from roquet.cli.terminal.printable_console import PrintableColumn, PrintableConsole


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
