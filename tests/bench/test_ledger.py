"""The ledger of the kill rounds finds whatever a log may have done to acknowledged messages."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A ledger of one queue."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(BENCH / "ledger.py"))["Ledger"](1)


def stored(ledger: Any, count: int) -> list[bytes]:
    """Bodies that were sent and acknowledged, in order."""
    bodies = [ledger.next_body(0) for _ in range(count)]
    for offset, body in enumerate(bodies):
        ledger.acknowledge(0, offset, body)
    return bodies


def test_a_log_with_every_acknowledged_message_is_right(ledger: Any) -> None:
    bodies = stored(ledger, 3)
    assert ledger.count == 3
    assert ledger.judge(0, bodies) == 0
    assert ledger.judge(0, [*bodies, ledger.next_body(0)]) == 0, "one whose outcome is unknown"


def test_a_message_that_was_sent_again_is_counted(ledger: Any) -> None:
    bodies = stored(ledger, 3)
    assert ledger.judge(0, [*bodies, bodies[-1]]) == 1


def test_a_lost_message_is_found(ledger: Any) -> None:
    bodies = stored(ledger, 3)
    with pytest.raises(AssertionError, match="acknowledged offset 2 is lost"):
        ledger.judge(0, bodies[:2])


def test_another_message_at_its_offset_is_found(ledger: Any) -> None:
    bodies = stored(ledger, 3)
    with pytest.raises(AssertionError, match="offset 1 holds another message"):
        ledger.judge(0, [bodies[0], bodies[2], bodies[2]])


def test_an_offset_that_was_acknowledged_for_two_messages_is_found(ledger: Any) -> None:
    bodies = stored(ledger, 3)
    later = ledger.next_body(0)
    ledger.acknowledge(0, 2, later)
    with pytest.raises(AssertionError, match="offset 2 was acknowledged for two messages"):
        ledger.judge(0, [*bodies[:2], later])


def test_a_message_that_nobody_sent_is_found(ledger: Any) -> None:
    bodies = stored(ledger, 3)
    with pytest.raises(AssertionError, match="1 messages that nobody sent"):
        ledger.judge(0, [*bodies, b"0:9:x"])


def test_messages_out_of_order_are_found(ledger: Any) -> None:
    bodies = [ledger.next_body(0) for _ in range(2)]
    with pytest.raises(AssertionError, match="out of order"):
        ledger.judge(0, bodies[::-1])
