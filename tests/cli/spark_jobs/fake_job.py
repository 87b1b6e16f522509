"""Runs `roquet spark` in the test's process, with a job that does nothing."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from roquet.cli.main import app
from roquet.model.errors import ConfigError


def spark(*words: str, **environ: str) -> Result:
    """The result of a command below `roquet spark`."""
    return CliRunner(env=environ).invoke(app, ["spark", *words])


class FakeJob:
    """Replaces the job of a module, and keeps the parameters that it got."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, job: ModuleType, params: Any, done: Any
    ) -> None:
        self.params = params
        self.done = done
        self.progress: Any = None
        """Told to the command, unless None."""
        self.spark: Any = None
        monkeypatch.setattr(job, "run", self)
        for name in ("NAMESRV_ADDR", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
            monkeypatch.delenv(name, raising=False)

    def __call__(self, params: Any, *callbacks: Any) -> Any:
        self.params, self.spark = params, callbacks[0]
        if self.progress is not None:
            callbacks[1](self.progress)
        return self.done


def refuse_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a machine without Java."""

    def none(*_: object) -> Path:
        raise ConfigError("no Java 17 found: install it")

    monkeypatch.setattr("roquet.spark.java.java_home", none)
