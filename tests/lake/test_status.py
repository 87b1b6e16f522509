"""A status is kept beside the table, and a damaged one is none."""

from pathlib import Path
from typing import Any

import pytest
from tests.lake.conftest import DirectoryObjects

from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.status import (
    JobStatus,
    LagPoint,
    find_status,
    read_statuses,
    status_path,
    write_status,
)
from roquet.model.errors import ConfigError

POINT = LagPoint(at_ms=60_000, committed=7, waiting=5, oldest_ms=20_000)


def status(topic: str = "orders", **fields: Any) -> JobStatus:
    usual: dict[str, Any] = {
        "job": "archive", "number": 3, "committed_ms": 50_000, "offsets": {}, "points": (POINT,),
    }  # fmt: skip
    return JobStatus(topic=topic, **{**usual, **fields})


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert find_status(tmp_path, "orders") is None
    write_status(tmp_path, status(number=2))
    write_status(tmp_path, status())
    write_status(tmp_path, status("bills"))
    assert find_status(tmp_path, "orders") == status()
    assert read_statuses(str(tmp_path)) == [status("bills"), status()]


def test_a_status_may_lie_in_an_object_store(objects: DirectoryObjects) -> None:
    location = ObjectLocation("s3://lake/orders")
    assert find_status(location, "orders") is None
    write_status(location, status())
    assert find_status(location, "orders") == status()
    assert read_statuses("s3://lake/orders") == [status()]


def test_the_lag_is_that_of_the_last_point() -> None:
    earlier = LagPoint(at_ms=1, committed=0, waiting=100)
    assert (status(points=(earlier, POINT)).lag, status().lag_s) == (5, 40.0)
    assert status(points=(earlier,)).lag_s == 0.0


def test_a_damaged_status_is_none(tmp_path: Path) -> None:
    write_status(tmp_path, status())
    (tmp_path / status_path("orders")).write_bytes(b'{"job": 7')
    assert find_status(tmp_path, "orders") is None
    with pytest.raises(ConfigError, match="has no status"):
        read_statuses(str(tmp_path))


def test_a_place_without_a_table_has_no_status(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no status"):
        read_statuses(str(tmp_path / "nothing"))


def test_no_topic_leaves_the_directory() -> None:
    assert status_path("../../etc|x") == "_roquet/status/..=2f=..=2f=etc=7c=x.json"
