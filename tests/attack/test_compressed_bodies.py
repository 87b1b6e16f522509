"""Messages of kilobytes that decompress to 60 MB each, for who looks at many of them at once."""

import subprocess
import sys
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Final

import pytest
from tests.attack.conftest import Depth

from harness.ports import free_port
from roquet.net.channel import Channel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.send import Send

pytestmark = pytest.mark.attack

BODY_SIZE: Final = 60_000_000
COUNT: Final = 40

MEMORY_MAX_KIB: Final = 600 * 1024
"""Most memory of a process that looks: all bodies together have four times as much."""

PAGE_MAX_MS: Final = 5_000
"""Longest time of a page beside the search; 17 s were seen."""


async def send_all(address: str) -> None:
    host, _, port = address.rpartition(":")
    channel = await Channel.connect(host, int(port))
    body = zlib.compress(bytes(BODY_SIZE), 9)
    for n in range(COUNT):
        properties = f"KEYS\x01bomb\x02UNIQ_KEY\x01{n:032X}\x02"
        await channel.call(
            Send(
                producer_group="g", topic="t", queue_id=0, sys_flag=1, born_timestamp=1,
                properties=properties, body=body,
            )
        )  # fmt: skip
    await channel.close()


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(default_queue_count=1) as cluster:
        cluster.run(send_all(cluster.broker_addrs[0]))
        yield cluster.namesrv_addr


def peak_kib(process_id: int) -> int:
    """Most memory that a process has had; 0 once it has ended."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


COMMANDS: Final = {
    "find by key": ("message", "find", "t", "--key", "bomb", "--json"),
    "find by time": ("message", "find", "t"),
    "consume": ("consume", "t", "--count", "8", "--from", "first"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="memory of processes is read from /proc")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_shows_many_compressed_bodies_stays_small(name: str, namesrv: str) -> None:
    command = [sys.executable, "-m", "roquet", *COMMANDS[name], "-n", namesrv]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, peak_kib(process.pid))
            sleep(0.02)
    assert process.returncode == 0
    assert 0 < peak < MEMORY_MAX_KIB


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        content: bytes = response.read()
    return content


@contextmanager
def dashboard(namesrv: str) -> Iterator[tuple[str, int]]:
    """Address and process id of a dashboard."""
    port = free_port()
    command = [sys.executable, "-m", "roquet", "dashboard", "-n", namesrv, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                get(f"http://127.0.0.1:{port}/topics")
                break
            except OSError:
                sleep(0.1)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="memory of processes is read from /proc")
def test_a_search_for_compressed_bodies_leaves_the_dashboard_small_and_its_pages_quick(
    namesrv: str, depth: Depth
) -> None:
    with dashboard(namesrv) as (address, process_id):
        for search in ("key=bomb", "text=x", "tags=*")[: 3 if depth == "full" else 2]:
            url = f"{address}/messages?topic=t&{search}"
            search_page = f"import urllib.request as r; r.urlopen({url!r}).read()"
            asking = subprocess.Popen([sys.executable, "-c", search_page])
            longest_ms = 0
            while asking.poll() is None:
                began_ms = SYSTEM_CLOCK.monotonic_ms()
                get(f"{address}/topics")
                longest_ms = max(longest_ms, SYSTEM_CLOCK.monotonic_ms() - began_ms)
            assert asking.returncode == 0
            assert longest_ms < PAGE_MAX_MS
        assert peak_kib(process_id) < MEMORY_MAX_KIB
