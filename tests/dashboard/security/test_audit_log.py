import json
from pathlib import Path

import pytest

from roquet.dashboard.security.audit_log import ENTRIES_MAX, VALUE_MAX, AuditLog, AuditOutcome
from roquet.model.errors import ConfigError


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
    for number in range(ENTRIES_MAX):
        begin(log, number=str(number), text="x" * 9_999)
    assert len(log.entries) == ENTRIES_MAX // 2
    assert log.entries[0].details["number"] == str(ENTRIES_MAX - 1)
    assert log.entries[0].outcome is AuditOutcome.DONE
    assert len(log.entries[0].details["text"]) == VALUE_MAX
    log.close()


def test_a_file_that_cannot_be_opened_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit file .*: "):
        AuditLog(tmp_path)
