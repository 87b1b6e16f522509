"""Runs commands of `roquet` in the test's process."""

import json
import time
from collections.abc import Mapping

import pytest
from typer.testing import CliRunner, Result

from roquet.cli.main import app


def invoke(*arguments: object, typed: str | None = None, **environ: str) -> Result:
    """The result of a command, which holds its error."""
    runner = CliRunner(env=environ)
    return runner.invoke(app, [str(argument) for argument in arguments], input=typed)


def roquet(*arguments: object, typed: str | None = None, environ: Mapping[str, str] = {}) -> Result:
    """The result of a command; an error that is no exit code is raised."""
    result = invoke(*arguments, typed=typed, **{"COLUMNS": "200", **environ})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def must_fail(
    error: type[Exception], text: str, *arguments: object, typed: str | None = None
) -> None:
    """Hold a command to an error whose text a pattern finds."""
    with pytest.raises(error, match=text):
        roquet(*arguments, typed=typed)


def listed_topics(namesrv: str) -> list[str]:
    """Names of the topics that `roquet topic ls` lists."""
    lines = roquet("topic", "ls", "--json", "-n", namesrv).stdout.splitlines()
    return [json.loads(line)["name"] for line in lines]


def wait_for_topic(namesrv: str, topic: str) -> None:
    """Wait until the name server has heard of a topic that a broker made a moment ago."""
    while topic not in listed_topics(namesrv):
        time.sleep(0.01)
