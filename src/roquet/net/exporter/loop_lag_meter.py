"""Loop lag meter: measures how late the event loop wakes who sleeps."""

from typing import Final

from roquet.metrics.counts import Histogram
from roquet.metrics.roquet_metrics import SHORT_S
from roquet.net.clock import Clock

PROBE_MS: Final = 100
"""Ms between two measurements: the cost is far below a thousandth of a core."""


class LoopLagMeter:
    """Lateness of the event loop in seconds, ten times a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lags = Histogram(SHORT_S)

    async def serve(self) -> None:
        """Measure forever."""
        while True:
            begun_ms = self._clock.monotonic_ms()
            await self._clock.sleep(PROBE_MS)
            late_ms = self._clock.monotonic_ms() - begun_ms - PROBE_MS
            self.lags.observe(max(late_ms, 0) / 1000)
