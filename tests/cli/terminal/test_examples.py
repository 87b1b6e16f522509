"""Every command shows examples, and each of them can be parsed."""

import shlex
from typing import Any

import pytest
from tests.cli.test_failing_brokers import leaves
from typer.main import get_command
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.cli.terminal.examples import EXAMPLES

TREE: Any = get_command(app)
WIDTH = 78
"""Columns of a line of help at a terminal of 80."""


def parsed(line: str) -> str:
    """The command of a command line, once its options are parsed. Raises an error of usage."""
    words = shlex.split(line.partition(" < ")[0].replace("\\\n", ""))
    assert words.pop(0) == "roquet"
    command, path = TREE, ["roquet"]
    context = TREE.make_context("roquet", [], resilient_parsing=True)
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words.pop(0))
        command = command.get_command(context, path[-1])
        is_group = bool(words) and words[0] in getattr(command, "commands", {})
        arguments = [] if is_group else words
        context = command.make_context(
            path[-1], [*arguments], parent=context, resilient_parsing=is_group
        )
    return " ".join(path[1:])


def test_each_example_is_a_command_line_of_its_command() -> None:
    for command, lines in EXAMPLES.items():
        assert 1 <= len(lines) <= 3, command
        for line in lines:
            assert parsed(line) == command
            assert all(len(part) + 2 <= WIDTH for part in line.splitlines()), line


def test_every_command_has_examples() -> None:
    assert {*EXAMPLES} == {*leaves(TREE)}


@pytest.mark.parametrize("command", ["dev", "topic ls", "acl user create", "namesrv"])
def test_help_ends_with_the_examples_a_line_each(command: str) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*command.split(), "--help"]).output
    lines = [line for example in EXAMPLES[command] for line in example.splitlines()]
    assert shown.endswith("".join(f"  {line}\n" for line in ("Examples:", *lines)))


def test_help_fits_into_80_columns() -> None:
    for command in EXAMPLES:
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*command.split(), "--help"]).output
        assert [line for line in shown.splitlines() if len(line) > 80] == [], command
