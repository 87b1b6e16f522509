"""The gRPC proxy measured: ours and the genuine one, each in front of its own broker.

    python -m bench.grpc_proxy --rounds 5

Both get the same clients of plain grpcio, one side at a time. Prints a table of starts, memory,
sends, receives, and of clients that wait, and writes one JSON of results. Linux only: CPU time and
memory are read from /proc.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.lib import sides
from bench.lib.calibration import Calibration, steadily
from bench.lib.grpc_load import TOPIC, first_route
from bench.lib.measures import cpu_seconds, rss_mib
from bench.lib.rows import Rounds, Row, at_least, at_most, compared, save, show
from harness import genuine
from harness.ports import HOST, free_port
from harness.processes import ROQUET
from harness.servers import Server

IDLE_S: Final = 20


@dataclass(frozen=True)
class ProxySide:
    """A proxy in front of a broker, both running."""

    address: str
    pids: tuple[int, int]
    """Of the proxy and of the broker."""
    start_s: float
    """From the start of the proxy to its first route."""

    def cpu_s(self) -> float:
        """CPU time of both so far."""
        return sum(map(cpu_seconds, self.pids))


@dataclass
class Measured:
    """Figures of one round of one side."""

    start_s: float
    idle_mib: float
    lone_p50_ms: float
    send_rate: float
    send_cpu_us: float
    receive_rate: float
    waiting_mib: float
    """Memory of the proxy with its waiting clients."""
    waiting_cpu: float
    """Share of a core, in percent."""
    calibration: Calibration | None = None


@contextlib.contextmanager
def proxied(side: str, folder: Path) -> Iterator[ProxySide]:
    """A broker of a side with a topic, and the side's proxy in front of it."""
    start = sides.ours if side == "ours" else sides.theirs
    with start(folder / "cluster") as cluster:
        command = [*ROQUET, "topic", "create", TOPIC, "--namesrv", cluster.namesrv]
        subprocess.run(command, check=True, capture_output=True)
        began = time.monotonic()
        with _proxy(side, folder / "proxy", cluster.namesrv) as (address, pid):
            first_route(address)
            yield ProxySide(address, (pid, cluster.pid), time.monotonic() - began)


@contextlib.contextmanager
def _proxy(side: str, folder: Path, namesrv: str) -> Iterator[tuple[str, int]]:
    folder.mkdir(parents=True)
    if side != "ours":
        with genuine.proxy(folder, namesrv) as address:
            yield address, _process_with(str(folder / "rmq-proxy.json"))
        return
    port = free_port()
    command = [*ROQUET, "proxy", "--namesrv", namesrv, "--host", HOST, "--port", str(port)]
    with Server(command, folder, "proxy", port) as server:
        yield server.address, server.pid


def _process_with(argument: str) -> int:
    """The process that was started with an argument."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if argument.encode() in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
    raise LookupError(argument)


def clients(work: str, side: ProxySide, count: int, seconds: float) -> subprocess.Popen[str]:
    """Clients at their work, as a process."""
    command = [sys.executable, "-m", "bench.lib.grpc_load", work, side.address]
    command += ["--clients", str(count), "--seconds", str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def load(work: str, side: ProxySide, count: int, seconds: float) -> dict[str, float]:
    """Figures of clients at work, and `cpu_us`, that of proxy and broker a message."""
    before = side.cpu_s()
    out, _ = clients(work, side, count, seconds).communicate(timeout=seconds + 120)
    found: dict[str, float] = json.loads(out)
    return {**found, "cpu_us": (side.cpu_s() - before) / max(found["messages"], 1) * 1e6}


def waiting(side: ProxySide, count: int) -> tuple[float, float]:
    """Memory in MiB and share of a core in percent of a proxy whose push consumers wait."""
    pid, _ = side.pids
    child = clients("idle", side, count, IDLE_S)
    assert child.stdout is not None
    child.stdout.readline()
    cpu, began = cpu_seconds(pid), time.monotonic()
    time.sleep(IDLE_S - 1)
    share = (cpu_seconds(pid) - cpu) / (time.monotonic() - began) * 100
    memory = rss_mib(pid)
    out, _ = child.communicate(timeout=120)
    if failures := json.loads(out)["failures"]:
        print(f"  {failures:.0f} waiting clients were refused")
    return memory, share


def measured(name: str, folder: Path, seconds: float, idle_clients: int) -> Measured:
    """One round of one side."""

    def once() -> Measured:
        shutil.rmtree(folder, ignore_errors=True)
        with proxied(name, folder) as side:
            time.sleep(2)
            idle_mib = rss_mib(side.pids[0])
            load("send", side, 16, seconds / 2)  # warms up a Java  # fmt: skip
            lone = load("send", side, 1, seconds)
            many = load("send", side, 16, seconds)
            taken = load("receive", side, 16, seconds)
            memory, share = waiting(side, idle_clients) if idle_clients else (0.0, 0.0)
            return Measured(
                side.start_s, idle_mib, lone["p50_ms"], many["rate"], many["cpu_us"],
                taken["rate"], memory, share,
            )  # fmt: skip

    found, calibration = steadily(once)
    found.calibration = calibration
    print(f"  {name:8} {found}", flush=True)
    return found


def rows(found: Rounds[Measured], idle_clients: int) -> list[Row]:
    """The table, with the goals of the proxy."""

    def row(work: str, unit: str, figure: Callable[[Measured], float]) -> Row:
        return compared(f"gRPC proxy, {work}", unit, found, figure)

    start, idle = (
        row("start to first route", "s", lambda m: m.start_s),
        row("idle: RSS", "MiB", lambda m: m.idle_mib),
    )
    table = [
        at_most(start, "1"),
        at_most(idle, "70"),
        at_most(row("send, 1 thread: p50", "ms", lambda m: m.lone_p50_ms), "0.8 x"),
        at_least(row("send, 16 threads", "msg/s", lambda m: m.send_rate), "1.2 x"),
        at_most(row("send, 16 threads: CPU", "us", lambda m: m.send_cpu_us), "1.0 x"),
        at_least(row("receive and ack, 16 x 32", "msg/s", lambda m: m.receive_rate), "2 x"),
    ]
    if idle_clients:
        who = f"{idle_clients} waiting clients"
        table += [
            at_most(row(f"{who}: RSS", "MiB", lambda m: m.waiting_mib), "0.5 x"),
            at_most(row(f"{who}: CPU", "%", lambda m: m.waiting_cpu), "0.5 x"),
        ]
    return table


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="medians count")
    parser.add_argument("--seconds", type=float, default=8, help="of each load")
    parser.add_argument("--idle-clients", type=int, default=1000, help="0 leaves them out")
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine proxy out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-grpc-proxy.json"))
    args = parser.parse_args()
    names = ["ours"]
    if lack := genuine.missing():
        print(lack)
    elif not args.ours_only:
        names.append("genuine")
    found: dict[str, list[Measured]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        for _ in range(args.rounds):
            for name in names:
                one = measured(name, Path(folder) / name, args.seconds, args.idle_clients)
                found[name].append(one)
    table = rows(found, args.idle_clients)
    show(table)
    save(table, args.out)


if __name__ == "__main__":
    main()
