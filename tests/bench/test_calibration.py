"""The machine's speed around a measurement."""

from collections.abc import Callable, Iterator

import pytest
from bench.lib import calibration
from bench.lib.calibration import Calibration, steadily, summary


def timings(*ms: float) -> Callable[[], float]:
    given: Iterator[float] = iter(ms)
    return lambda: next(given)


def counted() -> Callable[[], int]:
    numbers = iter(range(9))
    return lambda: next(numbers)


def test_a_measurement_on_a_steady_machine_counts_at_once() -> None:
    found = steadily(counted(), time_loop=timings(100, 109))
    assert found == (0, Calibration(100, 109))


def test_a_measurement_is_repeated_when_the_machine_moved_by_more_than_a_tenth() -> None:
    found = steadily(counted(), time_loop=timings(100, 112, 112, 99, 100, 101))
    assert found == (2, Calibration(100, 101, repeats=2))


@pytest.mark.parametrize("repeats", [0, 2])
def test_on_a_machine_that_never_rests_the_last_measurement_counts(repeats: int) -> None:
    value, found = steadily(counted(), repeats, timings(*[100, 200] * 9))
    assert (value, found.repeats, found.is_steady) == (repeats, repeats, False)


def test_a_summary_says_the_range_and_whatever_makes_figures_doubtful() -> None:
    assert summary([]) == ""
    assert summary([Calibration(100, 105), Calibration(103, 109)]) == "100-109 ms"
    two_machines = [Calibration(100, 105), Calibration(150, 150, repeats=1)]
    assert summary(two_machines) == "100-150 ms, moved 50%, 1 repeated"
    assert summary([Calibration(100, 120, 2)]) == "100-120 ms, moved 20%, 2 repeated, 1 unsteady"


def test_the_loop_is_timed_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "STEPS", 1_000)
    assert 0 < calibration.loop_ms() < 1_000
