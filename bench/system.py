"""The whole system measured: ours and, where Java and Maven are, Apache RocketMQ on the same work.

    python -m bench.system --only batch --quick

Prints a table of figures, goals and ratios, and writes one JSON of results. Both sides run in the
same session, in turn, with the genuine benchmark clients. Linux only: CPU time is read from /proc.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.lib.arguments import parse, parser_for
from bench.lib.rows import (
    Rounds,
    Row,
    at_least,
    at_most,
    bound,
    calibrated,
    compared,
    in_each_round,
    save,
    show,
)
from bench.lib.sides import REPORT_S, UNIQUE, Load, Side, load, ours, theirs
from harness import genuine
from harness.servers import DevServer

TITLES: Final = {
    "send64": "Producer, 64 threads",
    "send1": "Producer, 1 thread",
    "batch": "BatchProducer 10 x 32",
    "drain": "Consumer draining",
}
LOADS: Final = {
    "send64": ("Producer", "-w", "64", "-s", "128"),
    "send1": ("Producer", "-w", "1", "-s", "128"),
    "batch": ("BatchProducer", "-w", "10", "-b", "32", "-s", "128"),
    "drain": ("Consumer", "-g", f"bench_drain_{UNIQUE}", "-p", "false"),
}
"""Genuine benchmark clients with their arguments. A drain needs messages, those of a batch, and has
a group of its own, so that it can be repeated: with `-p true` one in a hundred would have a former
one, and find nothing."""
DRAIN_REPORTS: Final = 2
"""Reports of a drain at most: then the topic is empty."""


def loads(side: Side, works: Sequence[str], seconds: float) -> dict[str, Load]:
    """Works of the genuine benchmark clients on a side."""
    found = {}
    for work in works:
        reports = max(1, round(seconds / REPORT_S))
        reports = min(reports, DRAIN_REPORTS) if work == "drain" else reports
        found[work] = load(side, *LOADS[work], reports=reports)
        print(f"  {side.name:8} {work:7} {found[work]}", flush=True)
    return found


def all_loads(given: argparse.Namespace, folder: Path) -> dict[str, Rounds[Load]]:
    """The works asked for: rounds of each side, in turn."""
    starts = {"ours": ours} if given.ours_only else {"genuine": theirs, "ours": ours}
    asked = {*given.only, *(["batch"] if "drain" in given.only else [])}
    works = [work for work in LOADS if work in asked]
    found: dict[str, dict[str, list[Load]]] = {
        work: {side: [] for side in starts} for work in works
    }
    for _ in range(given.rounds):
        for side, start in starts.items():
            with start(folder / side) as running:
                for work, seen in loads(running, works, given.seconds).items():
                    found[work][side].append(seen)
            shutil.rmtree(folder / side, ignore_errors=True)
    return dict(found)


def start_seconds(data: Path) -> float:
    """From the start of `roquet dev` to its ready line."""
    server = DevServer(data.with_name(f"{data.name}-server"), "--data", str(data))
    began = time.monotonic()
    with server:
        return time.monotonic() - began


def starts(folder: Path, gigabytes: float) -> list[Row]:
    """Start on an empty store (best of five), and on one full of 1 KiB messages after kill -9."""
    empty = min(start_seconds(folder / f"empty{i}") for i in range(5))
    full = folder / "full"
    fill = [sys.executable, "-m", "bench.fill", str(full), "--bytes", str(int(gigabytes * 1e9))]
    subprocess.run([*fill, "--size", "1024", "--die"], check=False)
    return [
        bound("roquet dev: ready on an empty store", "s", empty, 0.4),
        bound(
            f"roquet dev: ready with {gigabytes} GB after kill -9", "s", start_seconds(full), 2.0
        ),
    ]


def rows(found: Mapping[str, Rounds[Load]]) -> list[Row]:
    """The loads as lines of the table."""
    table: list[Row] = []
    for work, rounds in found.items():
        rate = compared(f"{TITLES[work]}: throughput", "msg/s", rounds, rate_of)
        cpu = compared(f"{TITLES[work]}: broker CPU a message", "us", rounds, cpu_of)
        match work:
            case "send64":
                table += [
                    at_least(rate, "1.2 x"),
                    *in_each_round(at_most(cpu, "0.25 x"), rounds, cpu_of),
                ]
            case "send1":
                trip = compared(
                    f"{TITLES[work]}: round trip",
                    "ms",
                    rounds,
                    lambda one: one.round_trip_ms or 0.0,
                )
                table += [at_most(cpu, "0.3 x"), at_most(trip, "0.6 x")]
            case "batch":
                table += [
                    *in_each_round(at_least(rate, "1.3 x"), rounds, rate_of),
                    at_most(cpu, "0.6 x"),
                ]
            case _:
                table += [at_least(rate, "2 x"), at_most(cpu, "0.35 x")]
                rate.cause = client_limit(rounds["ours"]) if rate.verdict == "NO" else ""
    return table


def client_limit(rounds: Sequence[Load]) -> str:
    """Limit that the client sets: messages a second of a broker that costs nothing, here."""
    cost = statistics.median(one.client_cpu_us for one in rounds)
    if not cost:
        return ""
    most = (os.cpu_count() or 1) / cost * 1e6
    return f"the client itself takes {cost:.1f} us a message: at most {most:,.0f} msg/s here"


def rate_of(one: Load) -> float:
    return one.rate


def cpu_of(one: Load) -> float:
    return one.broker_cpu_us


def measure(given: argparse.Namespace, folder: Path) -> list[Row]:
    """Everything asked for."""
    table: list[Row] = []
    if {*given.only} & {*LOADS}:
        if lack := genuine.missing():
            print(f"the loads need the genuine benchmark clients; {lack}")
        else:
            table += rows(all_loads(given, folder))
    if "start" in given.only:
        table += calibrated(lambda: starts(folder / "start", given.gigabytes))
        shutil.rmtree(folder / "start", ignore_errors=True)
    return table


def main() -> None:
    """Measure, print, write the JSON."""
    parser = parser_for(__doc__, "system", [*LOADS, "start"], seconds=30)
    parser.add_argument("--gigabytes", type=float, default=3.0, help="for the start after kill -9")
    given = parse(parser)
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        table = measure(given, Path(folder))
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
