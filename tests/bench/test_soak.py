"""Verdicts of the soak test on given samples."""

from typing import Any

from bench import soak


def verdicts(minutes: int, own_mib: Any, **more: Any) -> dict[str, str]:
    samples = [
        soak.Sample(
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
    rows = soak.rows(samples, soak.Counts(), minutes)
    return {row.work.removeprefix("soak: "): row.verdict for row in rows if row.goal}


def test_memory_may_grow_in_the_first_ten_minutes_alone() -> None:
    found = verdicts(60, lambda minute: 50.0 + min(minute, 9) * 10)
    assert set(found.values()) == {"yes"}


def test_memory_that_goes_on_growing_is_a_fault() -> None:
    assert verdicts(60, lambda minute: 50 + minute * 0.05)["own memory, growth"] == "NO"
    assert verdicts(60, lambda minute: 50 + minute * 0.02)["own memory, growth"] == "yes"


def test_a_p99_and_descriptors_that_rise_are_faults() -> None:
    rising: Any = {"p99_ms": lambda minute: 1.0 + minute, "descriptors": lambda minute: 40 + minute}
    found = verdicts(60, lambda _: 50.0, **rising)
    assert found["p99, last third to first"] == "NO"
    assert found["descriptors, growth"] == "NO"


def test_a_trial_of_two_minutes_judges_errors_alone() -> None:
    assert verdicts(2, lambda minute: 50.0 * minute) == {"errors": "yes"}
