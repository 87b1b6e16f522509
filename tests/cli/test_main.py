import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from roquet import __version__
from roquet.cli import main
from roquet.model.errors import ConfigError, ConnectFailed, StoreLocked, UsageError
from roquet.wire.records.speedups import COMPILED

SOURCE = Path(__file__).parents[2] / "src"

SPARKS = {"pyspark", "pyarrow", "pandas", "numpy"}
HEAVY = SPARKS | {"rich", "matplotlib", "hypothesis", "pytest", "lz4", "zstandard"}


def imported_by(code: str) -> set[str]:
    """The modules that a Python process has after it ran this."""
    code += "\nimport sys, json; print('modules:', json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(run.stdout.rpartition("modules:")[2]))


def test_help_names_every_command_and_imports_neither_spark_nor_an_event_loop() -> None:
    modules = imported_by(
        "from typer.testing import CliRunner\n"
        "from roquet.cli.main import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        "for name in 'dev namesrv broker produce consume dump check demo'.split():\n"
        "    assert name in result.output"
    )
    assert not {name for name in modules if name.split(".")[0] in SPARKS | {"asyncio", "socket"}}


def test_servers_import_neither_spark_nor_a_client_nor_libraries_for_display() -> None:
    modules = imported_by(
        "import roquet.broker.app, roquet.namesrv.app, roquet.cli.process.runtime\n"
        "from roquet.cli.main import SECTIONS, LazyCommands\n"
        "commands = LazyCommands()\n"
        "print([commands[name] for name in SECTIONS['Servers']])"
    )
    assert not {name for name in modules if name.split(".")[0] in HEAVY}
    assert not {name for name in modules if name.startswith("roquet.client")}


def test_a_command_without_its_packages_names_the_extra() -> None:
    program = """
import sys
sys.modules["numpy"] = None
from roquet.cli.main import main
sys.argv = ["roquet", "lake", "query", "x"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "roquet: numpy not installed: pip install 'roquet[lake]'\n"


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(main.app, ["--version"])
    form = "compiled inner loops" if COMPILED else "pure Python"
    assert (result.exit_code, result.output) == (0, f"roquet {__version__} ({form})\n")


@pytest.mark.parametrize("option", ["--namesrv", "-n", "--json"])
def test_an_option_before_the_command_is_shown_its_place(option: str) -> None:
    result = CliRunner().invoke(main.app, [option, "127.0.0.1:9876", "topic", "ls"])
    assert result.exit_code == 2
    assert f"as in `roquet topic ls {option}`" in result.output


@pytest.mark.parametrize("name", main.SYNONYMS)
def test_a_name_of_another_tool_leads_to_ours(name: str) -> None:
    result = CliRunner().invoke(main.app, [name, "orders"])
    assert result.exit_code == 2
    assert f"Did you mean {main.SYNONYMS[name]!r}?" in result.output
    assert main.SYNONYMS[name] in main.MODULES
    assert name not in main.MODULES


def test_without_a_command_the_help_is_printed() -> None:
    assert "Servers:" in CliRunner().invoke(main.app, []).output


def test_a_command_is_in_one_section_of_the_help_with_the_first_sentence_of_its_own() -> None:
    sections = [name for names in main.SECTIONS.values() for name in names]
    commands = get_command(main.app).commands  # type: ignore[attr-defined]
    assert sections == list(commands)
    summaries = {name: one.get_short_help_str(1_000) for name, one in commands.items()}
    assert summaries == {k: v for section in main.SECTIONS.values() for k, v in section.items()}
    assert [one.name for one in commands.values()] == sections


def options(command: Any, name: str = "roquet") -> Iterator[tuple[str, Any]]:
    """Each option and argument of a command and of those below it, with the command's name."""
    for param in command.params:
        yield name, param
    for below, one in getattr(command, "commands", {}).items():
        yield from options(one, f"{name} {below}")


def test_no_option_takes_a_secret_which_every_user_of_the_machine_would_see() -> None:
    found = [*options(get_command(main.app))]
    secrets = re.compile(r"secret|passw|passphrase|token|credential")  # an access key is a name
    taking = [
        f"{name} {param.name}"
        for name, param in found
        if secrets.search(param.name) and not getattr(param, "is_flag", False)
        if not param.name.endswith(("_file", "_command"))
    ]
    assert taking == []
    assert any(param.name == "password_file" for _, param in found), "the walk sees them all"


def test_an_unknown_command_is_wrong_use() -> None:
    result = CliRunner().invoke(main.app, ["porduce"])
    assert result.exit_code == 2
    assert "produce" in result.output, "the right one is suggested"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("no such key"), 2),
        (UsageError("no such topic"), 2),
        (StoreLocked("another process holds it"), 1),
        (ConnectFailed("nobody is there"), 1),
        (OSError("the cable is out"), 1),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == code
    assert capsys.readouterr().err == f"roquet: {error}\n"


def test_notes_of_an_error_are_lines_below_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        error = ConnectFailed("refused")
        error.add_note("it was not signed")
        raise error

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit):
        main.main()
    assert capsys.readouterr().err == "roquet: refused\n  it was not signed\n"


def test_ctrl_c_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    table = tmp_path / "topics.json"
    table.write_text(json.dumps({str(n): "x" * 100 for n in range(10_000)}))
    run = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m roquet dump {table} | head -1"],
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "{\n"
    assert "Traceback" not in run.stderr
