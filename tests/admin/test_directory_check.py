from pathlib import Path

import pytest

from roquet.admin.directory_check import TABLES, TableFaults, check_directory, check_tables
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store

WHOLE = {
    "topics.json": b'{"dataVersion":{},"topicConfigTable":{}}',
    "subscriptionGroup.json": b'{"dataVersion":{},"subscriptionGroupTable":{}}',
    "consumerOffset.json": b'{"dataVersion":{},"offsetTable":{}}',
}


def checked(files: dict[str, bytes]) -> TableFaults:
    memory = MemoryFiles()
    for name, data in files.items():
        memory.replace(Path("/data") / name, data)
    return check_tables(memory, Path("/data"))


def test_whole_or_missing_tables_have_no_fault() -> None:
    assert checked({}) == TableFaults(problems=(), pending=())
    whole = {f"config/{name}": data for name, data in WHOLE.items()}
    assert checked(whole) == TableFaults(problems=(), pending=())


@pytest.mark.parametrize("name", [*TABLES, "access.json"])
@pytest.mark.parametrize("data", [b"", b"\0" * 40, b'{"a', b"\xff\xfe", b"[" * 100_000, b"[]"])
def test_a_broken_table_is_a_problem_in_one_line(name: str, data: bytes) -> None:
    faults = checked({f"config/{name}": data})
    assert faults.pending == ()
    (line,) = faults.problems
    assert line.startswith(f"/data/config/{name} cannot be ")
    assert "\n" not in line


def test_a_broken_table_with_a_whole_backup_is_mended_at_the_start() -> None:
    whole = WHOLE["topics.json"]
    faults = checked({"config/topics.json": b"{", "config/topics.json.bak": whole})
    assert faults.problems == ()
    assert faults.pending[0].startswith("/data/config/topics.json cannot be read: ")
    assert checked({"config/topics.json": b"{", "config/topics.json.bak": b"{"}).pending == ()


@pytest.mark.parametrize("name", ["epochFileCheckpoint", "brokerIdentity"])
def test_a_broken_file_of_a_replica_is_a_problem(name: str) -> None:
    (line,) = checked({name: b"\xff{"}).problems
    assert line.startswith(f"/data/{name} cannot be read")


@pytest.mark.skipif(not hasattr(__import__("os"), "mkfifo"), reason="no pipes")
def test_a_table_that_is_a_directory_or_a_pipe_is_a_problem(tmp_path: Path) -> None:
    import os

    from roquet.store.filesystem.files import RealFiles

    (tmp_path / "config" / "topics.json").mkdir(parents=True)
    os.mkfifo(tmp_path / "config" / "consumerOffset.json")
    problems = check_tables(RealFiles(), tmp_path).problems
    assert [line.partition(" cannot")[0] for line in problems] == [
        str(tmp_path / "config" / name) for name in ("topics.json", "consumerOffset.json")
    ]


def test_a_directory_with_a_broken_table_is_damaged(tmp_path: Path) -> None:
    Store.open(tmp_path, now_ms=1).close(1)
    assert check_directory(tmp_path).verdict == "whole"
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(b'{"topicConfigTable":')
    report = check_directory(tmp_path)
    assert report.verdict == "damaged"
    assert "config/topics.json cannot be read" in report.problems[0]


def test_a_table_whose_backup_is_used_is_mended_at_the_next_start(tmp_path: Path) -> None:
    Store.open(tmp_path, now_ms=1).close(1)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(b"")
    (tmp_path / "config" / "topics.json.bak").write_bytes(b'{"topicConfigTable":{}}')
    assert check_directory(tmp_path).verdict == "recoverable"
