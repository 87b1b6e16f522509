"""A library: how fast the machine is, timed before and after each measurement.

Shared machines change their speed by 2 to 4 times from hour to hour. A loop of fixed work in pure
Python tells such a change from one of the program: a measurement during which it moved is repeated.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

DRIFT_MAX: Final = 0.10
"""Share by which the loop may move between two timings, before a measurement is repeated."""

REPEATS_MAX: Final = 2
"""A measurement is repeated so often at most; the last one counts."""

PASSES: Final = 3
"""Passes of the loop in a timing: the fastest counts, for others may take a core for a moment."""

STEPS: Final = 2_500_000
"""Steps of a pass, about 0.1 s."""

T = TypeVar("T")


@dataclass(frozen=True)
class Calibration:
    """Milliseconds of the loop before and after a measurement."""

    before_ms: float
    after_ms: float
    repeats: int = 0
    """Measurements that were dropped before this one, since the machine moved."""

    @property
    def is_steady(self) -> bool:
        """Both timings are within `DRIFT_MAX` of each other."""
        return drift([self.before_ms, self.after_ms]) <= DRIFT_MAX


def loop_ms() -> float:
    """Milliseconds of a pass of the loop."""
    return min(_pass_s() for _ in range(PASSES)) * 1000


def _pass_s() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(STEPS):
        total += number & 7
    return time.perf_counter() - began


def drift(timings: Iterable[float]) -> float:
    """By which share the slowest timing is above the fastest."""
    ordered = sorted(timings)
    return ordered[-1] / ordered[0] - 1


def steadily(
    measure: Callable[[], T],
    repeats_max: int = REPEATS_MAX,
    time_loop: Callable[[], float] = loop_ms,
) -> tuple[T, Calibration]:
    """A measurement with its calibration, repeated up to `repeats_max` times while that moves."""
    repeats = 0
    while True:
        before_ms = time_loop()
        value = measure()
        calibration = Calibration(before_ms, time_loop(), repeats)
        if calibration.is_steady or repeats == repeats_max:
            return value, calibration
        print(f"  measured again: calibration {before_ms:.0f} to {calibration.after_ms:.0f} ms")
        repeats += 1


def summary(calibrations: Iterable[Calibration]) -> str:
    """Calibrations of a row's measurements in a few words; empty without any.

    Sides whose measurements are steady may still have had two machines: then the row says by how
    much the loop moved between the fastest and the slowest timing of all.
    """
    found = list(calibrations)
    if not found:
        return ""
    timings = [ms for each in found for ms in (each.before_ms, each.after_ms)]
    moved = drift(timings)
    words = [f"{min(timings):.0f}-{max(timings):.0f} ms"]
    words += [f"moved {moved:.0%}"] if moved > DRIFT_MAX else []
    if repeats := sum(each.repeats for each in found):
        words.append(f"{repeats} repeated")
    if unsteady := sum(not each.is_steady for each in found):
        words.append(f"{unsteady} unsteady")
    return ", ".join(words)
