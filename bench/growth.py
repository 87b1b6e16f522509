"""Growth: throughput, broker CPU and round trips by connections, topics, body size and brokers.

    python -m bench.growth --only connections,topics --rounds 3
    python -m bench.growth --only connections --least 512 --most 512 --quick

Both sides run in turn, with the client of `raw_client.py`, each axis on a fresh store. Figures are
medians of the rounds. Where `GOALS` has none for it, a throughput below 0.9 x of the point before
it (bodies: in bytes) is a fault; its cause is told with it, from `CAUSES` or from what the
measurement saw besides. Linux only.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.lib.arguments import parse, parser_for
from bench.lib.raw_client import Load, Result, Start, allow_descriptors, measure, median, sides
from bench.lib.rows import Rounds, Row, at_least, bound, calibration_of, compared, save, show

FALL: Final = 0.9
"""Goal of a throughput, beside its neighbour's, where `GOALS` has none."""

CLIENT_FULL: Final = 0.95
"""Share of a core from which the client may be the limit."""

BODY_BYTES_MAX: Final = 2 * 1024**3
"""Bytes that one measurement stores at most."""

GOALS: Final[Mapping[tuple[str, int], str]] = MappingProxyType(
    {
        ("connections", 512): "1.2 x",
        ("connections", 2_000): "1.2 x",
        ("body", 65_536): "1.5 x",
        ("body", 1_048_576): "1.2 x",
        ("body", 4_194_304): "1.2 x",
    }
)
"""Throughput beside the other side's, by axis and value."""

CPU_GROWTH_MAX: Final = 1.2
"""CPU of a message over the most connections, beside that over 64."""

CAUSES: Final[Mapping[tuple[str, int], str]] = MappingProxyType(
    {
        ("body", 4_194_304): "bound by memory: 23 % of the CPU is the checksum, 19 % the kernel's"
        " copy into the page cache, 18 % its copy from the socket, 14 % copies of buffers (perf);"
        " where the host first has to grant each page to a virtual machine, both sides stop at some"
        " 330 MB/s",
    }
)
"""Known causes of a missed goal, by axis and value."""


@dataclass(frozen=True)
class Axis:
    """One thing that grows, while all others stay as they are."""

    name: str
    unit: str
    values: tuple[int, ...]
    load: Callable[[int], Load]
    is_brokers: bool = False

    def brokers(self, value: int) -> int:
        """How many brokers a value needs."""
        return value if self.is_brokers else 1


AXES: Final = (
    Axis("connections", "", (1, 8, 64, 512, 2_000), lambda n: Load(connections=n)),
    Axis("topics", "", (1, 100, 5_000), lambda n: Load(topics=n)),
    # Few connections: 64 bodies of 4 MiB in flight would measure the limit of unread bytes.
    Axis(
        "body",
        "B",
        (16, 1_024, 65_536, 1_048_576, 4_194_304),
        lambda n: Load(connections=8, size=n),
    ),
    Axis("brokers", "", (1, 2), lambda _: Load(), is_brokers=True),
)


def points(axis: Axis, start: Start, given: argparse.Namespace) -> Iterator[tuple[int, Result]]:
    """All values of an axis on one side; brokers are started anew where their number changes."""
    for count, values in itertools.groupby(axis.values, axis.brokers):
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-growth-"))
            brokers = stack.enter_context(start(Path(folder), count))
            measure(brokers, Load(), 0, warm=given.warm)
            for value in values:
                load = axis.load(value)
                result = measure(
                    brokers, load, given.seconds, warm=given.seconds / 5, bytes_max=BODY_BYTES_MAX
                )
                print(
                    f"  {brokers.name:8} {axis.name} {value:,}: {result.rate:,.0f}/s,"
                    f" client {result.client_share:.0%} of a core, {result.refused} refused",
                    flush=True,
                )
                yield value, result


def run(axis: Axis, given: argparse.Namespace) -> dict[int, Rounds[Result]]:
    """All rounds of an axis, the sides in turn."""
    starts = sides(ours_only=given.ours_only)
    found: dict[int, dict[str, list[Result]]] = {
        value: {name: [] for name in starts} for value in axis.values
    }
    for _ in range(given.rounds):
        for name, start in starts.items():
            for value, result in points(axis, start, given):
                found[value][name].append(result)
    return dict(found)


def rows(axis: Axis, found: Mapping[int, Rounds[Result]]) -> list[Row]:
    """Four lines for each point; the first of them, throughput, has the goal."""
    table: list[Row] = []
    before: float | None = None
    for value, results in found.items():
        title = f"{axis.name} {value:,} {axis.unit}".rstrip()
        size = axis.load(value).size if axis.name == "body" else 1
        lines = _lines(axis, value, title, results)
        rate = lines[0]
        if goal := GOALS.get((axis.name, value)):
            at_least(rate, goal)
        elif before is not None:
            rate.goal = f">= {FALL * before / size:,.0f}, {FALL} of the row before"
        if rate.verdict == "NO":
            rate.cause = CAUSES.get((axis.name, value)) or symptom(results["ours"])
        before = _rate(rate) * size
        table += lines
    return table


def _lines(axis: Axis, value: int, title: str, rounds: Rounds[Result]) -> list[Row]:
    figures: Mapping[tuple[str, str], Callable[[Result], float]] = {
        ("throughput", "msg/s"): lambda r: r.rate,
        ("broker CPU a message", "us"): lambda r: r.broker_us,
        ("p50", "ms"): lambda r: r.trip_ms(50),
        ("p99", "ms"): lambda r: r.trip_ms(99),
    }
    return [
        replace(
            compared(f"{title}: {name}", unit, rounds, figure),
            series=f"{axis.name}: {name}, {unit}",
            x=value,
        )
        for (name, unit), figure in figures.items()
    ]


def cpu_growth(found: Mapping[int, Rounds[Result]]) -> list[Row]:
    """CPU of a message over the most connections beside that over 64; none without both."""
    most = max(found)
    if 64 not in found or most <= 64:
        return []
    cpu = [median(found[count]["ours"], lambda r: r.broker_us) for count in (most, 64)]
    work = f"connections {most:,}: broker CPU a message, beside 64"
    row = bound(work, "x", cpu[0] / cpu[1], CPU_GROWTH_MAX)
    return [replace(row, calibration=calibration_of(found[most]))]


def _rate(row: Row) -> float:
    return row.ours or 0.0


def symptom(results: Sequence[Result]) -> str:
    """Refusals or a busy client beside a fall that `CAUSES` does not explain; empty without."""
    if refused := median(results, lambda r: r.refused):
        return f"unknown; {refused:,.0f} requests were refused"
    share = median(results, lambda r: r.client_share)
    return f"unknown; the client used {share:.0%} of its core" if share >= CLIENT_FULL else ""


def between(axis: Axis, least: int, most: int) -> Axis:
    """The axis without its values beyond two limits."""
    return replace(axis, values=tuple(v for v in axis.values if least <= v <= most))


def main() -> None:
    """Measure, print, write the JSON."""
    parser = parser_for(__doc__, "growth", [axis.name for axis in AXES], seconds=5)
    parser.add_argument("--least", type=int, default=0, help="leave smaller values out")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="leave larger values out")
    given = parse(parser)
    allow_descriptors()
    table: list[Row] = []
    for axis in (between(axis, given.least, given.most) for axis in AXES):
        if axis.name in given.only and axis.values:
            found = run(axis, given)
            table += rows(axis, found)
            table += cpu_growth(found) if axis.name == "connections" else []
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
