import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.metrics.prometheus_text import Page, parsed

from roquet import __version__
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.metrics.metric import NodeType, gauge
from roquet.metrics.request_counts import RequestKind, RequestResult
from roquet.metrics.text_format import MetricsPage
from roquet.namesrv.config import NameServerConfig
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.request_meter import RequestMeter
from roquet.observe.exporter import (
    HEALTH_PATH,
    PATH,
    ExporterAddress,
    LoopLagMeter,
    MetricsExporter,
    NodeIdentity,
    cpu_s,
    exporter_address,
    page_faults,
)
from roquet.observe.page_client import read_page

DEPTH = gauge("roquet_depth", "Depth.")

BROKER = NodeIdentity(node_type=NodeType.BROKER, node_id="a", cluster="c")


class StoppedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class Source:
    def __init__(self) -> None:
        self.count = 0

    def add(self, page: MetricsPage) -> None:
        self.count += 1
        page.add(DEPTH, self.count)


def exporter(source: Source, clock: Any = SYSTEM_CLOCK, **more: Any) -> MetricsExporter:
    meter = RequestMeter(clock)
    meter.counts.of(RequestKind(10, 0, False, RequestResult.SUCCESS)).observe(2)
    meter.counts.of(RequestKind(11, 19, True, RequestResult.SUCCESS)).observe(15_000)
    meter.counts.of(RequestKind(9999, 3, False, RequestResult.SUCCESS)).observe(0)
    arguments = {"meter": meter, "connections": lambda: 7, "sources": (source.add,), **more}
    return MetricsExporter(BROKER, ExporterAddress("127.0.0.1", 0), clock, **arguments)


async def page_of(running: MetricsExporter) -> Page:
    return parsed(b"".join([piece async for piece in running.body()]).decode())


@pytest.fixture
async def running() -> AsyncIterator[MetricsExporter]:
    async with exporter(Source(), overflow=lambda: 4) as running:
        yield running


async def test_a_page_tells_of_the_process_and_its_requests(running: MetricsExporter) -> None:
    page = parsed(await read_page(f"127.0.0.1:{running.port}", PATH, timeout_ms=5_000))
    node = {"cluster": "c", "node_id": "a", "node_type": "broker"}
    assert page.one("roquet_depth", **node) == 1
    assert page.one("roquet_build_info", version=__version__) == 1
    assert page.one("roquet_connections") == 7
    assert page.one("roquet_metrics_overflow_total") == 4
    assert page.one("roquet_cpu_seconds_total") > 0
    assert page.one("roquet_requests_total", request_code="send_message") == 1
    assert page.one("roquet_request_seconds_total", request_code="send_message") == 0.002
    assert page.one("roquet_requests_total", request_code="9999") == 1
    assert page.one("roquet_request_seconds_total", request_code="pull_message") == 0
    assert page.one(
        "rocketmq_rpc_latency_milliseconds_bucket",
        request_code="pull_message",
        response_code="pull_not_found",
        is_long_polling="true",
        result="success",
        protocol_type="remoting",
        le="+Inf",
    ) == 1  # fmt: skip


async def test_many_who_ask_cost_no_more_than_one() -> None:
    source, clock = Source(), StoppedClock()
    running = exporter(source, clock)
    pages = await asyncio.gather(*(page_of(running) for _ in range(5)))
    assert source.count == 1
    assert {page.one("roquet_depth") for page in pages} == {1}
    clock.ms += 1_000
    assert (await page_of(running)).one("roquet_depth") == 2


async def test_a_source_that_fails_is_asked_again_the_next_time() -> None:
    def broken(_: MetricsPage) -> None:
        raise ZeroDivisionError

    running = exporter(Source(), sources=(broken,))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await page_of(running)


async def test_health_says_that_the_page_is_served(running: MetricsExporter) -> None:
    address = f"127.0.0.1:{running.port}"
    assert "healthy" in await read_page(address, HEALTH_PATH, timeout_ms=5_000)
    assert "/metrics" in await read_page(address, "/", timeout_ms=5_000)


def test_a_server_shows_metrics_only_if_told_to(caplog: pytest.LogCaptureFixture) -> None:
    def address(**settings: Any) -> ExporterAddress | None:
        return exporter_address(NameServerConfig(host="10.0.0.1", **settings))

    assert address() is None
    prom = MetricsExporterType.PROM
    assert address(metrics_exporter=prom) == ExporterAddress("10.0.0.1", 5557)
    assert address(metrics_exporter=prom, metrics_host="::1", metrics_port=9) == ExporterAddress(
        "::1", 9
    )
    assert not caplog.records
    assert address(metrics_exporter=MetricsExporterType.LOG) is None
    assert "metricsExporterType=LOG has no effect" in caplog.text


def test_a_process_that_works_uses_the_processor() -> None:
    before_s = cpu_s()
    sum(range(3_000_000))
    assert cpu_s() >= before_s > 0
    assert page_faults().get("minor", 1) > 0


async def test_a_loop_that_is_held_up_is_measured() -> None:
    meter = LoopLagMeter(SYSTEM_CLOCK)
    task = asyncio.create_task(meter.serve())
    await asyncio.sleep(0.05)
    time.sleep(0.25)  # noqa: ASYNC251 - this is what is measured
    await asyncio.sleep(0.15)
    task.cancel()
    assert meter.lags.count >= 2
    assert meter.lags.sum >= 0.15
