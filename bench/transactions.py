"""Transactions measured: the genuine TransactionProducer benchmark on our broker and on theirs.

Both sides run in turn. The client knows by itself which checks it should get: each
message says what its producer will answer, so `unexpected` and `duplicated` have to stay 0.

    python -m bench.transactions --seconds 30 --rounds 2
"""

import argparse
import re
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.lib.measures import cpu_seconds
from bench.lib.rows import Row, save
from bench.lib.sides import TOPIC, Side, ours, theirs
from harness import genuine

REPORT = re.compile(
    r"Send TPS:\s*(\d+) \| Max RT\(ms\):\s*(\d+) \| AVG RT\(ms\):\s*([\d.]+) \| Send Failed: (\d+)"
    r" \| Check: (\d+) \| UnexpectedCheck: (\d+) \| DuplicatedCheck: (\d+)"
)
MIXED = ("-sr", "0.1", "-su", "0.2", "-cr", "0.1", "-cu", "0.2", "-i", "20")
"""A tenth rolled back, a fifth asked about, some of that twice; not too many of them."""


@dataclass
class Result:
    """Reports of the client without its first one."""

    side: str
    work: str
    rate: float
    round_trip_ms: float
    broker_cpu_us: float
    failed: int
    checks: int
    unexpected: int
    duplicated: int


def produce(side: Side, work: str, *args: str, reports: int) -> Result:
    """The benchmark client for so many reports of 10 s, and one to warm up."""
    command = genuine.java(
        "example.benchmark.TransactionProducer", *args, "-t", TOPIC, "-n", side.namesrv
    )
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(10 * reports + 90, child.kill)
    watchdog.start()
    seen: list[tuple[float, float, list[float]]] = []
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if match := REPORT.search(line):
                numbers = [float(number) for number in match.groups()]
                seen.append((time.monotonic(), cpu_seconds(side.pid), numbers))
                if len(seen) > reports:
                    break
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
    if len(seen) < 2:
        raise RuntimeError(f"TransactionProducer on {side.name} made no reports")
    return _summed(side.name, work, seen)


def _summed(side: str, work: str, seen: list[tuple[float, float, list[float]]]) -> Result:
    """One result of all reports but the first."""
    warm = [numbers for _, _, numbers in seen[1:]]
    rate = sum(numbers[0] for numbers in warm) / len(warm)
    lasted = seen[-1][0] - seen[0][0]
    return Result(
        side=side,
        work=work,
        rate=rate,
        round_trip_ms=sum(numbers[2] for numbers in warm) / len(warm),
        broker_cpu_us=(seen[-1][1] - seen[0][1]) / max(rate * lasted, 1) * 1e6,
        failed=int(sum(numbers[3] for numbers in warm)),
        checks=int(sum(numbers[4] for numbers in warm)),
        unexpected=int(sum(numbers[5] for numbers in warm)),
        duplicated=int(sum(numbers[6] for numbers in warm)),
    )


def measure(args: argparse.Namespace, folder: Path) -> list[Result]:
    """Both works on each side, as often as asked, in turn."""
    found = []
    reports = max(1, args.seconds // 10)
    sides = {"ours": ours, "theirs": theirs}
    if args.ours_only:
        del sides["theirs"]
    for number in range(args.rounds):
        for name, start in sides.items():
            with start(folder / f"{name}-{number}") as side:
                size = ("-w", str(args.threads), "-s", str(args.size))
                found.append(produce(side, "commit", *size, reports=reports))
                if args.checks:
                    checks = max(1, args.checks // 10)
                    found.append(produce(side, "mixed", *size, *MIXED, reports=checks))
    return found


def show(results: list[Result]) -> None:
    """The table, for eyes."""
    print(
        f"{'work':8} {'side':8} {'msg/s':>9} {'ms':>7} {'broker µs':>10} {'failed':>7}"
        f" {'checks':>7} {'unexp.':>7} {'dupl.':>6}"
    )
    for one in results:
        print(
            f"{one.work:8} {one.side:8} {one.rate:9,.0f} {one.round_trip_ms:7.2f}"
            f" {one.broker_cpu_us:10.1f} {one.failed:7} {one.checks:7} {one.unexpected:7}"
            f" {one.duplicated:6}"
        )
    for work in dict.fromkeys(one.work for one in results):
        rates = {
            side: [one.rate for one in results if one.work == work and one.side == side]
            for side in ("ours", "genuine")
        }
        if all(rates.values()):
            ratio = sum(rates["ours"]) / sum(rates["genuine"])
            print(f"{work}: {ratio:.2f} x of genuine (goal: commit 1.0 x, 0 unexpected)")


def rows(results: list[Result]) -> list[Row]:
    """Medians of the rounds as lines of the table; the commits have the goal."""

    def row(work: str, name: str, unit: str, figure: Callable[[Result], float]) -> Row:
        figures = [
            [figure(one) for one in results if (one.side, one.work) == (side, work)]
            for side in ("ours", "genuine")
        ]
        ours, theirs = (statistics.median(some) if some else None for some in figures)
        return Row(f"TransactionProducer, {work}: {name}", unit, ours, theirs)

    table: list[Row] = []
    for work in dict.fromkeys(one.work for one in results):
        rate = row(work, "throughput", "msg/s", lambda one: one.rate)
        unexpected = row(work, "unexpected checks", "", lambda one: float(one.unexpected))
        unexpected.goal = "<= 0"
        if work == "commit":
            rate.goal = ">= 1.0 x"
        cost = row(work, "broker CPU a message", "us", lambda one: one.broker_cpu_us)
        table += [rate, cost, unexpected]
    return table


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="of each load, after 10 s")
    parser.add_argument("--checks", type=int, default=120, help="seconds with checks; 0: none")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--size", type=int, default=2_048, help="of a body, in bytes")
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-transactions.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        results = measure(args, Path(folder))
    show(results)
    save(rows(results), args.out)


if __name__ == "__main__":
    main()
