"""The whole system measured: ours and, where Java and Maven are, Apache RocketMQ on the same work.

Run by `make bench`; prints a table of figures, goals and ratios, and writes one JSON of results.
Both sides run in the same session, in turn, with the genuine benchmark clients. Linux only: CPU
time and memory are read from /proc.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.lib.measures import cpu_seconds, rss_mib
from bench.lib.rows import Row, bound, save, show
from bench.lib.sides import Load, Side, load, ours, theirs
from harness import genuine
from harness.servers import DevServer


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
    fill = [sys.executable, "-m", "bench.fill", str(full), "--bytes", str(int(gigabytes * 1e9))]
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
