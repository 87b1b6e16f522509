"""Every `roquet …` that the documents show is a command that there is, with options that it has."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from roquet.cli.main import app

TREE: Any = get_command(app)
ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
SOURCES = sorted((ROOT / "src").rglob("*.py"))

IN_A_BLOCK = re.compile(
    r"^(?:\$ |.*\b(?:sudo|exec) |ExecStart=\S*?|\.venv/bin/|\S+/bin/)?(roquet [^#|>&\n]*)",
    re.MULTILINE,
)
INLINE = re.compile(r"`(roquet [a-z][^`\n]*)`")


def commands_in(text: str) -> Iterator[str]:
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        for match in IN_A_BLOCK.finditer(block.replace("\\\n", " ")):
            yield match[1]
    yield from INLINE.findall(text)


def problem(line: str) -> str | None:
    """The error of a command line; None when it could be run."""
    try:
        words = shlex.split(line.rstrip("; "))[1:]
    except ValueError:
        return None  # a sentence with an apostrophe
    command = TREE
    options = options_of(command)
    while words and getattr(command, "commands", None):
        if words[0] in command.commands:
            command = command.commands[words.pop(0)]
            options = options_of(command)
        elif words[0].startswith("-") or command.invoke_without_command:
            break
        elif re.fullmatch(r"[a-z][\w-]*", words[0]):
            return f"there is no {words[0]!r}"
        else:
            break  # `roquet spark …`
    used_options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    unknown = [word for word in used_options if word not in options]
    return f"no option {unknown}" if unknown else None


def options_of(command: Any) -> set[str]:
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return names | {"--help", "--install-completion", "--show-completion"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_can_be_run(page: Path) -> None:
    lines = [*commands_in(page.read_text("utf-8"))]
    assert {line: problem(line) for line in lines if problem(line)} == {}


def test_every_command_that_our_own_texts_name_can_be_run() -> None:
    problems = {
        f"{path.name}: {line}": problem(line)
        for path in SOURCES
        for line in INLINE.findall(path.read_text("utf-8"))
    }
    assert {line: what for line, what in problems.items() if what} == {}


def test_the_walk_sees_the_commands() -> None:
    text = (ROOT / "docs" / "howto" / "operating.md").read_text("utf-8")
    assert len([*commands_in(text)]) > 20
    assert problem("roquet message query X") == "there is no 'query'"
    assert problem("roquet topic ls --jsn") == "no option ['--jsn']"
    assert problem("roquet broker set broker-a a=1 -y -n x:1") is None
