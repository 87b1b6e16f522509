import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.store.filesystem import private_files
from roquet.store.filesystem.files import RealFiles


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """The usual umask: without private modes others could read everything."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_directory_on_the_way_is_its_owners_alone(tmp_path: Path) -> None:
    private_files.make_directories(tmp_path / "a" / "b" / "c")
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [mode(path) for path in made] == [0o700] * 3


def test_each_directory_with_a_new_name_is_reported(tmp_path: Path) -> None:
    told: list[Path] = []
    private_files.make_directories(tmp_path / "a" / "b", told.append)
    private_files.make_directories(tmp_path / "a" / "b", told.append)
    assert told == [tmp_path, tmp_path / "a"]


def test_a_directory_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    private_files.make_directories(tmp_path / "shared" / "own")
    private_files.make_directories(tmp_path / "shared")
    assert (mode(tmp_path / "shared"), mode(tmp_path / "shared" / "own")) == (0o755, 0o700)


def test_logs_tables_and_locks_are_their_owners_alone(tmp_path: Path) -> None:
    files = RealFiles()
    files.create(tmp_path / "log" / "00", 10)
    files.replace(tmp_path / "config" / "topics.json", b"1")
    files.replace(tmp_path / "config" / "topics.json", b"2", keep=True)
    files.lock(tmp_path / "lock", "x").release()
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name: mode(path) for path in made} == dict.fromkeys(
        ["00", "topics.json", "topics.json.bak", "lock"], 0o600
    )
    assert {mode(path) for path in tmp_path.rglob("*") if path.is_dir()} == {0o700}
