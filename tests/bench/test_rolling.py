"""The ledger of rolling restarts."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(BENCH / "rolling.py"))["RollingLedger"]()


def test_a_message_that_was_not_read_or_read_as_another_is_lost(ledger: Any) -> None:
    ledger.acknowledged[0] = {0: b"a", 1: b"b"}
    ledger.acknowledged[3] = {7: b"c"}
    ledger.note_read(0, 0, b"a")
    ledger.note_read(0, 1, b"x")
    assert ledger.missing == ["queue 0 offset 1", "queue 3 offset 7"]
    ledger.note_read(0, 0, b"a")
    assert (ledger.twice, ledger.contradictions) == (1, [])
    ledger.note_read(0, 1, b"b")
    assert ledger.contradictions == ["queue 0: two messages had offset 1"]


def test_a_pause_may_have_begun_before_the_step_and_last_until_now(ledger: Any) -> None:
    for times in ledger.times:
        times[:] = [91, 99, 100]
    ledger.times[4][:] = [92, 97]
    assert ledger.longest_pause(96, 100) == 8, "since the last acknowledgement before it"
    assert ledger.longest_pause(99.5, 100) == 3
    assert ledger.count == 3 * 7 + 2
