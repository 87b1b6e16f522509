"""Errors in workers are short, and log lines there have Spark's form; elsewhere nothing changes."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from roquet.model.errors import ConfigError
from roquet.observe.log_levels import apply_log_levels
from roquet.spark import worker_process
from roquet.spark.worker_process import HIDE_VARIABLE, WORKER_MARK, SparkFormatter, entry_point


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, as if Spark had started it."""
    monkeypatch.setenv(*WORKER_MARK)
    monkeypatch.setenv(HIDE_VARIABLE, "")


@contextmanager
def unconfigured() -> Iterator[logging.Logger]:
    """Logging as in a new process; gives the logger of the package."""
    root, package = logging.getLogger(), logging.getLogger("roquet")
    before, level = (root.handlers, package.handlers), logging.getLogger("roquet.spark").level
    root.handlers, package.handlers = [], []
    try:
        yield package
    finally:
        root.handlers, package.handlers = before
        logging.getLogger("roquet.spark").setLevel(level)


@entry_point()
def fail(error: Exception) -> None:
    raise error


@pytest.mark.usefixtures("worker")
def test_an_error_of_ours_hides_the_traceback_and_another_one_does_not() -> None:
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert not os.environ[HIDE_VARIABLE]
    with pytest.raises(ConfigError, match="no option"):
        fail(ConfigError("no option 'topics'"))
    assert os.environ[HIDE_VARIABLE]


def test_outside_of_workers_errors_stay_as_they_are() -> None:
    with pytest.raises(ConfigError):
        fail(ConfigError("no option 'topics'"))
    assert HIDE_VARIABLE not in os.environ


@pytest.mark.usefixtures("worker")
def test_lines_have_the_form_of_sparks_console(capsys: pytest.CaptureFixture[str]) -> None:
    with unconfigured() as package:
        with entry_point():
            logging.getLogger("roquet.spark.cluster.x").warning("broker %r is away", "a")
            logging.getLogger("roquet.spark.source.batch").info("Sales: reads 3 messages")
            logging.getLogger("roquet.net").info("connected")
        worker_process.log_as_spark()
        assert len(package.handlers) == 1
    lines = capsys.readouterr().err.splitlines()
    time = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"{time} WARN roquet\.spark: broker 'a' is away", lines[0])
    assert re.fullmatch(rf"{time} INFO roquet\.spark: Sales: reads 3 messages", lines[1])
    assert len(lines) == 2


def test_the_environment_names_other_levels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROQUET_LOG_LEVELS", "roquet.spark:WARNING")
    with unconfigured() as package:
        worker_process.log_as_spark()
        logging.getLogger("roquet.spark.source.batch").info("Sales: reads 3 messages")
        assert package.handlers
    assert not capsys.readouterr().err
    apply_log_levels("")


def test_handlers_of_the_program_get_the_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with unconfigured() as package:
        logging.getLogger().addHandler(logging.NullHandler())
        worker_process.log_as_spark()
        assert not package.handlers
        logging.getLogger().handlers.clear()
        worker_process.log_as_spark()
        logging.getLogger().addHandler(logging.NullHandler())  # a program that configures it later
        package.warning("broker 'a' is away")
    assert not capsys.readouterr().err


def test_names_of_strangers_stay_in_one_line() -> None:
    values = ("a\nb",)
    record = logging.LogRecord("roquet.net.x", logging.ERROR, "", 1, "from %s", values, None)
    assert SparkFormatter().format(record).endswith(r" ERROR roquet.net: from a\nb")
