"""Verdicts of the soak test on given samples."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(BENCH / "soak.py"))


def verdicts(soak: dict[str, Any], minutes: int, own_mib: Any, **more: Any) -> dict[str, str]:
    samples = [
        soak["Sample"](
            minute=float(minute),
            own_mib=own_mib(minute),
            mapped_mib=9.0,
            p99_ms=more.get("p99_ms", lambda _: 3.0)(minute),
            descriptors=more.get("descriptors", lambda _: 40)(minute),
            sent=minute,
            received=minute,
        )
        for minute in range(1, minutes + 1)
    ]
    rows = soak["rows"](samples, soak["Counts"](), minutes)
    return {row.work.removeprefix("soak: "): row.verdict for row in rows if row.goal}


def test_memory_may_grow_in_the_first_ten_minutes_alone(soak: dict[str, Any]) -> None:
    found = verdicts(soak, 60, lambda minute: 50.0 + min(minute, 9) * 10)
    assert set(found.values()) == {"yes"}


def test_memory_that_goes_on_growing_is_a_fault(soak: dict[str, Any]) -> None:
    assert verdicts(soak, 60, lambda minute: 50 + minute * 0.05)["own memory, growth"] == "NO"
    assert verdicts(soak, 60, lambda minute: 50 + minute * 0.02)["own memory, growth"] == "yes"


def test_a_p99_and_descriptors_that_rise_are_faults(soak: dict[str, Any]) -> None:
    rising: Any = {"p99_ms": lambda minute: 1.0 + minute, "descriptors": lambda minute: 40 + minute}
    found = verdicts(soak, 60, lambda _: 50.0, **rising)
    assert found["p99, last third to first"] == "NO"
    assert found["descriptors, growth"] == "NO"


def test_a_trial_of_two_minutes_judges_errors_alone(soak: dict[str, Any]) -> None:
    assert verdicts(soak, 2, lambda minute: 50.0 * minute) == {"errors": "yes"}
