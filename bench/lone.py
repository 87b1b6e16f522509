"""Round trips of one connection and of 64, on our broker and on Apache RocketMQ.

    python -m bench.lone --rounds 5
    python -m bench.lone --only 64 --quick

Both sides run in turn in each round, with the client of `raw_client.py`: one request in flight for
each connection, bodies of 128 bytes. Printed and saved are medians of the rounds. Linux only.
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.lib.arguments import parse, parser_for
from bench.lib.raw_client import Load, Result, measure, sides
from bench.lib.rows import Rounds, Row, at_least, at_most, compared, save, show

CONNECTIONS = (64, 1)


def run(given: argparse.Namespace) -> dict[int, Rounds[Result]]:
    """All rounds by connections: a side is started, measured with each number, and stopped."""
    starts = sides(ours_only=given.ours_only)
    found: dict[int, dict[str, list[Result]]] = {
        count: {name: [] for name in starts} for count in map(int, given.only)
    }
    for _ in range(given.rounds):
        for name, start in starts.items():
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-lone-"))
                brokers = stack.enter_context(start(Path(folder), 1))
                for count, results in found.items():
                    load = Load(connections=count)
                    result = measure(brokers, load, given.seconds, warm=given.warm)
                    results[name].append(result)
                    print(f"  {name:8} {count:3} connections {result.rate:,.0f}/s", flush=True)
    return dict(found)


def lines(count: int, rounds: Rounds[Result]) -> tuple[Row, Row, Row, Row]:
    """Throughput, CPU, p50 and p99 of a number of connections, without goals."""
    title = f"{count} connection{'s' if count > 1 else ''} x 128 B"
    return (
        compared(f"{title}: throughput", "msg/s", rounds, lambda r: r.rate),
        compared(f"{title}: broker CPU a message", "us", rounds, lambda r: r.broker_us),
        compared(f"{title}: p50", "ms", rounds, lambda r: r.trip_ms(50)),
        compared(f"{title}: p99", "ms", rounds, lambda r: r.trip_ms(99)),
    )


def rows(found: dict[int, Rounds[Result]]) -> list[Row]:
    """The table, with its goals."""
    table: list[Row] = []
    for count, rounds in found.items():
        rate, cpu, p50, p99 = lines(count, rounds)
        if count == 1:
            table += [rate, at_most(cpu, "0.3 x"), at_most(p50, "0.6 x"), p99]
        else:
            table += [at_least(rate, "2.2 x"), at_most(cpu, "0.25 x"), p50, at_most(p99, "0.45 x")]
    return table


def main() -> None:
    """Measure, print, write the JSON."""
    given = parse(parser_for(__doc__, "lone", [str(count) for count in CONNECTIONS]))
    table = rows(run(given))
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
