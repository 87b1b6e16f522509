import json
from contextlib import closing
from errno import ENOSPC
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from roquet.dashboard.security import audit_log
from roquet.dashboard.security.audit_log import ENTRIES_MAX, VALUE_MAX, AuditLog, AuditOutcome
from roquet.model.errors import ConfigError, RoquetError


def begin(log: AuditLog, **details: str) -> None:
    entry = log.begin(
        at_ms=7, user="alice", address="192.0.2.1", action="topic.create", details=details
    )
    log.end(entry, AuditOutcome.DONE)


def test_a_change_is_written_before_it_is_made_and_after_it_has_ended(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    begin(log, name="orders\n")
    log.close()
    lines = (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["outcome"] for row in rows] == ["begun", "done"]
    assert rows[0]["details"] == {"name": "orders\n"}
    assert (rows[1]["user"], rows[1]["address"]) == ("alice", "192.0.2.1")
    again = AuditLog(tmp_path / "audit.jsonl")
    begin(again)
    again.close()
    assert len((tmp_path / "audit.jsonl").read_text("utf-8").splitlines()) == 4


def test_memory_holds_the_newest_changes_each_once() -> None:
    log = AuditLog(None)
    for number in range(ENTRIES_MAX + 5):
        begin(log, number=str(number), text="x" * 9_999)
    assert len(log.entries) == ENTRIES_MAX
    assert log.entries[0].details["number"] == str(ENTRIES_MAX + 4)
    assert log.entries[-1].details["number"] == "5"
    assert log.entries[0].outcome is AuditOutcome.DONE
    assert len(log.entries[0].details["text"]) == VALUE_MAX
    log.close()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.close()
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"number":1,"at')
    log = AuditLog(path)
    begin(log)
    log.close()
    cut, *whole = path.read_text("utf-8").splitlines()
    assert cut == '{"number":1,"at'
    assert [json.loads(line)["outcome"] for line in whole] == ["begun", "done"]


def test_a_line_that_a_full_disk_takes_in_parts_is_written_whole_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk(FileIO):
        left = 600

        def write(self, data: Any) -> int:
            part = bytes(data)[: min(40, self.left)]
            if not part:
                raise OSError(ENOSPC, "No space left on device")
            self.left -= len(part)
            return super().write(part)

    monkeypatch.setattr(audit_log, "FileIO", FullDisk)
    with closing(AuditLog(tmp_path / "audit.jsonl")) as log:
        begin(log)
        with pytest.raises(RoquetError, match="cannot be written: No space left"):
            begin(log, name="x" * 500)
    *whole, _ = (tmp_path / "audit.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line)["outcome"] for line in whole] == ["begun", "done"]


def test_a_file_that_cannot_be_opened_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit file .*: "):
        AuditLog(tmp_path)
