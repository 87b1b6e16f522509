"""Delta restores: those that take rows from an archive are refused, all others are not."""

from pathlib import Path
from typing import Any

import pytest

from roquet.lake.kinds.delta.restores import check_not_restored, is_restored
from roquet.model.errors import ConfigError

OWN = 7
"""The version of an archive's last entry, which has the offsets of the two before it."""

NOTES = {3: "20", 4: "30", 6: "30", OWN: "30"}

LAST_DAY = {"datetime": "1769904000000"}
"""The first of February 2026 in UTC, a day after version 6."""


def entries(*later: tuple[str, dict[str, object]]) -> list[dict[str, Any]]:
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
    check_not_restored(entries(*later), OWN, Path("lake"))


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
    log = entries(*later)
    assert is_restored(log)
    with pytest.raises(
        ConfigError, match=r"^lake was restored to a version before 4, .* version 7"
    ):
        check_not_restored(log, OWN, Path("lake"))


def test_without_older_entries_the_last_one_of_the_archive_counts() -> None:
    log = entries(restore("6"))
    with pytest.raises(ConfigError, match="restored to a version before 7, the first with all"):
        check_not_restored(log[:1], OWN, Path("lake"))
