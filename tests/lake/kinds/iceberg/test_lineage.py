"""Lineage of an Iceberg table: a rollback that loses rows is seen; an expired snapshot is none."""

from typing import Any, cast

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from roquet.lake.kinds.iceberg.lineage import check_lineage
from roquet.model.errors import ConfigError


class Metadata:
    """The metadata of a table with these snapshots."""

    def __init__(self, snapshots: dict[int, Snapshot]) -> None:
        self._snapshots = snapshots

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        return self._snapshots.get(snapshot_id)


class Lake:
    """A table at one of its snapshots."""

    def __init__(self, parents: dict[int, int | None], current: int | None) -> None:
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

    def current_snapshot(self) -> Snapshot | None:
        return None if self._current is None else self.snapshots[self._current]

    def check(self, *whole: int) -> None:
        known = [self.snapshots[number] for number in whole if number in self.snapshots]
        check_lineage(cast("Table", cast("Any", self)), known, "the table")


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


@pytest.mark.parametrize("current", [2, 3, 4])
def test_a_snapshot_of_ours_that_moved_no_offset_may_be_undone(current: int) -> None:
    Lake({**LINE, 4: 2}, current).check(2, 3)


def test_what_was_set_back_before_all_whole_snapshots_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set back to snapshot 1, .* last one \(3\)"):
        Lake({**LINE, 4: 1}, 4).check(2, 3)


def test_a_table_without_a_current_snapshot_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^the table was set back to no snapshot, from before "):
        Lake(LINE, None).check(3)
    Lake({}, None).check()
