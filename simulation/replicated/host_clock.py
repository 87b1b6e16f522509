"""HostClock: a machine's own clocks: wall time may be wrong, elapsed time fast or slow."""

import asyncio

from roquet.testing.clock import VirtualClock


class HostClock:
    """Clocks of one host, over the true time of the simulation."""

    def __init__(self, clock: VirtualClock, drift_per_mille: int = 0) -> None:
        """Take the rate by which elapsed time is fast, or slow if negative."""
        self._clock = clock
        self._rate = 1 + drift_per_mille / 1_000
        self.ahead_ms = 0
        """Error of the wall clock."""

    def now_ms(self) -> int:
        """Wall time in ms since the epoch, as this machine has it."""
        return self._clock.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Elapsed time in ms, as this machine counts it."""
        return round(self._clock.elapsed_s() * 1_000 * self._rate)

    async def sleep(self, ms: int) -> None:
        """Return after `ms` milliseconds of this machine's time."""
        await asyncio.sleep(ms / 1_000 / self._rate)
