"""RpcMeter: how long requests to the proxy take, by method and code."""

from typing import Final

from roquet.metrics.counts import Histogram
from roquet.metrics.roquet_metrics import RPC_TIME, SHORT_S
from roquet.metrics.text_format import MetricsPage
from roquet.net.clock import Clock
from roquet.proxy.protos import definition_pb2 as pb

MS_PER_S: Final = 1_000


class RpcMeter:
    """Times requests; methods and codes are few, so that there is no limit."""

    def __init__(self, clock: Clock) -> None:
        self.now_ms = clock.monotonic_ms
        """Monotonic time in ms."""
        self._times: dict[tuple[str, int], Histogram] = {}

    def note(self, method: str, code: int, begun_ms: int) -> None:
        """Count a request that has ended now."""
        if (times := self._times.get((method, code))) is None:
            times = self._times[method, code] = Histogram(SHORT_S)
        times.observe((self.now_ms() - begun_ms) / MS_PER_S)

    def add_to(self, page: MetricsPage) -> None:
        """Add the times to a page of metrics."""
        for (method, code), times in self._times.items():
            page.add_histogram(RPC_TIME, times, method, pb.Code.Name(code))
