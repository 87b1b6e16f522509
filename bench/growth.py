"""Growth: throughput, broker CPU and round trips by connections, topics, body size and brokers.

    python -m bench.growth --only connections,topics --rounds 3

Both sides run in turn, with the client of `raw_client.py`, each axis on a fresh store. Figures are
medians of the rounds. A throughput below 0.9 x of the point before it (bodies: in bytes) is a fault
unless `CAUSES` names its cause; what the measurement saw besides is told with it. Linux only.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.lib.raw_client import Load, Result, Start, allow_descriptors, measure, median, sides
from bench.lib.rows import Row, save, show

FALL: Final = 0.9
"""A throughput below so many times its neighbour needs a cause."""

CLIENT_FULL: Final = 0.95
"""Share of a core from which the client may be the limit."""

BODY_BYTES_MAX: Final = 2 * 1024**3
"""Bytes that one measurement stores at most."""

BODY_SIZES: Final = (16, 1_024, 65_536, 1_048_576, 4_194_304)

CAUSES: Final[Mapping[tuple[str, int], str]] = MappingProxyType(
    {
        ("body", 4_194_304): "bound by memory: 23 % of the CPU is the checksum, 19 % the kernel's"
        " copy into the page cache, 18 % its copy from the socket, 14 % copies of buffers (perf);"
        " a virtual machine that gets each page from its host first stops at some 330 MB/s",
    }
)
"""Known causes of a fall, by axis and value."""


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
    Axis("body", "B", BODY_SIZES, lambda n: Load(connections=8, size=n)),
    Axis("brokers", "", (1, 2), lambda _: Load(), is_brokers=True),
)

Found = Mapping[str, list[Result]]
"""Results of one point's rounds by side."""


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


def run(axis: Axis, given: argparse.Namespace) -> dict[int, Found]:
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


def rows(axis: Axis, found: Mapping[int, Found]) -> list[Row]:
    """Four lines for each point; the first of them, throughput, has the goal."""
    table: list[Row] = []
    before: float | None = None
    for value, results in found.items():
        title = f"{axis.name} {value:,} {axis.unit}".rstrip()
        size = axis.load(value).size if axis.name == "body" else 1
        rate = _row(axis, value, title, ("throughput", "msg/s"), results, lambda r: r.rate)
        if before is not None:
            least = FALL * before / size
            rate.goal = f">= {least:,.0f}, {FALL} of the row before"
            if _rate(rate) < least:
                known = CAUSES.get((axis.name, value), "")
                rate.cause = known or symptom(results["ours"])
                rate.goal = "a fall with a known cause" if known else rate.goal
        before = _rate(rate) * size
        table += [
            rate,
            _row(
                axis, value, title, ("broker CPU a message", "us"), results, lambda r: r.broker_us
            ),
            _row(axis, value, title, ("p50", "ms"), results, lambda r: r.trip_ms(50)),
            _row(axis, value, title, ("p99", "ms"), results, lambda r: r.trip_ms(99)),
        ]
    return table


def _row(
    axis: Axis, value: int, title: str, what: tuple[str, str], results: Found,
    figure: Callable[[Result], float],
) -> Row:  # fmt: skip
    name, unit = what
    figures = {side: median(rounds, figure) for side, rounds in results.items()}
    return Row(
        f"{title}: {name}", unit, figures["ours"], figures.get("genuine"),
        series=f"{axis.name}: {name}, {unit}", x=value,
    )  # fmt: skip


def _rate(row: Row) -> float:
    return row.ours or 0.0


def symptom(results: list[Result]) -> str:
    """Refusals or a busy client beside a fall that `CAUSES` does not explain; empty without."""
    if refused := median(results, lambda r: r.refused):
        return f"unknown; {refused:,.0f} requests were refused"
    share = median(results, lambda r: r.client_share)
    return f"unknown; the client used {share:.0%} of its core" if share >= CLIENT_FULL else ""


def smaller(axis: Axis, most: int) -> Axis:
    """The axis without its values above a limit."""
    values = tuple(value for value in axis.values if value <= most)
    return Axis(axis.name, axis.unit, values, axis.load, axis.is_brokers)


def main() -> None:
    """Measure, print, write the JSON."""
    names = [axis.name for axis in AXES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="leave larger values out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--warm", type=float, default=10, help="seconds before the first one")
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-growth.json"))
    given = parser.parse_args()
    allow_descriptors()
    only = set(given.only.split(","))
    table: list[Row] = []
    for axis in (smaller(axis, given.most) for axis in AXES if axis.name in only):
        table += rows(axis, run(axis, given))
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
