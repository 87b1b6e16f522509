"""Key index measured: messages looked up by key, on our broker and on Apache RocketMQ.

    python -m bench.keys --messages 1000000

Both sides hold the same messages, each key is that of ten of them, far apart. The same client asks
for random keys, one after the other and 16 at a time, some times on either side in turn; the best
counts, so that a cold JVM does not. Every answer is checked. Prints a table of figures and ratios
and writes one JSON of results. Linux only: CPU time is read from /proc.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lib.measures import cpu_seconds
from bench.lib.rows import Row, calibrated, save, show
from bench.lib.sides import Side, running_sides
from roquet.admin import messages as lookup
from roquet.admin.client import AdminClient
from roquet.client import Message, Producer
from roquet.model.errors import UsageError
from roquet.net import loop

TOPIC = "KeyBench"
BODY = b"x" * 128
PER_KEY = 10
"""Messages with one key."""

CONCURRENT = (1, 16)
INDEX_WAIT_S = 60
"""For a broker to index what it has stored; both do so in the background."""


@dataclass
class Seen:
    """One pass of queries."""

    queries: int
    seconds: float
    broker_s: float


def filling(count: int) -> Iterator[Message]:
    """Messages with the keys 0, 1, 2 … in turn, all of them `PER_KEY` times."""
    for number in range(count):
        yield Message(TOPIC, BODY, keys=(key_of(number, count),))


def key_of(number: int, count: int) -> str:
    """The key of a message."""
    return f"order-{number % max(count // PER_KEY, 1)}"


def messages_of(key: str, count: int) -> int:
    """How many messages have a key."""
    first = int(key.removeprefix("order-"))
    return len(range(first, count, max(count // PER_KEY, 1)))


async def fill(side: Side, count: int) -> float:
    """Send all messages and wait until the last is indexed; returns the seconds of that wait."""
    async with Producer(side.namesrv) as producer:
        await producer.send_many(filling(count))
    begin = time.monotonic()
    async with AdminClient(side.namesrv) as admin:
        for key in {key_of(number, count) for number in range(max(count - 100, 0), count)}:
            while await found_by(admin, key) < messages_of(key, count):
                if time.monotonic() - begin > INDEX_WAIT_S:
                    raise RuntimeError(f"{side.name}: {key} is not indexed")
                await asyncio.sleep(0.05)
    return time.monotonic() - begin


async def found_by(admin: AdminClient, key: str) -> int:
    """Messages found by a key; 0 while the name server has not heard of the topic."""
    try:
        return len(await lookup.by_key(admin, TOPIC, key))
    except UsageError:
        return 0


async def ask(side: Side, count: int, queries: int, concurrent: int) -> Seen:
    """Look up random keys, so many at a time."""
    rng = random.Random(count)
    keys = [key_of(rng.randrange(count), count) for _ in range(queries)]
    waiting = iter(keys)
    async with AdminClient(side.namesrv) as admin:
        await lookup.by_key(admin, TOPIC, keys[0])

        async def worker() -> None:
            for key in waiting:
                found = await lookup.by_key(admin, TOPIC, key)
                if len(found) != messages_of(key, count):
                    raise RuntimeError(f"{side.name}: {len(found)} messages of {key}")

        cpu, begin = cpu_seconds(side.pid), time.monotonic()
        await asyncio.gather(*(worker() for _ in range(concurrent)))
        return Seen(queries, time.monotonic() - begin, cpu_seconds(side.pid) - cpu)


def run(work: Any) -> Any:
    """A coroutine on an event loop as users have it."""
    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        return runner.run(work)


def measure(sides: list[Side], given: argparse.Namespace) -> list[Row]:
    """Every work on every side: the quickest of its passes."""
    waits = {side.name: run(fill(side, given.messages)) for side in sides}
    table = [Row("after the last send: indexed", "s", waits["ours"], waits.get("genuine"))]
    for concurrent in CONCURRENT:
        best: dict[str, Seen] = {}
        for side in [side for _ in range(given.passes) for side in sides]:
            seen = run(ask(side, given.messages, given.queries, concurrent))
            print(f"  {side.name:8} {concurrent:2} at a time  {seen}", flush=True)
            known = best.setdefault(side.name, seen)
            known.seconds = min(known.seconds, seen.seconds)
            known.broker_s = min(known.broker_s, seen.broker_s)
        rate = {name: seen.queries / seen.seconds for name, seen in best.items()}
        cpu = {name: seen.broker_s / seen.queries * 1e6 for name, seen in best.items()}
        work = f"by key, {concurrent} at a time"
        table += [
            Row(
                f"{work}: throughput", "query/s", rate["ours"], rate.get("genuine"), ">= 1.0 x",
            ),
            Row(f"{work}: broker CPU a query", "us", cpu["ours"], cpu.get("genuine")),
        ]  # fmt: skip
    return table


def main() -> None:
    """Fill, measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=2_000, help="of each pass")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-keys.json"))
    given = parser.parse_args()
    with running_sides(ours_only=given.ours_only) as sides:
        table = calibrated(lambda: measure(sides, given), repeats_max=0)
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
