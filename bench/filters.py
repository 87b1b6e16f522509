"""Filters measured: SQL92 and tags, on our broker and on Apache RocketMQ, read by the same client.

    python -m bench.filters --messages 1000000

Both sides hold the same messages, of which one in a hundred is wanted. Each work is done some times
on either side in turn, and the best counts: what is measured is a filter, not a cold JVM. Prints a
table of figures and ratios and writes one JSON of results. Linux only: CPU time is read from /proc.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lib.measures import cpu_seconds
from bench.lib.rows import Row, calibrated, save, show
from bench.lib.sides import Side, running_sides
from roquet.client import Message, Producer
from roquet.client.config import ConsumerConfig
from roquet.client.pull import PullConsumer
from roquet.model.queue import MessageQueue
from roquet.net import loop

TOPIC = "FilterBench"
BODY = b"x" * 128
KINDS = 100
"""Values of each property: one in so many messages has a certain one."""

SHARE = "matching 1 %"

PULL_COUNT = 256
"""Messages that one pull asks for; the genuine broker gives 32 of them at most."""

WORKS: dict[str, dict[str, Any]] = {
    f"SQL92 {SHARE}, a text is equal": {"sql": "region = 'r42'"},
    f"SQL92 {SHARE}, a whole number is equal": {"sql": "amount = 42"},
    f"SQL92 {SHARE}, a whole number is greater": {"sql": f"amount > {KINDS - 2}"},
    f"SQL92 {SHARE}, a decimal number is greater": {"sql": f"price > {KINDS - 1}.005"},
    f"SQL92 {SHARE}, two properties": {"sql": f"price < 20.5 AND amount >= {KINDS - 2}"},
    f"SQL92 {SHARE}, all to be looked at closely": {
        "sql": "NOT (region IS NOT NULL AND amount <> 42)"
    },
    "tag, one in a hundred": {"tags": "t42"},
    "tag, every second": {"tags": " || ".join(f"t{kind}" for kind in range(0, KINDS, 2))},
}


@dataclass
class Seen:
    """One pass through the topic."""

    looked: int
    found: int
    seconds: float
    broker_s: float


def messages(count: int) -> Iterator[Message]:
    """Messages that both sides hold; each property runs through its values at a pace of its own."""
    for number in range(count):
        properties = {
            "amount": str(number * 37 % KINDS),
            "region": f"r{number * 53 % KINDS}",
            "price": f"{number * 71 % KINDS}.{number % 10}1",
            "customer": f"c-{number:08d}",
        }
        yield Message(TOPIC, BODY, tag=f"t{number * 19 % KINDS}", properties=properties)


async def fill(side: Side, count: int) -> None:
    """Send all of them."""
    async with Producer(side.namesrv) as producer:
        await producer.send_many(messages(count))


async def drain(side: Side, wanted: dict[str, Any]) -> Seen:
    """Pull what is wanted from all queues of the topic at one time."""
    async with PullConsumer(side.namesrv, group="filter-bench", config=ConsumerConfig()) as reader:
        queues = await reader.queues(TOPIC)
        ends = [await reader.max_offset(queue) for queue in queues]
        cpu, begin = cpu_seconds(side.pid), time.monotonic()
        found = await asyncio.gather(
            *(_pull(reader, queue, end, wanted) for queue, end in zip(queues, ends, strict=True))
        )
        seconds = time.monotonic() - begin
        return Seen(sum(ends), sum(found), seconds, cpu_seconds(side.pid) - cpu)


async def _pull(reader: PullConsumer, queue: MessageQueue, end: int, wanted: dict[str, Any]) -> int:
    offset = count = 0
    while offset < end:
        result = await reader.pull(queue, offset, PULL_COUNT, **wanted)
        offset, count = result.next_offset, count + len(result.messages)
    return count


def run(work: Any) -> Any:
    """A coroutine on an event loop as users have it."""
    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        return runner.run(work)


def measure(sides: list[Side], given: argparse.Namespace) -> dict[str, dict[str, Seen]]:
    """Every work on every side: the quickest of its passes."""
    for side in sides:
        run(fill(side, given.messages))
    results: dict[str, dict[str, Seen]] = {}
    for name, wanted in WORKS.items():
        passes = [
            (side.name, run(drain(side, wanted))) for _ in range(given.passes) for side in sides
        ]
        for side in sides:
            mine = [seen for told, seen in passes if told == side.name]
            best = min(mine, key=lambda seen: seen.seconds)
            best.broker_s = min(seen.broker_s for seen in mine)
            results.setdefault(name, {})[side.name] = best
            print(f"  {side.name:8} {name:48} {best}", flush=True)
    return results


def rows(results: dict[str, dict[str, Seen]]) -> list[Row]:
    """The results as lines of a table: throughput of SQL92, CPU time of tags."""
    table = []
    for name, seen in results.items():
        rate = {side: one.looked / one.seconds for side, one in seen.items()}
        cpu = {side: one.broker_s / one.looked * 1e6 for side, one in seen.items()}
        rate_row = Row(f"{name}: looked at", "msg/s", rate["ours"], rate.get("genuine"))
        cpu_row = Row(f"{name}: broker CPU a message", "us", cpu["ours"], cpu.get("genuine"))
        if name.startswith("SQL92"):
            rate_row.goal = ">= 1.0 x"
        else:
            cpu_row.goal = "<= 0.5 x"
        table += [rate_row, cpu_row]
    return table


def main() -> None:
    """Fill, measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-filters.json"))
    given = parser.parse_args()
    with running_sides(ours_only=given.ours_only) as sides:
        table = calibrated(lambda: rows(measure(sides, given)), repeats_max=0)
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
