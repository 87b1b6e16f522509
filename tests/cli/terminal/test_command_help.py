import contextlib
import io
import re

import pytest

from roquet.cli import main

GROUPS = ("topic", "group", "dlq", "set-aside", "message", "cluster", "lab", "spark", "broker")


def help_of(words: list[str], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Help as a terminal shows it; typer's CliRunner has a width of its own."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.argv", ["roquet", *words, "--help"])
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        main.main()
    return text.getvalue()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [[], *([name] for name in GROUPS)])
def test_no_summary_is_cut_in_a_narrow_terminal(
    words: list[str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of(words, columns, monkeypatch).splitlines()
    usage = lines.index("")
    assert [line for line in lines[usage:] if line.endswith("...")] == []
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("words", [["produce"], ["broker"], ["broker", "set"], ["topic", "create"]])
def test_help_describes_option_values_in_words(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = help_of(words, 80, monkeypatch).partition("Options:")[2]
    assert re.findall(r"<(?:list|str|int|float|path)[^>]*>", options) == []
