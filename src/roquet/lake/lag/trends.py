"""Trends: rates and a forecast from samples of a group's progress. Pure.

A rate is the median of the slopes between all pairs of samples (Theil 1950, Sen 1968), so a pause,
a burst or a late answer of a broker does not distort it. A rate whose confidence bounds have
different signs is not told apart from zero.
"""

from collections.abc import Sequence
from enum import IntEnum
from math import inf, sqrt
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

SAMPLES_MIN: Final = 4
"""Fewer samples than these give no meaningful bounds of a slope."""

SAMPLES_MAX: Final = 300
"""Samples used for a slope, because the pairs grow with the square; more are thinned out evenly."""

CONFIDENCE_Z: Final = 1.96
"""Standard deviations on either side of a 95 % confidence interval."""

RECENT_FRACTION: Final = 4
"""The last 1/RECENT_FRACTION of the samples counts as what a group does now."""

SampleArray = NDArray[np.float64]


class LagState(IntEnum):
    """The state of a group; higher is worse."""

    CAUGHT_UP = 0
    CATCHING_UP = 1
    UNSURE = 2
    STEADY = 3
    FALLING_BEHIND = 4
    STOPPED = 5
    CUT_OFF = 6

    @property
    def words(self) -> str:
        """The state in lower case, for a sentence."""
        return self.name.lower().replace("_", " ")


class Slope(msgspec.Struct, frozen=True):
    """Change per second, with the bounds of its 95 % confidence interval."""

    value: float
    low: float
    high: float


class QueueProgressSamples(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of a group in one queue, as equally long arrays in the order of time.

    Times are in seconds since 1970; `begin` and `end` are the offsets of the queue.
    """

    at_s: SampleArray
    begin: SampleArray
    committed: SampleArray
    end: SampleArray
    consumed_s: SampleArray
    """When the last consumed message was stored; NaN where that is unknown."""

    @property
    def lag(self) -> SampleArray:
        """Messages that wait."""
        return np.maximum(self.end - np.maximum(self.committed, self.begin), 0)


class LagForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast of a group in one or several queues, if all rates stay as they are."""

    state: LagState
    lag: int
    """Messages that wait."""
    come: float
    """Messages per second that are stored."""
    handled: float
    """Messages per second that the group handles."""
    caught_up_s: float | None = None
    """Seconds until nothing waits; None for never."""
    cut_off_s: float | None = None
    """Seconds until retention may delete messages that still wait; None for never."""
    lost: int = 0
    """Messages that were deleted before they were handled."""

    @property
    def will_catch_up(self) -> bool:
        """Whether all messages will be handled before they are deleted."""
        return self.caught_up_s is not None and self.cut_off_s is None and not self.lost


def slope(at: SampleArray, values: SampleArray) -> Slope:
    """The robust slope of a line through points; its bounds are infinite for too few points."""
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


def forecast(samples: QueueProgressSamples, retention_s: float | None) -> LagForecast:
    """Forecast a group in one queue.

    `retention_s` are the seconds for which the broker keeps messages; None when that is unknown.
    """
    lag = samples.lag
    come, handled, change = (
        slope(samples.at_s, values) for values in (samples.end, samples.committed, lag)
    )
    state = _state(samples, change)
    caught_up_s = _seconds_to_catch_up(state, float(lag[-1]), change)
    cut_off_s = _seconds_to_cut_off(samples, handled, retention_s) if lag[-1] else None
    if cut_off_s is not None and caught_up_s is not None and caught_up_s <= cut_off_s:
        cut_off_s = None
    return LagForecast(
        state=state,
        lag=int(lag[-1]),
        come=max(come.value, 0.0),
        handled=max(handled.value, 0.0),
        caught_up_s=caught_up_s,
        cut_off_s=cut_off_s,
        lost=int(max(samples.begin[-1] - samples.committed[-1], 0)),
    )


def merge_forecasts(parts: Sequence[LagForecast]) -> LagForecast:
    """The forecast of several queues together: worst state and times, sums of the rest."""
    ends = [part.caught_up_s for part in parts]
    cuts = [part.cut_off_s for part in parts if part.cut_off_s is not None]
    return LagForecast(
        state=max(part.state for part in parts),
        lag=sum(part.lag for part in parts),
        come=sum(part.come for part in parts),
        handled=sum(part.handled for part in parts),
        caught_up_s=None if None in ends else max(end for end in ends if end is not None),
        cut_off_s=min(cuts, default=None),
        lost=sum(part.lost for part in parts),
    )


def _state(samples: QueueProgressSamples, change: Slope) -> LagState:
    lag, recent = samples.lag, max(len(samples.at_s) // RECENT_FRACTION, 1)
    if samples.committed[-1] < samples.begin[-1]:
        return LagState.CUT_OFF
    if not lag[-1] or (not lag[-recent:].all() and change.low <= 0):
        return LagState.CAUGHT_UP
    if len(samples.at_s) < SAMPLES_MIN:
        return LagState.UNSURE
    if np.ptp(samples.committed) == 0:
        return LagState.STOPPED
    if change.low > 0:
        return LagState.FALLING_BEHIND
    return LagState.CATCHING_UP if change.high < 0 else LagState.STEADY


def _seconds_to_catch_up(state: LagState, lag: float, change: Slope) -> float | None:
    if state is LagState.CAUGHT_UP:
        return 0.0
    return lag / -change.value if state is LagState.CATCHING_UP else None


def _seconds_to_cut_off(
    samples: QueueProgressSamples, handled: Slope, retention_s: float | None
) -> float | None:
    """Seconds until the first waiting message is deleted; None for never.

    The earlier of two estimates: by the message's age, and by how fast the queue's begin moves.
    """
    estimates = []
    consumed_s = samples.consumed_s[-1]
    if retention_s is not None and np.isfinite(consumed_s):
        # The age of the next message grows by a second per second, less what the group advances.
        advance = slope(samples.at_s, samples.consumed_s)
        left_s = retention_s - (samples.at_s[-1] - consumed_s)
        if advance.high < 1:
            estimates.append(max(left_s, 0.0) / (1 - advance.value))
    begins = slope(samples.at_s, samples.begin)
    closing = begins.value - max(handled.value, 0.0)
    if begins.low > 0 and closing > 0:
        estimates.append(max(samples.committed[-1] - samples.begin[-1], 0.0) / closing)
    return float(min(estimates)) if estimates else None


def _thin(values: SampleArray) -> SampleArray:
    """At most SAMPLES_MAX of the values, evenly spread."""
    if len(values) <= SAMPLES_MAX:
        return values
    places = np.linspace(0, len(values) - 1, SAMPLES_MAX).round().astype(np.int64)
    return values[places]
