"""Runs commands of `roquet` in the test's process."""

from collections.abc import Mapping

from typer.testing import CliRunner, Result

from roquet.cli.main import app


def roquet(*arguments: object, typed: str | None = None, environ: Mapping[str, str] = {}) -> Result:
    """The result of a command; an error that is no exit code is raised."""
    runner = CliRunner(env={"COLUMNS": "200", **environ})
    result = runner.invoke(app, [str(argument) for argument in arguments], input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
