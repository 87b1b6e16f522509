"""Hostile browsers at the dashboard and at the page of metrics: bodies, cut requests, many at once.

Each attack runs in its server's process. Meanwhile no callback of the event loop may take long, no
request much time of the processor, pages go on, and nothing of it is a defect in the log.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.server import serve_dashboard
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.testing.cluster import cluster

pytestmark = pytest.mark.attack

STEP_MAX_MS: Final = 250.0
"""CPU time of the longest step of the event loop during an attack; seconds were seen."""

URL_ENCODED: Final = "application/x-www-form-urlencoded"
IN_PARTS: Final = "multipart/form-data; boundary=x"
PART: Final = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n'

REQUEST_MAX_S: Final = 0.5
"""CPU time of one request, the client's own included."""

BODIES: Final[Sequence[tuple[str, bytes]]] = (
    (URL_ENCODED, b"&" * 15_000_000),
    (URL_ENCODED, b"a=" + b"%41" * 1_600_000),
    (URL_ENCODED, b"%" * 60_000),
    (URL_ENCODED, b"a=b&" * 16_000),
    (URL_ENCODED, b"csrf=x&" + b"\xff=\xfe" * 5_000),
    (IN_PARTS, PART + b"\r\n--" * 1_400_000),
    (IN_PARTS, (PART + b"v\r\n") * 90_000),
    (IN_PARTS, b"--x\r\n" + b"a: b\r\n" * 800_000),
    (IN_PARTS, b"\r\n" * 2_900_000),
    ("application/json", b"[" * 5_000_000),
    ("", b"x" * 5_000_000),
)
PATHS: Final = ("/login", "/logout", "/messages/new", "/topics", "/topics/x/delete", "/")
HEADS: Final = (
    b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /messages?key=" + b"%41" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: " + b'roquet="\\' * 7_000 + b"\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"\0" * 70_000,
)


class LongestStep:
    """CPU time of the event loop's thread between two turns of a task: what others wait for."""

    def __init__(self) -> None:
        self.ms = 0.0

    async def watch(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            self.ms = max(self.ms, (time.thread_time() - began) * 1_000)


@asynccontextmanager
async def no_long_step() -> AsyncIterator[None]:
    """Fail if a step of the event loop takes long in the block."""
    longest = LongestStep()
    task = asyncio.create_task(longest.watch())
    try:
        yield
    finally:
        task.cancel()
    assert longest.ms < STEP_MAX_MS, f"a step took {longest.ms:.0f} ms"


def post(path: str, kind: str, body: bytes, *, length: int | None = None) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


async def ask(port: int, request: bytes, *, reads: bool = True) -> bytes:
    """The beginning of the response; what the server does not take any more is not sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(15):
                writer.write(request)
                if not reads:
                    await writer.drain()
                    return b""
                return await reader.read(4_096)
        return b""
    finally:
        writer.transport.abort()


def is_served(response: bytes) -> bool:
    return response.startswith((b"HTTP/1.1 200", b"HTTP/1.1 303"))


@asynccontextmanager
async def dashboard(*, login: bool) -> AsyncIterator[int]:
    async with (
        cluster(brokers=1) as running,
        serve_dashboard(
            DashboardConfig(name_servers=running.namesrv_addr, port=0, login=login)
        ) as url,
    ):
        yield urlsplit(url).port or 0


def defects(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


PAGE: Final = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize("login", [False, True])
async def test_no_form_holds_the_dashboard_up(
    caplog: pytest.LogCaptureFixture, login: bool, depth: str
) -> None:
    paths = PATHS if depth == "full" else PATHS[:4]
    async with dashboard(login=login) as port, no_long_step():
        for path in paths:
            for kind, body in BODIES:
                began = time.thread_time()
                response = await ask(port, post(path, kind, body))
                took_s = time.thread_time() - began
                assert took_s < REQUEST_MAX_S, (path, kind, body[:20], took_s)
                assert not is_served(response), (path, kind, body[:20], response)
        assert is_served(await ask(port, PAGE))
    assert defects(caplog) == []


async def test_requests_that_are_cut_off_or_none_leave_no_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with dashboard(login=True) as port, no_long_step():
        for path in PATHS:
            for kind in (URL_ENCODED, IN_PARTS):
                cut = post(path, kind, PART + b"v", length=60_000)
                await ask(port, cut, reads=False)
        for head in HEADS:
            await ask(port, head)
            await ask(port, head[: len(head) // 2], reads=False)
        assert is_served(await ask(port, PAGE))
    texts = [text for text in defects(caplog) if "Invalid HTTP request" not in text]
    assert texts == []


async def test_eighty_live_tails_at_once_leave_time_for_pages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tail = b"GET /messages/tail/events?topic=TBW102 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with dashboard(login=False) as port, no_long_step():
        tails = [asyncio.create_task(ask(port, tail)) for _ in range(80)]
        for _ in range(10):
            assert is_served(await ask(port, PAGE))
        responses = await asyncio.gather(*tails)
        assert sum(map(is_served, responses)) >= 30
    assert defects(caplog) == []


async def test_nobody_holds_up_a_broker_by_its_page_of_metrics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = BrokerConfig(
        host="127.0.0.1", port=0, vip_port=False, metrics_exporter=MetricsExporterType.PROM,
        metrics_port=0,
    )  # fmt: skip
    page = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    async with BrokerServer(config) as server, no_long_step():
        port = server.metrics_port
        assert port is not None
        for head in HEADS:
            response = await ask(port, head)
            assert not response.startswith(b"HTTP/1.1 500"), response
            await ask(port, head[: len(head) // 2], reads=False)
        for kind, body in BODIES:
            assert not is_served(await ask(port, post("/metrics", kind, body)))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        assert (await ask(port, page)).startswith(b"HTTP/1.1 200")
        for _, writer in silent:
            writer.transport.abort()
        await asyncio.gather(*(ask(port, page) for _ in range(50)))
        assert (await ask(port, page)).startswith(b"HTTP/1.1 200")
    assert defects(caplog) == []
