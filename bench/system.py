"""The whole system measured: ours and, where Java and Maven are, Apache RocketMQ on the same work.

Run by `make bench`; prints a table of figures, goals and ratios, and writes one JSON of results.
Both sides run in the same session, in turn, with the genuine benchmark clients. Linux only: CPU
time and memory are read from /proc.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src"), str(HERE)]

from harness import genuine, servers  # noqa: E402
from harness.servers import DevServer  # noqa: E402

TOPIC = "BenchmarkTest"
TICK = os.sysconf("SC_CLK_TCK")
REPORT = re.compile(r"(?:TPS|MPS): (\d+)\b(?! \| Send MPS)(?:.*?Average RT\(ms\):\s*([\d.]+))?")


@dataclass
class Row:
    """One line of the result: a work, what each side did, the goal as a ratio or a bound."""

    work: str
    unit: str
    ours: float | None = None
    theirs: float | None = None
    goal: str = ""
    holds: Callable[[float, float | None], bool] = field(default=lambda _o, _t: True)
    cause: str = ""
    """Why a goal is not reached; empty where it is, or where nobody knows."""
    series: str = ""
    """The plot of the report that this row is a point of, such as `connections: p99`."""
    x: float | None = None
    """Its place on the x axis of that plot."""

    @property
    def ratio(self) -> float | None:
        """Ours to theirs."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def verdict(self) -> str:
        """Whether the goal is reached, where that can be said."""
        if self.ours is None:
            return "not run"
        if "x" in self.goal and self.theirs is None:
            return "no peer"
        return "yes" if self.holds(self.ours, self.theirs) else "NO"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The value below which so many percent of the values are; `ordered` ascends.

    Raises IndexError without values.
    """
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(match[1]) / 1024 if match else 0.0


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


def load(side: Side, name: str, *args: str, reports: int = 3) -> Load:
    """A genuine benchmark client for some reports (10 s each); the first one is warm-up."""
    command = genuine.java(f"example.benchmark.{name}", *args, "-t", TOPIC, "-n", side.namesrv)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(10 * reports + 60, child.kill)
    watchdog.start()
    seen: list[tuple[float, float, float, float | None]] = []
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if (match := REPORT.search(line)) is None or "Current Time" not in line:
                continue
            trip = float(match[2]) if match[2] else None
            seen.append((time.monotonic(), cpu_seconds(side.pid), float(match[1]), trip))
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
    )


def loads(side: Side, seconds: int) -> dict[str, Load]:
    """The four works of the genuine benchmark clients."""
    reports = max(2, seconds // 10)
    found = {}
    found["send64"] = load(side, "Producer", "-w", "64", "-s", "128", reports=reports)
    found["send1"] = load(side, "Producer", "-w", "1", "-s", "128", reports=reports)
    found["batch"] = load(
        side, "BatchProducer", "-w", "10", "-b", "32", "-s", "128", reports=reports
    )
    found["drain"] = load(side, "Consumer", "-g", "bench_drain", "-p", "false", reports=2)
    for work, seen in found.items():
        print(f"  {side.name:8} {work:7} {seen}", flush=True)
    return found


def all_loads(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, Load]]:
    """The works on each side, in turn in each round; medians of the rounds."""
    sides = {"genuine": theirs, "ours": ours}
    if args.ours_only:
        del sides["genuine"]
    found: dict[str, list[dict[str, Load]]] = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, start in sides.items():
            with start(folder / side) as running:
                found[side].append(loads(running, args.seconds))
            shutil.rmtree(folder / side, ignore_errors=True)
    return {
        side: {work: middle([one[work] for one in rounds]) for work in rounds[0]}
        for side, rounds in found.items()
    }


def middle(rounds: Sequence[Load]) -> Load:
    """The median of each figure."""
    trips = [one.round_trip_ms for one in rounds if one.round_trip_ms is not None]
    return Load(
        rate=statistics.median(one.rate for one in rounds),
        round_trip_ms=statistics.median(trips) if trips else None,
        broker_cpu_us=statistics.median(one.broker_cpu_us for one in rounds),
    )


def start_seconds(data: Path) -> float:
    """From the start of `roquet dev` to its ready line."""
    server = DevServer(data.with_name(f"{data.name}-server"), "--data", str(data))
    began = time.monotonic()
    with server:
        return time.monotonic() - began


def starts(folder: Path, gigabytes: float) -> tuple[float, float]:
    """Start on an empty store (best of five), and on one full of 1 KiB messages after kill -9."""
    empty = min(start_seconds(folder / f"empty{i}") for i in range(5))
    full = folder / "full"
    fill = [sys.executable, str(HERE / "fill.py"), str(full), "--bytes", str(int(gigabytes * 1e9))]
    subprocess.run([*fill, "--size", "1024", "--die"], check=False)
    return empty, start_seconds(full)


def idle(folder: Path, seconds: int = 20) -> tuple[float, float]:
    """Resident memory (MiB) and CPU share (%) of a broker with nothing to do."""
    with ours(folder) as side:
        time.sleep(3)
        before = cpu_seconds(side.pid)
        time.sleep(seconds)
        return rss_mib(side.pid), (cpu_seconds(side.pid) - before) / seconds * 100


def rows(found: dict[str, dict[str, Load]]) -> list[Row]:
    """The loads as lines of the table."""

    def pair(work: str, what: str) -> tuple[float | None, float | None]:
        values = [
            getattr(found[side][work], what) if side in found else None
            for side in ("ours", "genuine")
        ]
        return values[0], values[1]

    def line(work: str, what: str, title: str, unit: str, goal: float, *, more: bool) -> Row:
        sign = ">=" if more else "<="
        ours_, theirs_ = pair(work, what)
        return Row(
            title, unit, ours_, theirs_, f"{sign} {goal} x",
            lambda o, t: bool(t) and ((o / t >= goal) if more else (o / t <= goal)),
        )  # fmt: skip

    send, one, batch, drain = (
        "Producer, 64 threads: ",
        "Producer, 1 thread: ",
        "BatchProducer 10 x 32: ",
        "Consumer draining: ",
    )
    cpu = "broker CPU a message"
    return [
        line("send64", "broker_cpu_us", send + cpu, "us", 0.3, more=False),
        line("send64", "rate", send + "throughput", "msg/s", 1.2, more=True),
        line("send1", "round_trip_ms", one + "round trip", "ms", 1.0, more=False),
        line("batch", "rate", batch + "throughput", "msg/s", 1.2, more=True),
        line("batch", "broker_cpu_us", batch + cpu, "us", 0.7, more=False),
        line("drain", "broker_cpu_us", drain + cpu, "us", 0.5, more=False),
        line("drain", "rate", drain + "throughput", "msg/s", 1.2, more=True),
    ]  # fmt: skip


def bound(work: str, unit: str, value: float, most: float) -> Row:
    """A line whose goal is a figure of its own."""
    return Row(work, unit, value, None, f"<= {most}", lambda o, _t: o <= most)


def reach(work: str, unit: str, value: float, least: float) -> Row:
    """A line whose goal is a figure of its own, or more."""
    return Row(work, unit, value, None, f">= {least:,}", lambda o, _t: o >= least)


def measure(args: argparse.Namespace, folder: Path) -> list[Row]:
    """Everything asked for."""
    only = set(args.only.split(",")) if args.only else {"loads", "start", "idle"}
    table: list[Row] = []
    if "loads" in only:
        if lack := genuine.missing():
            print(f"the loads need the genuine benchmark clients; {lack}")
        else:
            table += rows(all_loads(args, folder))
    if "start" in only:
        empty, full = starts(folder / "start", args.gigabytes)
        table += [
            bound("roquet dev: ready on an empty store", "s", empty, 0.4),
            bound(f"roquet dev: ready with {args.gigabytes} GB after kill -9", "s", full, 2.0),
        ]
        shutil.rmtree(folder / "start", ignore_errors=True)
    if "idle" in only:
        memory, share = idle(folder / "idle")
        table += [
            bound("idle broker: RSS", "MiB", memory, 60),
            bound("idle broker: CPU", "%", share, 1),
        ]
    return table


def show(table: list[Row], peer: str = "genuine") -> None:
    """The table, for eyes."""
    print(f"\n{'work':58} {'unit':7} {'ours':>12} {peer:>12} {'ratio':>7} {'goal':>10}  holds")
    for row in table:
        ours_ = "-" if row.ours is None else f"{row.ours:,.3f}"
        theirs_ = "-" if row.theirs is None else f"{row.theirs:,.3f}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        line = f"{row.work:58} {row.unit:7} {ours_:>12} {theirs_:>12} {ratio:>7} {row.goal:>10}"
        print(f"{line}  {row.verdict}")


def save(table: list[Row], out: Path, peer: str = "genuine") -> None:
    """The rows as JSON, in a file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    results = [
        {"work": r.work, "unit": r.unit, "ours": r.ours, peer: r.theirs, "ratio": r.ratio,
         "goal": r.goal, "holds": r.verdict if r.goal else "", "cause": r.cause,
         **({"series": r.series, "x": r.x} if r.series else {})}
        for r in table
    ]  # fmt: skip
    out.write_text(json.dumps(results, indent=2) + "\n")


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="of each load, after its warm-up")
    parser.add_argument("--rounds", type=int, default=5, help="of the loads; medians count")
    parser.add_argument("--gigabytes", type=float, default=3.0, help="for the start after kill -9")
    parser.add_argument("--only", help="some of loads,start,idle")
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        table = measure(args, Path(folder))
    show(table)
    save(table, args.out)


if __name__ == "__main__":
    main()
