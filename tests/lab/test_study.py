"""A study: the values that determine its table, its parts, and its directory."""

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from roquet.lab.scenario import PRESETS
from roquet.lab.study import (
    PARTITION_ROWS,
    PARTITIONS,
    Study,
    StudyDirectory,
    validated,
    write_atomically,
)
from roquet.model.errors import UsageError

STUDY = Study(scenarios=(PRESETS["churn"],), strategies=("AVG", "POP"), histories=100, seed=1)


def test_parts_hold_every_history_once_however_many_there_are() -> None:
    for histories in (1, 7, 8, 100, 1_000_003):
        parts = replace(STUDY, histories=histories).parts()
        assert parts[0].start == 0
        assert sum(len(part) for part in parts) == histories
        assert all(one.stop == two.start for one, two in pairwise(parts))


def test_files_have_a_size_that_does_not_depend_on_the_machine() -> None:
    assert replace(STUDY, histories=1_000_000).partition_size == PARTITION_ROWS // 2
    assert replace(STUDY, histories=80).partition_size == 80 // PARTITIONS
    assert replace(STUDY, histories=1).partition_size == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(STUDY, histories=0), "--histories: 0 cannot be played"),
        (replace(STUDY, histories=-5), "--histories: -5"),
        (replace(STUDY, seed=-1), "--seed: -1"),
        (replace(STUDY, strategies=()), "no strategy is given"),
        (replace(STUDY, scenarios=()), "no scenario is given"),
        (replace(STUDY, strategies=("AVG", "AVG")), "'AVG' is given twice"),
        (replace(STUDY, scenarios=STUDY.scenarios * 2), "'churn' is given twice"),
    ],
)
def test_an_impossible_study_is_an_error(wrong: Study, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        validated(wrong)


def test_a_directory_remembers_its_study_and_takes_no_other(tmp_path: Path) -> None:
    place = StudyDirectory(tmp_path / "lab")
    assert place.study() is None
    place.claim(STUDY)
    place.claim(STUDY)
    assert place.study() == STUDY
    with pytest.raises(UsageError, match=r"another study .*churn; AVG, POP; seed 1"):
        place.claim(replace(STUDY, seed=2))


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and holds no study"):
        StudyDirectory(tmp_path).claim(STUDY)
    with pytest.raises(UsageError, match="is not empty"):
        StudyDirectory(tmp_path / "mine.txt").claim(STUDY)


def test_a_study_of_another_version_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"scenarios": [{"colour": 1}]}')
    with pytest.raises(UsageError, match="not a study of this version"):
        StudyDirectory(tmp_path).study()


def test_parts_are_missing_until_they_are_there_whole(tmp_path: Path) -> None:
    study, place = replace(STUDY, histories=120_000), StudyDirectory(tmp_path)
    assert place.missing(study) == [0, 1, 2]
    place.part(1).mkdir(parents=True)
    assert place.missing(study) == [0, 2]


def test_only_half_written_parts_are_deleted(tmp_path: Path) -> None:
    place = StudyDirectory(tmp_path)
    place.claim(STUDY)
    place.clear()
    (place.work / "0").mkdir(parents=True)
    place.part(0).mkdir(parents=True)
    place.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["histories", "study.json"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
