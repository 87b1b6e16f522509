"""Lineage of an Iceberg table: a rollback is seen, an expired snapshot is no rollback."""

from typing import Any, cast

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from roquet.model.errors import ConfigError
from roquet.spark.tables.iceberg.lineage import check_lineage


class Metadata:
    """The metadata of a table with these snapshots."""

    def __init__(self, snapshots: dict[int, Snapshot]) -> None:
        self._snapshots = snapshots

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        return self._snapshots.get(snapshot_id)


class Lake:
    """A table at one of its snapshots."""

    def __init__(self, parents: dict[int, int | None], current: int) -> None:
        self.snapshots = {
            number: Snapshot.model_validate(
                {
                    "snapshot-id": number,
                    "parent-snapshot-id": parent,
                    "sequence-number": number,
                    "timestamp-ms": number,
                    "manifest-list": f"{number}.avro",
                }
            )
            for number, parent in parents.items()
        }
        self._current = current
        self.metadata = Metadata(self.snapshots)

    def current_snapshot(self) -> Snapshot:
        return self.snapshots[self._current]

    def check(self, last: int) -> None:
        check_lineage(cast("Table", cast("Any", self)), self.snapshots.get(last), "the table")


LINE: dict[int, int | None] = {1: None, 2: 1, 3: 2}


@pytest.mark.parametrize(("parents", "current"), [(LINE, 2), ({**LINE, 4: 2}, 4)])
def test_a_current_snapshot_without_the_last_one_of_ours_is_refused(
    parents: dict[int, int | None], current: int
) -> None:
    with pytest.raises(
        ConfigError, match=r"^the table was set back to snapshot 2, from before .*3"
    ):
        Lake(parents, current).check(3)


@pytest.mark.parametrize(
    ("parents", "current", "last"),
    [
        (LINE, 3, 3),
        ({**LINE, 4: 3, 5: 4}, 5, 3),
        ({1: None, 5: 4}, 5, 1),  # what was between has expired
        ({5: 4}, 5, 3),  # the last one of ours, too
    ],
)
def test_later_snapshots_of_others_and_expired_ones_are_no_harm(
    parents: dict[int, int | None], current: int, last: int
) -> None:
    Lake(parents, current).check(last)
