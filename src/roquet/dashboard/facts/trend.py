"""Trend: how fast a lag changes, and when it will be caught up."""

from collections.abc import Sequence
from typing import Final

import msgspec

WINDOW_MS: Final = 5 * 60_000
"""The newest samples that a trend is made of."""

STILL_PER_S: Final = 0.05
"""A slower change counts as none: a message in 20 seconds."""


class LagTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Change of a lag over the last minutes."""

    per_s: float | None
    """Messages a second, negative while the lag shrinks; None with fewer than two samples."""
    caught_up_ms: int | None
    """Time until the lag is 0 if it goes on so; 0 without lag, None while it does not shrink."""

    @property
    def text(self) -> str:
        """The trend in a word."""
        if self.caught_up_ms == 0:
            return "caught up"
        if self.per_s is None:
            return "not known yet"
        if abs(self.per_s) < STILL_PER_S:
            return "steady"
        return "growing" if self.per_s > 0 else "shrinking"


def lag_trend(times: Sequence[int], lags: Sequence[int]) -> LagTrend:
    """The trend of a lag: its line of least squares over the newest samples.

    `lags` belongs to the newest of `times` (ms), the oldest first; negative ones are not known.
    """
    times = times[len(times) - len(lags) :]
    known = [(time, lag) for time, lag in zip(times, lags, strict=True) if lag >= 0]
    recent = [(time, lag) for time, lag in known if time >= known[-1][0] - WINDOW_MS]
    now = recent[-1][1] if recent else None
    per_s = _slope(recent)
    if now == 0:
        return LagTrend(per_s=per_s, caught_up_ms=0)
    if now is None or per_s is None or per_s > -STILL_PER_S:
        return LagTrend(per_s=per_s, caught_up_ms=None)
    return LagTrend(per_s=per_s, caught_up_ms=round(now / -per_s * 1000))


def _slope(points: Sequence[tuple[int, int]]) -> float | None:
    """Messages a second; None with fewer than two different times."""
    if len(points) < 2:
        return None
    first_ms = points[0][0]
    xs = [(time - first_ms) / 1000 for time, _ in points]
    ys = [float(lag) for _, lag in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((one - x) ** 2 for one in xs)
    if not spread:
        return None
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread
