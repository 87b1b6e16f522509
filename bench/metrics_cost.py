"""Cost of metrics: broker CPU of a send over 64 connections, with the metrics page and without.

    python -m bench.metrics_cost --rounds 5 --seconds 4

Two brokers run all the time and are measured in turn, so that both have the same machine. Printed
and saved are medians of the rounds, the median of their ratios, and the cost of one page, which
Prometheus usually asks for every 15 s. Linux only.
"""

import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

from bench.lib.arguments import parse, parser_for
from bench.lib.raw_client import Brokers, Load, Result, in_turn, median, ours
from bench.lib.rows import Row, calibration_of, save, show
from harness.ports import free_port

COST_MAX = 1.02
PAGE_S = 1.1
"""Seconds from page to page: a page is shown again to whoever asks within one."""


def page_ms(broker: Brokers, port: int, pages: int) -> float:
    """CPU time of the broker for one page, in ms, beside what it uses without requests."""
    time.sleep(pages * PAGE_S)
    began_s = broker.cpu_seconds()
    time.sleep(pages * PAGE_S)
    idle_s = broker.cpu_seconds() - began_s
    began_s = broker.cpu_seconds()
    for _ in range(pages):
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            page.read()
        time.sleep(PAGE_S)
    return (broker.cpu_seconds() - began_s - idle_s) * 1000 / pages


def run(rounds: int, seconds: float, pages: int) -> tuple[list[Result], list[Result], float]:
    """Results of each round, with metrics and without, and the ms of one page."""
    port = free_port()
    settings = f"metricsExporterType=PROM\nmetricsPromExporterPort={port}\n"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-metrics-")))
        without = stack.enter_context(ours(folder / "off"))
        with_page = stack.enter_context(ours(folder / "on", settings=settings))
        sides = [(with_page, Load()), (without, Load())]
        shown, plain = in_turn(sides, rounds, seconds)
        return shown, plain, page_ms(with_page, port, pages)


def rows(shown: list[Result], plain: list[Result], page: float) -> list[Row]:
    """The table: what metrics cost, beside a broker without them."""
    name = "64 connections x 128 B"
    cost = statistics.median(
        one.broker_us / other.broker_us for one, other in zip(shown, plain, strict=True)
    )
    figures = [
        (f"{name}: broker CPU a message, metrics / none", "us", lambda r: r.broker_us),
        (f"{name}: throughput, metrics / none", "msg/s", lambda r: r.rate),
    ]
    table = [Row(title, unit, median(shown, f), median(plain, f)) for title, unit, f in figures]
    ratio = Row(f"{name}: CPU with metrics", "times", cost, None, f"<= {COST_MAX}")
    table += [ratio, Row("one metrics page: broker CPU", "ms", page)]
    calibration = calibration_of({"ours": [*shown, *plain]})
    return [replace(row, calibration=calibration) for row in table]


def main() -> None:
    """Measure, print, write the JSON."""
    parser = parser_for(__doc__, "metrics-cost", ["send"], seconds=4)
    parser.add_argument("--pages", type=int, default=5, help="whose cost is measured")
    given = parse(parser)
    table = rows(*run(given.rounds, given.seconds, given.pages))
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
