"""SQL92 scan measured: CPU time of one message in a broker's scan, by expression and by layout.

    python -m bench.filter_scan --messages 30000 --rounds 9 --directory /dev/shm

One process and no network: the store's blocks are read and filtered as a pull does it. Each figure
is the median of its rounds, in CPU time rather than seconds, since other programs may run beside
it; `read` is the time of reading alone. A message has 11 to 15 properties.

Layouts: `alone` is one queue without others between, `mixed` four queues whose messages alternate.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.lib.rows import Row, save
from roquet.broker.filtering.filter_cache import CompiledFilter, FilterCache
from roquet.broker.filtering.filter_scan import BLOCK_SIZE, scan_count, scan_once
from roquet.broker.settings.config import BrokerConfig
from roquet.model.subscription import SQL92
from roquet.store.store import Draft, Store
from roquet.wire.records.record import encode_properties

TOPIC = "FilterScan"
SHARES = (1, 10, 50, 90)
"""Per cent of the messages that match."""

LAYOUTS = {"alone": 1, "mixed": 4}
"""Queues whose messages alternate in the log."""


def expressions() -> list[str]:
    """Usual filters, of each kind for each share, and some that are not selective by their kind."""
    listed = {share: ", ".join([f"'r{number}'" for number in range(share)]) for share in SHARES}
    return [
        *[f"is{share} = 'on'" for share in SHARES],
        *[f"amount >= {1000 - 10 * share}" for share in SHARES],
        *[f"amount BETWEEN 100 AND {99 + 10 * share}" for share in SHARES],
        *[f"price > {1000 - 10 * share}.005" for share in SHARES],
        *[f"region IN ({listed[share]})" for share in SHARES],
        *[f"has{share}x IS NOT NULL" for share in SHARES],
        *[f"has{share}x IS NULL" for share in SHARES],
        "customer STARTSWITH 'c-00000'",
        "customer CONTAINS '77'",
        "customer ENDSWITH '77'",
        "is10 = 'on' AND amount >= 900",
        "is10 = 'on' AND amount >= 500",
        "is50 = 'on' AND is90 = 'on'",
        "is1 = 'on' OR region = 'r42'",
        "is10 = 'on' OR amount >= 900",
        "is50 = 'on' OR is10 = 'on'",
        "(region IN ('r1', 'r2') OR is10 = 'on') AND amount BETWEEN 100 AND 600 AND price > 20.5",
        "NOT (region IS NOT NULL AND amount <> 42)",
        "region <> 'r42'",
    ]


def properties(number: int) -> dict[str, str]:
    """Properties of one message; each runs through its values at a pace of its own."""
    share = number * 53 % 100
    values = {
        "UNIQ_KEY": f"7F0000010000{0x78BF0000:08X}{number:012X}",
        "WAIT": "true",
        "TAGS": f"t{number % 10}",
        "region": f"r{number * 19 % 100}",
        "amount": str(number * 37 % 1000),
        "price": f"{number * 71 % 1000}.{number % 10}1",
        "customer": f"c-{number:08d}",
    }
    for most in SHARES:
        values[f"is{most}"] = "on" if share < most else "off"
        if share < most:
            values[f"has{most}x"] = "yes"
    return values


def fill(store: Store, count: int, queues: int, body: bytes) -> None:
    """Append `count` messages to each queue, in turns."""
    for number in range(count):
        text = encode_properties(properties(number))
        for queue_id in range(queues):
            store.append(Draft(TOPIC, queue_id, body, text), 1)


def scan(store: Store, wanted: CompiledFilter) -> tuple[float, int]:
    """Scan the first queue: CPU seconds, and the number of matches."""
    offset, end = store.bounds(TOPIC, 0)
    count, begin = 0, time.process_time()
    while offset < end:
        limits = min(scan_count(wanted), end - offset), sys.maxsize, sys.maxsize
        found = scan_once(store, (TOPIC, 0, offset), wanted, limits)
        offset, count = found.next_offset, count + found.count
    return time.process_time() - begin, count


def read(store: Store) -> float:
    """Read the first queue in blocks, as a scan does: CPU seconds."""
    offset, end = store.bounds(TOPIC, 0)
    begin = time.process_time()
    while offset < end:
        block = store.read_block(TOPIC, 0, offset, count_max=512, bytes_max=BLOCK_SIZE)
        offset = block.next_offset
    return time.process_time() - begin


def measure(store: Store, text: str, rounds: int) -> tuple[float, float]:
    """Share of the messages that match, and CPU microseconds of one message."""
    wanted = FilterCache().find(BrokerConfig(), SQL92, text)
    begin, end = store.bounds(TOPIC, 0)
    passes = [scan(store, wanted) for _ in range(rounds)]
    seconds = statistics.median(seconds for seconds, _ in passes)
    return passes[0][1] / (end - begin), seconds / (end - begin) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=30_000, help="of each queue")
    parser.add_argument("--size", type=int, default=128, help="bytes of each body")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--directory", type=Path, help="for the store: a file system in memory")
    parser.add_argument("--out", type=Path, default=Path("build/bench-filter-scan.json"))
    given = parser.parse_args()
    table: list[Row] = []
    for layout, queues in LAYOUTS.items():
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            store = Store.open(Path(folder), now_ms=1)
            fill(store, given.messages, queues, bytes(given.size))
            print(f"\n{layout:52} {'matching':>9} {'CPU us':>8}")
            seconds = statistics.median(read(store) for _ in range(given.rounds))
            print(f"{'read':52} {'':9} {seconds / given.messages * 1e6:8.2f}")
            table.append(Row(f"scan, {layout}: read alone", "us", seconds / given.messages * 1e6))
            for text in expressions():
                share, scan_us = measure(store, text, given.rounds)
                shown = text if len(text) <= 52 else f"{text[:49]}..."
                print(f"{shown:52} {share:9.1%} {scan_us:8.2f}")
                table.append(Row(f"scan, {layout}: {text}", "us", scan_us))
            store.close(1)
    save(table, given.out)


if __name__ == "__main__":
    main()
