"""Round trips of one connection and of 64, on our broker and on Apache RocketMQ.

    python -m bench.lone --rounds 5

Both sides run in turn in each round, with the client of `raw_client.py`: one request in flight for
each connection, bodies of 128 bytes. Printed and saved are medians of the rounds. Linux only.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from bench.lib.raw_client import Load, Result, measure, median, sides
from bench.lib.rows import Row, at_least, at_most, save, show

CONNECTIONS = (64, 1)

Rounds = Mapping[str, Mapping[int, list[Result]]]
"""Results by side and connections."""


def run(rounds: int, seconds: float, warm: float, *, ours_only: bool) -> Rounds:
    """All rounds: a side is started, measured with each number of connections, and stopped."""
    starts = sides(ours_only=ours_only)
    found: dict[str, dict[int, list[Result]]] = {
        name: {count: [] for count in CONNECTIONS} for name in starts
    }
    for _ in range(rounds):
        for name, start in starts.items():
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-lone-"))
                brokers = stack.enter_context(start(Path(folder), 1))
                for count in CONNECTIONS:
                    result = measure(brokers, Load(connections=count), seconds, warm=warm)
                    found[name][count].append(result)
                    print(f"  {name:8} {count:3} connections {result.rate:,.0f}/s", flush=True)
    return found


def row(found: Rounds, count: int, name: str, unit: str, figure: Callable[[Result], float]) -> Row:
    """The medians of one figure as a line of the table, without a goal."""
    values = {side: median(results[count], figure) for side, results in found.items()}
    plural = "s" if count > 1 else ""
    return Row(
        f"{count} connection{plural} x 128 B: {name}", unit, values["ours"], values.get("genuine")
    )


def rows(found: Rounds) -> list[Row]:
    """The table, with its goals."""

    def lines(count: int) -> tuple[Row, Row, Row, Row]:
        return (
            row(found, count, "throughput", "msg/s", lambda r: r.rate),
            row(found, count, "broker CPU a message", "us", lambda r: r.broker_us),
            row(found, count, "p50", "ms", lambda r: r.trip_ms(50)),
            row(found, count, "p99", "ms", lambda r: r.trip_ms(99)),
        )

    rate, cpu, p50, p99 = lines(64)
    lone_rate, lone_cpu, lone_p50, lone_p99 = lines(1)
    return [
        *(at_least(rate, "2.2 x"), at_most(cpu, "0.3 x"), p50, at_most(p99, "0.45 x")),
        *(lone_rate, at_most(lone_cpu, "0.3 x"), at_most(lone_p50, "0.7 x"), lone_p99),
    ]


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--warm", type=float, default=10, help="seconds before each: Java compiles")
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-lone.json"))
    given = parser.parse_args()
    table = rows(run(given.rounds, given.seconds, given.warm, ours_only=given.ours_only))
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
