"""MetricsExporter: collects the metrics of one process in slices, and shows them as a page.

sources ──samples──▶ page ──chunks──▶ GET /metrics
   │ each yields to let others go first
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import IntEnum
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from roquet import __version__
from roquet.log_records import logger
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.counts import OTHER, Histogram
from roquet.metrics.exporter_settings import EXPORTER_PORT, MetricsExporterType, parse_labels
from roquet.metrics.metric import NodeType
from roquet.metrics.request_counts import OTHER_CODE
from roquet.metrics.rocketmq_metrics import RPC_LATENCY
from roquet.metrics.roquet_metrics import SHORT_S
from roquet.metrics.text_format import CONTENT_TYPE, MetricsPage
from roquet.model.settings import join_address
from roquet.net.clock import Clock
from roquet.net.request_meter import RequestMeter
from roquet.observe.health import LIVE_PATH, READY_PATH, UnreadyReasons, always_ready, health_pages
from roquet.observe.http_server import TEXT, HttpPage, HttpServer
from roquet.wire.codes import RequestCode, ResponseCode

PROBE_MS: Final = 100
"""Ms between two measurements of the loop's lag: the cost is far below a thousandth of a core."""


def cpu_s() -> float:
    """Processor time of this process since its start."""
    times = os.times()
    return times.user + times.system


def page_faults() -> Mapping[str, int]:
    """Page faults of this process: minor ones, and major ones, which waited for the disk.

    Empty where the system does not count them.
    """
    try:
        import resource  # not on Windows
    except ImportError:
        return {}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"minor": usage.ru_minflt, "major": usage.ru_majflt}


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


log = logger(__name__)

PAGE_MS: Final = 1_000
"""Ms for which a page is shown again to whoever asks: many who ask cost no more than one."""

LARGE_SIZE: Final = 64 * 1024
"""Bytes of a piece of a page after which others go first."""

KINDS_COUNT: Final = 50
"""Kinds of requests that are added before others have their turn: about a millisecond."""

PROTOCOL: Final = "remoting"
"""The protocol of all requests, as Apache's metrics call it."""

_SCOPES: Final[Mapping[NodeType, Mapping[str, str]]] = {
    NodeType.BROKER: {"otel_scope_name": "broker-meter"}
}
"""Labels of metrics with Apache's names that its exporter adds."""

PATH: Final = "/metrics"
HEALTH_PATH: Final = "/-/healthy"

MetricsSource = Callable[[MetricsPage], Awaitable[None] | None]
"""Adds samples to a page; one with many of them lets others go first in between."""


class ExporterAddress(msgspec.Struct, frozen=True):
    """Where a page is shown."""

    host: str
    port: int = EXPORTER_PORT
    """0 takes any free port."""


class ExporterConfig(Protocol):
    """Settings of a server that may show metrics."""

    @property
    def host(self) -> str:
        """The interface that it listens on."""

    @property
    def metrics_exporter(self) -> MetricsExporterType:
        """Whether it shows metrics."""

    @property
    def metrics_port(self) -> int:
        """The port of the page."""

    @property
    def metrics_host(self) -> str:
        """The interface of the page; `host` if empty."""

    @property
    def metrics_label(self) -> str:
        """Further labels of all metrics, as `name:value,name:value`."""


def exporter_labels(config: ExporterConfig) -> Mapping[str, str]:
    """The further labels of all metrics. Raises ConfigError for a text that is none."""
    return parse_labels(config.metrics_label, "metrics_label")


def exporter_address(config: ExporterConfig) -> ExporterAddress | None:
    """Where the metrics page is shown; None: nowhere."""
    exporter = config.metrics_exporter
    if exporter is MetricsExporterType.PROM:
        return ExporterAddress(config.metrics_host or config.host, config.metrics_port)
    if exporter is not MetricsExporterType.DISABLE:
        log.warning("metricsExporterType=%s has no effect here, PROM has", exporter.value)
    return None


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of all metrics of a process."""

    node_type: NodeType
    node_id: str
    cluster: str = ""
    """Empty for a process that belongs to no cluster of brokers."""
    further: Mapping[str, str] = {}
    """Labels that the settings add."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels by name."""
        labels = {"cluster": self.cluster, "node_type": self.node_type, "node_id": self.node_id}
        return {**self.further, **{name: value for name, value in labels.items() if value}}


