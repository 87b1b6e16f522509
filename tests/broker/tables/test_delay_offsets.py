from pathlib import Path

import pytest

from roquet.broker.tables.delay_offsets import DelayOffsets, DelayOffsetTable
from roquet.broker.tables.saved_table import TableFile
from roquet.model.topic import DataVersion
from roquet.store.filesystem.files import RealFiles

GENUINE = Path(__file__).parents[2] / "vectors" / "config"


def table(path: Path) -> DelayOffsets:
    return DelayOffsets(TableFile(RealFiles(), path))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_apache_progress_is_taken_over(version: str, tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_bytes((GENUINE / version / "delayOffset.json").read_bytes())
    delays = table(path)
    assert [delays.get(level) for level in (1, 2, 3, 18, 4)] == [18, 8, 9, 0, 0]


def test_progress_is_the_same_after_a_restart(tmp_path: Path) -> None:
    delays = table(tmp_path / "delayOffset.json")
    assert not delays.unsaved
    delays.advance(18, 3)
    assert delays.unsaved
    delays.touch(1_000)
    delays.save()
    again = table(tmp_path / "delayOffset.json")
    assert (again.get(18), again.version) == (3, delays.version)
    assert b"18:3" in (tmp_path / "delayOffset.json").read_bytes()


def test_no_progress_is_nothing_to_save() -> None:
    delays = DelayOffsets(None)
    delays.advance(1, 2)
    delays.save()
    delays.advance(1, 2)
    assert not delays.unsaved


def test_levels_are_in_use_once_something_was_delivered() -> None:
    delays = DelayOffsets(None)
    delays.advance(3, 2)
    delays.advance(4, 0)
    assert delays.used() == {3: 2}


def test_the_table_of_a_master_replaces_the_own_one() -> None:
    offsets = DelayOffsets(None)
    offsets.advance(1, 5)
    offsets.unsaved = False
    table = DelayOffsetTable(offset_table={2: 7}, data_version=DataVersion(counter=3))
    offsets.copy(table)
    assert (offsets.get(1), offsets.get(2), offsets.version.counter) == (0, 7, 3)
    assert offsets.unsaved
    offsets.unsaved = False
    offsets.copy(table)
    assert not offsets.unsaved
