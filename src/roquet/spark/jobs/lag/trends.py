"""Trends: from samples of a group's progress to what will become of it. Pure.

Rates are medians of the slopes between all pairs of samples (Theil 1950, Sen 1968): a pause, a
burst or a broker that answered late does not bend them. Their bounds say whether a rate is one:
between bounds of different signs there is none.
"""

from collections.abc import Sequence
from enum import IntEnum
from math import inf, sqrt
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

SAMPLES_MIN: Final = 4
"""With fewer the bounds of a slope mean nothing."""

SAMPLES_MAX: Final = 300
"""Pairs are as many as its square; of more samples some are left out, evenly."""

CONFIDENCE_Z: Final = 1.96
"""Standard deviations on either side: 95 %."""

RECENT_FRACTION: Final = 4
"""The last part of the samples, one of so many, is what a group does now."""

SampleArray = NDArray[np.float64]


class LagState(IntEnum):
    """How a group does; the worse, the higher."""

    CAUGHT_UP = 0
    CATCHING_UP = 1
    UNSURE = 2
    STEADY = 3
    FALLING_BEHIND = 4
    STOPPED = 5
    CUT_OFF = 6

    @property
    def words(self) -> str:
        """For a sentence."""
        return self.name.lower().replace("_", " ")


class Slope(msgspec.Struct, frozen=True):
    """Change a second, and between which bounds it lies."""

    value: float
    low: float
    high: float


class QueueProgressSamples(msgspec.Struct, frozen=True, kw_only=True):
    """A group in one queue, sample by sample."""

    at_s: SampleArray
    begin: SampleArray
    committed: SampleArray
    end: SampleArray
    consumed_s: SampleArray
    """When the message before the next one was stored; NaN where nobody knows."""

    @property
    def lag(self) -> SampleArray:
        """Messages that wait."""
        return np.maximum(self.end - np.maximum(self.committed, self.begin), 0)


class LagForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be expected of a group in a queue, or in several."""

    state: LagState
    lag: int
    come: float
    """Messages a second that come, and that are handled."""
    handled: float
    caught_up_s: float | None = None
    """In so many seconds nothing waits; None: never, as it goes now."""
    cut_off_s: float | None = None
    """In so many seconds retention may delete what is not handled; None: not as it goes now."""
    lost: int = 0
    """Messages that were deleted before they were handled."""

    @property
    def will_catch_up(self) -> bool:
        """Whether all will be handled before it is deleted."""
        return self.caught_up_s is not None and self.cut_off_s is None and not self.lost


def slope(at: SampleArray, values: SampleArray) -> Slope:
    """The robust slope of a line through points; without bounds when there are too few."""
    known = np.isfinite(values)
    at, values = _thin(at[known]), _thin(values[known])
    first, second = np.triu_indices(len(at), 1)
    runs = at[second] - at[first]
    rises = values[second] - values[first]
    slopes = np.sort(rises[runs > 0] / runs[runs > 0])
    if not len(slopes):
        return Slope(0.0, -inf, inf)
    value = float(np.median(slopes))
    if len(at) < SAMPLES_MIN:
        return Slope(value, -inf, inf)
    n = len(at)
    half = CONFIDENCE_Z * sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(int((len(slopes) - half) // 2), 0)
    high = min(int((len(slopes) + half) // 2) + 1, len(slopes) - 1)
    return Slope(value, float(slopes[low]), float(slopes[high]))


def forecast(course: QueueProgressSamples, retention_s: float | None) -> LagForecast:
    """What will become of a group in a queue, if all goes on as it did."""
    lag = course.lag
    come, handled, change = (slope(course.at_s, one) for one in (course.end, course.committed, lag))
    state = _state(course, change)
    caught_up_s = _seconds_to_catch_up(state, float(lag[-1]), change)
    cut_off_s = _seconds_to_cut_off(course, handled, retention_s) if lag[-1] else None
    if cut_off_s is not None and caught_up_s is not None and caught_up_s <= cut_off_s:
        cut_off_s = None
    return LagForecast(
        state=state,
        lag=int(lag[-1]),
        come=max(come.value, 0.0),
        handled=max(handled.value, 0.0),
        caught_up_s=caught_up_s,
        cut_off_s=cut_off_s,
        lost=int(max(course.begin[-1] - course.committed[-1], 0)),
    )


def merge_forecasts(parts: Sequence[LagForecast]) -> LagForecast:
    """Of several queues: the worst of them, and their sums."""
    ends = [one.caught_up_s for one in parts]
    cuts = [one.cut_off_s for one in parts if one.cut_off_s is not None]
    return LagForecast(
        state=max(one.state for one in parts),
        lag=sum(one.lag for one in parts),
        come=sum(one.come for one in parts),
        handled=sum(one.handled for one in parts),
        caught_up_s=None if None in ends else max(one for one in ends if one is not None),
        cut_off_s=min(cuts, default=None),
        lost=sum(one.lost for one in parts),
    )


def _state(course: QueueProgressSamples, change: Slope) -> LagState:
    lag, recent = course.lag, max(len(course.at_s) // RECENT_FRACTION, 1)
    if course.committed[-1] < course.begin[-1]:
        return LagState.CUT_OFF
    if not lag[-1] or (not lag[-recent:].all() and change.low <= 0):
        return LagState.CAUGHT_UP
    if len(course.at_s) < SAMPLES_MIN:
        return LagState.UNSURE
    if np.ptp(course.committed) == 0:
        return LagState.STOPPED
    if change.low > 0:
        return LagState.FALLING_BEHIND
    return LagState.CATCHING_UP if change.high < 0 else LagState.STEADY


def _seconds_to_catch_up(state: LagState, lag: float, change: Slope) -> float | None:
    if state is LagState.CAUGHT_UP:
        return 0.0
    return lag / -change.value if state is LagState.CATCHING_UP else None


def _seconds_to_cut_off(
    course: QueueProgressSamples, handled: Slope, retention_s: float | None
) -> float | None:
    """When the first message that waits is deleted: by its age, or by how the beginning moves."""
    found = []
    known = course.consumed_s[-1]
    if retention_s is not None and np.isfinite(known):
        # The message that a group is at grows older by a second a second, less what it advances.
        advance = slope(course.at_s, course.consumed_s)
        left_s = retention_s - (course.at_s[-1] - known)
        if advance.high < 1:
            found.append(max(left_s, 0.0) / (1 - advance.value))
    begins = slope(course.at_s, course.begin)
    closing = begins.value - max(handled.value, 0.0)
    if begins.low > 0 and closing > 0:
        found.append(max(course.committed[-1] - course.begin[-1], 0.0) / closing)
    return float(min(found)) if found else None


def _thin(values: SampleArray) -> SampleArray:
    if len(values) <= SAMPLES_MAX:
        return values
    places = np.linspace(0, len(values) - 1, SAMPLES_MAX).round().astype(np.int64)
    return values[places]
