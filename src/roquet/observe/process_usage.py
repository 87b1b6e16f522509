"""Process usage: processor time, page faults, and how late the event loop wakes who sleeps."""

import os
from typing import Final

import msgspec

from roquet.metrics.counts import Histogram
from roquet.metrics.roquet_metrics import SHORT_S
from roquet.net.clock import Clock

PROBE_MS: Final = 100
"""Ms between two measurements: the cost is far below a thousandth of a core."""


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Processor time and page faults of a process since its start."""

    cpu_s: float
    minor_faults: int | None = None
    """Page faults without reading the disk; None where the system does not count them."""
    major_faults: int | None = None
    """Page faults that waited for the disk."""


def process_usage() -> ProcessUsage:
    """The usage of this process so far."""
    times = os.times()
    cpu_s = times.user + times.system
    try:
        import resource  # not on Windows
    except ImportError:
        return ProcessUsage(cpu_s=cpu_s)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUsage(cpu_s=cpu_s, minor_faults=usage.ru_minflt, major_faults=usage.ru_majflt)


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
