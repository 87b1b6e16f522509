"""A trace: the key weights of one column, the rhythm of another."""

import zipfile
from pathlib import Path

import pytest

from roquet.lab.scenario import LabScenario, validated
from roquet.lab.trace import with_trace
from roquet.model.errors import UsageError

ROWS = "tail,hour,more\nN1,5,a\nN2,5,b\nN1,7,c\nNA,7,d\nN1,6,e\n"


def zipped(directory: Path, text: str) -> Path:
    path = directory / "table.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.csv", text)
    return path


def test_keys_weigh_as_often_as_they_come_and_hours_as_they_are_busy(tmp_path: Path) -> None:
    scenario = with_trace(LabScenario(), zipped(tmp_path, ROWS), key="tail", hour="hour")
    assert scenario.key_weights == (3, 1)
    assert scenario.rhythm == (2.0, 1.0, 2.0)
    assert validated(scenario).keyed


def test_a_table_without_the_columns_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no columns aircraft and hour"):
        with_trace(LabScenario(), zipped(tmp_path, ROWS), key="aircraft", hour="hour")


def test_a_file_that_is_no_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text(ROWS, "utf-8")
    with pytest.raises(UsageError, match="has no columns"):
        with_trace(LabScenario(), path, key="tail", hour="hour")
