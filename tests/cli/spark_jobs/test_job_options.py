"""Options of jobs become their parameters."""

import importlib.util

import msgspec
import pytest

from roquet.cli.command_options import As, option
from roquet.cli.spark_jobs import job_options
from roquet.cli.spark_jobs.job_options import SparkOptions, StorageOptions, millis
from roquet.model.errors import ConfigError, UsageError


class Params(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    every_ms: int = 10
    columns: tuple[str, ...] = ("all",)
    storage: dict[str, str] = {}
    options: dict[str, str] = {}


class Options(StorageOptions, SparkOptions):
    topic: str = job_options.TOPIC
    every: str | None = option("", gives=As("every_ms", millis("--every")))
    columns: str | None = job_options.COLUMNS
    page: str | None = option("")


def test_texts_become_values_and_an_option_of_no_parameter_is_left_out() -> None:
    options = Options(topic="t", every="2s", columns="a, b", storage_option=["x=1"], page="p.html")
    assert options.params(Params, options=options.source("h:1", startingOffsets=None)) == Params(
        topic="t",
        every_ms=2_000,
        columns=("a", "b"),
        storage={"x": "1"},
        options={"namesrv": "h:1"},
    )
    with pytest.raises(ConfigError, match="--every"):
        Options(topic="t", every="soon").params(Params)


def test_an_option_that_is_not_given_or_empty_leaves_the_default() -> None:
    assert Options(topic="t", columns="", every=None).params(Params) == Params(topic="t")


def test_options_of_the_source_win_over_where_it_begins() -> None:
    options = Options(topic="t", option=["startingOffsets=latest", "timeout=1s"])
    assert options.source("h:1", startingOffsets="earliest") == {
        "startingOffsets": "latest",
        "timeout": "1s",
        "namesrv": "h:1",
    }


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs pyspark, pyarrow: pip install 'roquet\[spark\]'"):
        job_options.check_installed()
