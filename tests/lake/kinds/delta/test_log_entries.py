"""Delta log entries: each has its own version; restores that take rows are refused."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from deltalake import write_deltalake
from tests.lake.conftest import DirectoryObjects
from tests.lake.kinds.delta.delta_log import add_entry

from roquet.lake.kinds.delta.log_entries import check_not_restored, entries, is_restored
from roquet.lake.kinds.delta.storage import LOG
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.table import TableDamaged
from roquet.model.errors import ConfigError

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


def test_entries_of_an_object_store(tmp_path: Path, objects: DirectoryObjects) -> None:
    shutil.copytree(a_table(tmp_path / "lake"), objects.root / "lake" / "orders")
    root = ObjectLocation("s3://lake/orders", {"AWS_REGION": "eu-west-1"})
    assert [each["version"] for each in entries(root, 2)] == [2, 1, 0]
    assert [each["version"] for each in entries(root, 3)] == [], "no such entry"


OWN = 7


"""The version of an archive's last entry, which has the offsets of the two before it."""

NOTES = {3: "20", 4: "30", 6: "30", OWN: "30"}

LAST_DAY = {"datetime": "1769904000000"}


"""The first of February 2026 in UTC, a day after version 6."""


def history(*later: tuple[str, dict[str, object]]) -> list[dict[str, Any]]:
    """A log, newest first: these entries after that of an archive; one version a day."""
    made: list[dict[str, Any]] = [
        {
            "version": version,
            "timestamp": 1769904000000 + (version - OWN) * 86_400_000,
            "operation": "WRITE",
            **({"roquet": {"offsets": NOTES[version]}} if version in NOTES else {}),
        }
        for version in range(OWN + 1 + len(later))
    ]
    for entry, (operation, given) in zip(made[OWN + 1 :], later, strict=True):
        entry.update(operation=operation, operationParameters=given)
    return made[::-1]


def restore(version: object) -> tuple[str, dict[str, object]]:
    return "RESTORE", {"version": version}


@pytest.mark.parametrize(
    "later",
    [
        [],
        [("OPTIMIZE", {})],
        [restore(7), ("OPTIMIZE", {})],
        [restore("4")],  # what came after it moved no offset
        [restore("5")],
        [restore("3"), restore("7")],  # and so it was mended
        [restore("3"), restore("7"), restore("9")],
        [restore("7"), restore("3"), restore("8")],
        [("RESTORE", LAST_DAY)],
        [("RESTORE", {"version": None, "timestamp": "2026-02-01 00:00:00+00:00"})],
        [("RESTORE", {"version": None, "timestamp": "2026-02-02 08:00:00"})],
    ],
)
def test_a_version_with_all_rows_may_be_restored(
    later: list[tuple[str, dict[str, object]]],
) -> None:
    check_not_restored(history(*later), OWN, Path("lake"))


@pytest.mark.parametrize(
    "later",
    [
        [restore("3")],
        [restore("3"), ("OPTIMIZE", {})],
        [restore("8"), restore("2")],
        [restore("3"), restore("8")],  # the rows of 3 again
        [restore("3"), ("OPTIMIZE", {}), restore("9")],
        [("RESTORE", {"datetime": "1769644799999"})],  # just before version 4
        [("RESTORE", {"version": None, "timestamp": "2026-01-20T00:00:00Z"})],
        [("RESTORE", {"version": None, "timestamp": "2026-01-29 08:00:00"})],  # in which zone?
        [("RESTORE", {"version": None, "timestamp": "yesterday"})],
        [("RESTORE", {})],
    ],
)
def test_a_restored_version_that_lacks_rows_is_refused(
    later: list[tuple[str, dict[str, object]]],
) -> None:
    log = history(*later)
    assert is_restored(log)
    with pytest.raises(
        ConfigError, match=r"^lake was restored to a version before 4, .* version 7"
    ):
        check_not_restored(log, OWN, Path("lake"))


def test_without_older_entries_the_last_one_of_the_archive_counts() -> None:
    log = history(restore("6"))
    with pytest.raises(ConfigError, match="restored to a version before 7, the first with all"):
        check_not_restored(log[:1], OWN, Path("lake"))
