"""Sides: our name server and broker, or Apache's, under the genuine benchmark clients."""

import contextlib
import itertools
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.lib.calibration import Calibration, steadily
from bench.lib.measures import cpu_seconds
from harness import genuine, servers

TOPIC = "BenchmarkTest"
UNIQUE = "{unique}"
"""Stands in arguments for what is another text each time."""
REPORT_S: Final = 10
"""Interval at which the genuine benchmark clients report; the first report is warm-up."""
REPORT = re.compile(r"(?:TPS|MPS): (\d+)\b(?! \| Send MPS)(?:.*?Average RT\(ms\):\s*([\d.]+))?")


@dataclass
class Side:
    """A running system under test."""

    name: str
    namesrv: str
    pid: int


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Side]:
    """Our name server and broker as processes."""
    with (
        servers.name_server(folder) as names,
        servers.broker(folder, "ours-a", {"namesrvAddr": names.address}) as broker,
    ):
        yield Side("ours", names.address, broker.pid)


@contextlib.contextmanager
def theirs(folder: Path) -> Iterator[Side]:
    """Apache RocketMQ's name server and broker as processes."""
    with genuine.cluster(folder) as running:
        yield Side("genuine", running.namesrv, running.pid)


@contextlib.contextmanager
def running_sides(*, ours_only: bool) -> Iterator[list[Side]]:
    """Ours and, where Java and Maven are, Apache RocketMQ, both running at the same time."""
    starts = [ours] if ours_only or genuine.missing() else [ours, theirs]
    with (
        tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder,
        contextlib.ExitStack() as stack,
    ):
        yield [stack.enter_context(start(Path(folder) / start.__name__)) for start in starts]


@dataclass
class Load:
    """Reports of a benchmark client once warm."""

    rate: float
    round_trip_ms: float | None
    broker_cpu_us: float
    calibration: Calibration | None = None
    client_cpu_us: float = 0.0


def load(side: Side, name: str, *args: str, reports: int = 3) -> Load:
    """A genuine benchmark client for some reports (10 s each); the first one is warm-up."""
    found, calibration = steadily(lambda: _load(side, name, *args, reports=reports))
    return replace(found, calibration=calibration)


def _load(side: Side, name: str, *args: str, reports: int) -> Load:
    args = tuple(arg.replace(UNIQUE, f"{time.monotonic_ns():x}") for arg in args)
    command = genuine.java(f"example.benchmark.{name}", *args, "-t", TOPIC, "-n", side.namesrv)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(10 * reports + 60, child.kill)
    watchdog.start()
    seen: list[tuple[float, float, float, float | None]] = []
    client: list[float] = []
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if (match := REPORT.search(line)) is None or "Current Time" not in line:
                continue
            trip = float(match[2]) if match[2] else None
            seen.append((time.monotonic(), cpu_seconds(side.pid), float(match[1]), trip))
            client.append(cpu_seconds(child.pid))
            if len(seen) > reports or (len(seen) > 2 and float(match[1]) == 0):
                break
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
    while len(seen) > 2 and seen[-1][2] < seen[-2][2] / 2:
        seen.pop()  # the topic was drained within this report
    if len(seen) < 2:
        raise RuntimeError(f"{name} on {side.name} made no reports")
    messages = sum(b[2] * (b[0] - a[0]) for a, b in itertools.pairwise(seen))
    trips = [trip for *_, trip in seen[1:] if trip is not None]
    return Load(
        rate=messages / (seen[-1][0] - seen[0][0]),
        round_trip_ms=sum(trips) / len(trips) if trips else None,
        broker_cpu_us=(seen[-1][1] - seen[0][1]) / messages * 1e6,
        client_cpu_us=(client[len(seen) - 1] - client[0]) / messages * 1e6,
    )
