from typing import TYPE_CHECKING, Annotated

import pytest
import typer
from typer.testing import CliRunner
from typer.testing import Result as Ended

from roquet.cli.operator_command import Approval, CommandGroup, Result, as_command
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.admin.client import AdminClient

Names = Annotated[list[str], typer.Argument()]

app = CommandGroup("things", "Things.")


@app.command("ls")
async def list_things(admin: "AdminClient", names: Names) -> Result:
    return Result(json=[{"names": names, "client": type(admin).__name__}], text=["text", "more"])


@app.command(json_help="Else a line.")
async def drop(approval: Approval, names: Names) -> Result:
    await approval.ask([f"{name} is there" for name in names], "Drop them?")
    return approval.result([{"name": name} for name in names], "dropped")


@app.command()
def fail(*, how: Annotated[str, typer.Option()] = "fault") -> Result:
    if how == "error":
        return Result(json=[1], text=["one"], error=RoquetError("in the end"))
    if how == "quietly":
        return Result(json=[1], text=["one"], is_failed=True)
    return Result(json=[1], text=["one"], hints=["try two"], faults=["two is away"])


@app.command()
def lines(namesrv: str, as_json: bool) -> "Iterator[str]":
    yield namesrv
    yield str(as_json)


def run(*arguments: str, typed: str | None = None) -> Ended:
    return CliRunner(env={"NAMESRV_ADDR": ""}).invoke(app, list(arguments), input=typed)


def test_a_client_is_opened_and_the_result_is_printed() -> None:
    assert run("ls", "a", "b").output == "text\nmore\n"
    shown = run("ls", "a", "--json", "-n", "h:1")
    assert shown.output == '{"names":["a"],"client":"AdminClient"}\n'


def test_a_change_is_asked_about_and_a_no_or_a_dry_run_makes_none() -> None:
    assert run("drop", "a", "-y").output == "a is there\ndropped\n"
    refused = run("drop", "a", typed="n\n")
    assert (refused.exit_code, "dropped" in refused.output) == (1, False)
    dry = run("drop", "a", "--dry-run", "--json")
    assert dry.stdout == '{"name":"a","changed":false}\n'
    assert dry.stderr == "a is there\nnothing was changed (--dry-run)\n"
    assert "Else a line." in run("drop", "--help").output


def test_a_fault_is_the_exit_code_and_a_hint_is_none() -> None:
    failed = run("fail")
    assert (failed.exit_code, failed.stdout) == (1, "one\n")
    assert failed.stderr == "try two\ntwo is away\n"
    as_json = run("fail", "--json")
    assert (as_json.exit_code, as_json.stdout, as_json.stderr) == (1, "1\n", "two is away\n")
    quiet = run("fail", "--how", "quietly")
    assert (quiet.exit_code, quiet.stderr) == (1, "")


def test_an_error_is_raised_after_everything_was_printed() -> None:
    result = run("fail", "--how", "error")
    assert (result.stdout, str(result.exception)) == ("one\n", "in the end")


def test_lines_are_printed_and_given_parameters_are_no_arguments() -> None:
    assert run("lines", "--json", "-n", "h:1").output == "h:1\nTrue\n"
    assert run("lines").output == "127.0.0.1:9876\nFalse\n"


@pytest.mark.parametrize("group", [app, CommandGroup("empty", no_args_is_help=False)])
def test_a_group_lists_its_commands_without_arguments(group: CommandGroup) -> None:
    assert group.info.no_args_is_help is (group is app)


def test_a_function_that_needs_nothing_is_a_command_as_it_is() -> None:
    def plain(*, names: Names) -> None:
        """Take names."""

    assert as_command(plain) is plain
