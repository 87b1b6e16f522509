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
    told = io.StringIO()
    with contextlib.redirect_stdout(told), pytest.raises(SystemExit):
        main.main()
    return told.getvalue()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [[], *([name] for name in GROUPS)])
def test_no_summary_is_cut_in_a_narrow_terminal(
    words: list[str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = help_of(words, columns, monkeypatch).splitlines()
    usage = told.index("")
    assert [line for line in told[usage:] if line.endswith("...")] == []
    assert max(map(len, told)) <= columns


@pytest.mark.parametrize("words", [["produce"], ["broker"], ["broker", "set"], ["topic", "create"]])
def test_help_says_in_words_what_options_take(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = help_of(words, 80, monkeypatch).partition("Options:")[2]
    assert re.findall(r"<(?:list|str|int|float|path)[^>]*>", options) == []
