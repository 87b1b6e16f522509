"""A batch read is fixed when it is planned."""

from typing import Any

import pytest

from roquet.model.errors import ConfigError
from roquet.spark.batch import BatchReader
from roquet.spark.options import parse
from roquet.spark.plan import Piece


def reader(canned: Any, **options: str) -> BatchReader:
    given = {"namesrv": canned.namesrv, "topic": "orders", **options}
    return BatchReader(parse(given, {}), ("queue_offset", "body"))


def test_everything_there_is_when_the_read_is_planned(canned: Any) -> None:
    canned.send("broker-a", 0, b"one")
    canned.send("broker-b", 1, b"two", b"three")
    found = reader(canned)
    tasks = found.partitions()
    canned.send("broker-a", 0, b"too late")
    bodies = [body for task in tasks for batch in found.read(task) for body in batch["body"]]
    assert [body.as_py() for body in bodies] == [b"one", b"two", b"three"]


def test_the_users_edges(canned: Any) -> None:
    canned.send("broker-a", 0, *[b"x"] * 10)
    canned.send("broker-b", 1, *[b"y"] * 10)
    (task,) = reader(
        canned,
        startingOffsets='{"orders": {"broker-a": {"0": 4}, "broker-b": {"1": -1}}}',
        endingOffsets='{"orders": {"broker-a": {"0": 6}}}',
    ).partitions()
    assert task.value == (Piece("orders", "broker-a", 0, 4, 6),)


def test_an_empty_topic_has_no_tasks(canned: Any) -> None:
    assert list(reader(canned).partitions()) == []


def test_an_end_that_is_not_there_yet_is_refused(canned: Any) -> None:
    with pytest.raises(ConfigError, match="up to 5, but has messages up to 0"):
        reader(canned, endingOffsets='{"orders": {"broker-a": {"0": 5}}}').partitions()
