"""Delta entries: each has its own version, whoever wrote it, and only what is asked for is read."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from deltalake import write_deltalake
from tests.lake.kinds.delta.delta_log import add_entry

from roquet.lake.kinds.delta.entries import entries
from roquet.lake.kinds.delta.storage import LOG
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.table import TableDamaged

if TYPE_CHECKING:
    from tests.lake.conftest import DirectoryObjects

UNNAMED: dict[str, Any] = {"txn": {"appId": "other", "version": 1}}
"""A change that another engine adds without a `commitInfo`."""


def a_table(root: Path) -> Path:
    """A table whose second entry has no `commitInfo`, and whose third has blank lines."""
    write_deltalake(str(root), pa.table({"id": [1]}))
    add_entry(root, UNNAMED)
    write_deltalake(str(root), pa.table({"id": [2]}), mode="append")
    newest = entry(root, 2)
    newest.write_text("\n" + newest.read_text("utf-8") + "\n \n", "utf-8")
    return root


def entry(root: Path, version: int) -> Path:
    return root / LOG / f"{version:020}.json"


def test_an_entry_without_a_commit_info_shifts_no_other_version(tmp_path: Path) -> None:
    root = a_table(tmp_path / "lake")
    found = list(entries(root, 2))
    assert [each["version"] for each in found] == [2, 1, 0]
    assert [each.get("operation") for each in found] == ["WRITE", None, "WRITE"]
    assert found[1] == {"version": 1}
    assert [each["version"] for each in Log(str(root)).history()] == [2, 1], "deltalake counts"


def test_older_versions_begin_where_one_asks(tmp_path: Path) -> None:
    assert [each["version"] for each in entries(a_table(tmp_path / "lake"), 1)] == [1, 0]


def test_they_end_where_older_entries_were_removed(tmp_path: Path) -> None:
    root = a_table(tmp_path / "lake")
    entry(root, 0).unlink()
    assert [each["version"] for each in entries(root, 2)] == [2, 1]


def test_the_newest_is_read_alone_and_damage_is_a_sentence(tmp_path: Path) -> None:
    root = a_table(tmp_path / "lake")
    entry(root, 1).write_text("<html>", "utf-8")
    found = entries(root, 2)
    assert next(found)["version"] == 2
    with pytest.raises(TableDamaged, match=r"^entry 1 of the Delta log of .*lake: JSON is malfo"):
        next(found)


def test_long_logs_are_in_order(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    write_deltalake(str(root), pa.table({"id": [1]}))
    for number in range(1, 20):
        add_entry(root, {"commitInfo": {"operation": f"step {number}"}})
    assert [each["operation"] for each in entries(root, 19)] == [
        *(f"step {number}" for number in range(19, 0, -1)),
        "WRITE",
    ]


def test_entries_of_an_object_store(tmp_path: Path, objects: "DirectoryObjects") -> None:
    shutil.copytree(a_table(tmp_path / "lake"), objects.root / "lake" / "orders")
    root = ObjectLocation("s3://lake/orders", {"AWS_REGION": "eu-west-1"})
    assert [each["version"] for each in entries(root, 2)] == [2, 1, 0]
    assert [each["version"] for each in entries(root, 3)] == [], "no such entry"