class MetricsExporter:
    """The metrics page of one process: `async with MetricsExporter(…) as exporter`."""

    def __init__(
        self,
        identity: NodeIdentity,
        address: ExporterAddress,
        clock: Clock,
        *,
        meter: RequestMeter,
        connections: Callable[[], int],
        sources: Sequence[MetricsSource] = (),
        overflow: Callable[[], int] = lambda: 0,
    ) -> None:
        """Samples of `sources`, of requests that `meter` counts, and of the process itself.

        `overflow` tells how many counts went to the series `other`.
        """
        self._identity = identity
        self._clock = clock
        self._meter = meter
        self._connections = connections
        self._overflow = overflow
        self._sources = (*sources, self._process, self._requests)
        self.unready: UnreadyReasons = always_ready
        """Why the server cannot do its work now."""
        self._loop_lag = LoopLagMeter(clock)
        self._started_ms = clock.monotonic_ms()
        self._making = asyncio.Lock()
        self._made_ms: int | None = None
        self._body: list[bytes] = []
        pages = {
            PATH: HttpPage(CONTENT_TYPE, self.body),
            HEALTH_PATH: HttpPage(TEXT, _healthy),
            "/": HttpPage(TEXT, _index),
            **health_pages(lambda: self.unready()),
        }
        self._server = HttpServer(pages, address.host, address.port)
        self._host = address.host
        self._running = AsyncExitStack()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def add_source(self, source: MetricsSource) -> None:
        """Add samples of another part of the process to the page."""
        self._sources = (source, *self._sources)

    async def __aenter__(self) -> Self:
        await self._running.enter_async_context(self._server)
        self._running.callback(asyncio.create_task(self._loop_lag.serve()).cancel)
        log.info("metrics at http://%s%s", join_address(self._host, self.port), PATH)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._running.aclose()

    async def body(self) -> AsyncIterator[bytes]:
        """The page, piece by piece; a recent one is shown again."""
        async with self._making:
            now_ms = self._clock.monotonic_ms()
            if self._made_ms is None or now_ms - self._made_ms >= PAGE_MS:
                self._body = await self._make()
                self._made_ms = self._clock.monotonic_ms()
            body = self._body
        for piece in body:
            yield piece

    async def _make(self) -> list[bytes]:
        page = MetricsPage(self._identity.labels, _SCOPES.get(self._identity.node_type))
        for source in self._sources:
            if (work := source(page)) is not None:
                await work
            await asyncio.sleep(0)  # lets others go first
        pieces: list[bytes] = []
        for piece in page.chunks():
            pieces.append(piece)
            if len(piece) > LARGE_SIZE:
                await asyncio.sleep(0)
        return pieces

    def _process(self, page: MetricsPage) -> None:
        page.add(roquet.BUILD_INFO, 1, __version__)
        page.add(roquet.CPU_TIME, cpu_s())
        for kind, count in page_faults().items():
            page.add(roquet.PAGE_FAULTS, count, kind)
        page.add(roquet.UPTIME, (self._clock.monotonic_ms() - self._started_ms) / 1000)
        page.add(roquet.CONNECTIONS, self._connections())
        page.add(roquet.OVERFLOW, self._overflow())
        page.add_histogram(roquet.LOOP_LAG, self._loop_lag.lags)

    async def _requests(self, page: MetricsPage) -> None:
        counts: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for number, (kind, latencies) in enumerate(self._meter.counts.items(), 1):
            name = _code_name(kind.request_code, RequestCode)
            counts[name] = counts.get(name, 0) + latencies.count
            waited_s = 0 if kind.is_long_polling else latencies.sum / 1000
            seconds[name] = seconds.get(name, 0) + waited_s
            if self._identity.node_type in RPC_LATENCY.nodes:
                response = _code_name(kind.response_code, ResponseCode)
                polls = str(kind.is_long_polling).lower()
                labels = (PROTOCOL, name, response, polls, kind.result)
                page.add_histogram(RPC_LATENCY, latencies, *labels)
            if number % KINDS_COUNT == 0:
                await asyncio.sleep(0)
        for name, count in counts.items():
            page.add(roquet.REQUESTS, count, name)
            page.add(roquet.REQUEST_TIME, seconds[name], name)


def _code_name(code: int, codes: type[IntEnum]) -> str:
    """A code as Apache's metrics show it: the constant in lower case, or the number."""
    if code == OTHER_CODE:
        return OTHER
    return codes(code).name.lower() if code in codes.__members__.values() else str(code)


async def _healthy() -> AsyncIterator[bytes]:
    yield b"Exporter is healthy.\n"


async def _index() -> AsyncIterator[bytes]:
    yield (
        f"Roquet {__version__}: metrics for Prometheus are at {PATH}, health at {LIVE_PATH} and"
        f" {READY_PATH}\n"
    ).encode()
