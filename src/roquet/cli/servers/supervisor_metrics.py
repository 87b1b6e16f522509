"""Supervisor metrics: the pages of all processes of `roquet serve` as one, on one port.

    namesrv     127.0.0.1:5558 ──┐
    controller  127.0.0.1:5559 ──┼── a label `process` each ──▶ HOST:5557/metrics
    broker-a    127.0.0.1:5560 ──┘

One page is one target for Prometheus, whatever the number of brokers. The label tells a replica
from its master, whose name it has, and a process whose page cannot be read, or that stands still,
has `roquet_process_up` 0 while the others are shown.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from roquet.log_records import logger
from roquet.metrics.roquet_metrics import PROCESS_UP
from roquet.metrics.text_format import CONTENT_TYPE, LINES_COUNT, MetricsPage, merged
from roquet.model.errors import RoquetError, UsageError
from roquet.model.settings import join_address
from roquet.net.address import LOOPBACK, PORT_MAX
from roquet.observe.exporter import PATH, ExporterAddress
from roquet.observe.health import LIVE_PATH, READY_PATH, STACKS_PATH, always_ready, health_pages
from roquet.observe.http_server import TEXT, HttpPage, HttpServer, PageUnavailable
from roquet.observe.page_client import read_page, read_response

log = logger(__name__)

ALIVE_TIMEOUT_MS: Final = 2_000
"""Ms within which a process has to answer at all. All are asked at once, so that those that stand
still hold up the page of all for this long, less than scrapes wait for."""

PAGE_TIMEOUT_MS: Final = 6_000
"""Ms that a process which answers may take for its metrics: Prometheus waits for 10 s."""


def page_addresses(port: int, names: Sequence[str]) -> dict[str, str]:
    """HOST:PORT of the page of each process, on this machine alone: the ports above `port`."""
    if not 0 < port <= PORT_MAX - len(names):
        raise UsageError(f"--metrics {port}: this port and {len(names)} above it are needed")
    return {name: join_address(LOOPBACK, port + n) for n, name in enumerate(names, 1)}


class SupervisorMetrics:
    """The page of all processes."""

    def __init__(self, address: ExporterAddress, pages: Mapping[str, str]) -> None:
        """Show it at an address; `pages` are the addresses of the processes' pages by name."""
        self._pages = pages
        self._silent: set[str] = set()
        served = {
            PATH: HttpPage(CONTENT_TYPE, self.body),
            LIVE_PATH: health_pages(always_ready)[LIVE_PATH],
            READY_PATH: HttpPage(TEXT, self.ready),
            STACKS_PATH: HttpPage(TEXT, self.stacks, is_local=True),
        }
        self.server = HttpServer(served, address.host, address.port)

    async def body(self) -> AsyncIterator[bytes]:
        """The page, piece by piece."""
        read = await asyncio.gather(*map(self._read, self._pages))
        pages = {name: text for name, text in zip(self._pages, read, strict=True) if text}
        up = MetricsPage({})
        for name in self._pages:
            up.add(PROCESS_UP, int(name in pages), name)
        for chunk in up.chunks():
            yield chunk
        lines = list(merged(pages))
        for start in range(0, len(lines), LINES_COUNT):
            yield "".join(lines[start : start + LINES_COUNT]).encode()

    async def ready(self) -> AsyncIterator[bytes]:
        """The readiness of all processes; PageUnavailable with the reasons of each."""
        found = await asyncio.gather(*map(self._unready, self._pages))
        if reasons := [reason for each in found for reason in each]:
            raise PageUnavailable("\n".join(reasons))
        yield b"ready\n"

    async def stacks(self) -> AsyncIterator[bytes]:
        """The stacks of all processes, one after the other."""
        found = await asyncio.gather(*map(_stacks, self._pages.values()))
        for name, text in zip(self._pages, found, strict=True):
            yield f"== {name}\n{text}\n".encode()

    async def _unready(self, name: str) -> list[str]:
        address = self._pages[name]
        try:
            response = await read_response(address, READY_PATH, timeout_ms=ALIVE_TIMEOUT_MS)
        except RoquetError as error:
            return [f"{name}: {error}"]
        if response.status == HTTPStatus.OK:
            return []
        lines = response.text.splitlines() or [f"status {response.status}"]
        return [f"{name}: {line}" for line in lines]

    async def _read(self, name: str) -> str:
        """The page of a process; empty if it cannot be read, which is logged once."""
        address = self._pages[name]
        try:
            await read_page(address, LIVE_PATH, timeout_ms=ALIVE_TIMEOUT_MS)
            page = await read_page(address, PATH, timeout_ms=PAGE_TIMEOUT_MS)
        except RoquetError as error:
            if name not in self._silent:
                self._silent.add(name)
                log.warning("no metrics of %s: %s", name, error)
            return ""
        self._silent.discard(name)
        return page


async def _stacks(address: str) -> str:
    """The stacks of a process, or why there are none."""
    try:
        return await read_page(address, STACKS_PATH, timeout_ms=ALIVE_TIMEOUT_MS)
    except RoquetError as error:
        return f"{error}\n"
