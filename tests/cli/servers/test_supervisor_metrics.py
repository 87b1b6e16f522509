import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.metrics.prometheus_text import parsed

from roquet.cli.servers import supervisor_metrics
from roquet.cli.servers.supervisor_metrics import SupervisorMetrics, page_addresses
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import UsageError
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.observe.exporter import ExporterAddress
from roquet.observe.health import LIVE_PATH, READY_PATH, STACKS_PATH, always_ready, health_pages
from roquet.observe.http_server import TEXT, HttpPage, HttpServer
from roquet.observe.page_client import read_page, read_response

CONFIG = NameServerConfig(
    host="127.0.0.1", port=0, metrics_exporter=MetricsExporterType.PROM, metrics_port=0
)


def test_each_process_has_a_port_above_that_of_all() -> None:
    assert page_addresses(5557, ["namesrv", "broker-a"]) == {
        "namesrv": "127.0.0.1:5558",
        "broker-a": "127.0.0.1:5559",
    }


@pytest.mark.parametrize("port", [0, 65_535])
def test_a_port_without_room_above_it_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match="--metrics"):
        page_addresses(port, ["namesrv"])


async def test_pages_of_all_processes_are_one_and_a_dead_one_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with NameServer(CONFIG) as one, NameServer(CONFIG) as two:
        pages = {
            "one": f"127.0.0.1:{one.metrics_port}",
            "two": f"127.0.0.1:{two.metrics_port}",
            "dead": "127.0.0.1:1",
        }
        metrics = SupervisorMetrics(ExporterAddress("127.0.0.1", 0), pages)
        async with metrics.server as server:
            for _ in range(2):
                text = await read_page(f"127.0.0.1:{server.port}", "/metrics", timeout_ms=5_000)
    page = parsed(text)
    up = {name: page.one("roquet_process_up", process=name) for name in pages}
    assert up == {"one": 1, "two": 1, "dead": 0}
    assert page.one("roquet_brokers", process="one") == 0
    assert len(page.of("roquet_brokers")) == 2
    assert caplog.text.count("no metrics of dead") == 1


async def test_all_processes_are_ready_or_the_reasons_say_which_is_not() -> None:
    async with NameServer(CONFIG) as names:
        pages = {"names": f"127.0.0.1:{names.metrics_port}"}
        for dead in ({}, {"dead": "127.0.0.1:1"}):
            metrics = SupervisorMetrics(ExporterAddress("127.0.0.1", 0), {**pages, **dead})
            async with metrics.server as server:
                address = f"127.0.0.1:{server.port}"
                ready = await read_response(address, READY_PATH, timeout_ms=5_000)
                stacks = await read_page(address, STACKS_PATH, timeout_ms=5_000)
                live = await read_response(address, LIVE_PATH, timeout_ms=5_000)
            assert ready.status == (503 if dead else 200)
            assert ready.text.startswith("dead: cannot read" if dead else "ready")
            assert live.status == 200
            assert stacks.startswith("== names\n")
            assert ("== dead\ncannot read" in stacks) is bool(dead)


@pytest.fixture
def frozen() -> Iterator[str]:
    """HOST:PORT of a process that stands still: the kernel takes connections, nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("path", ["/metrics", READY_PATH, STACKS_PATH])
async def test_processes_that_stand_still_are_named_and_hold_up_no_page_for_longer_than_a_moment(
    frozen: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(supervisor_metrics, "ALIVE_TIMEOUT_MS", 300)
    async with NameServer(CONFIG) as names:
        pages = {"names": f"127.0.0.1:{names.metrics_port}"}
        pages |= {f"frozen{number}": frozen for number in range(9)}
        metrics = SupervisorMetrics(ExporterAddress("127.0.0.1", 0), pages)
        async with metrics.server as server:
            address = f"127.0.0.1:{server.port}"
            text = (await read_response(address, path, timeout_ms=2_000)).text
    if path == "/metrics":
        page = parsed(text)
        up = [page.one("roquet_process_up", process=name) for name in pages]
        assert up == [1, *[0] * 9]
        assert page.one("roquet_brokers", process="names") == 0
    else:
        assert text.count("no response within 300 ms") == 9


async def test_a_process_that_is_alive_has_more_time_for_its_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slow() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.6)
        yield b"roquet_brokers 1\n"

    monkeypatch.setattr(supervisor_metrics, "ALIVE_TIMEOUT_MS", 300)
    pages = {"/metrics": HttpPage(TEXT, slow), **health_pages(always_ready)}
    async with HttpServer(pages, "127.0.0.1", 0) as process:
        metrics = SupervisorMetrics(
            ExporterAddress("127.0.0.1", 0), {"slow": f"127.0.0.1:{process.port}"}
        )
        text = b"".join([piece async for piece in metrics.body()]).decode()
    assert parsed(text).one("roquet_process_up", process="slow") == 1
