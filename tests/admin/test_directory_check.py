from pathlib import Path

from roquet.admin.directory_check import check_directory
from roquet.store.store import Store


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
