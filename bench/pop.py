"""Pop measured: four of our consumers drain a topic, of our broker and of Apache RocketMQ.

    python -m bench.pop --messages 1000000

The consumers are of one group; they take and acknowledge messages that wait. They are processes,
one each or all in one (`--processes 1`). One side runs at a time. Prints a table of messages per
second and of the CPU time that a message costs broker and clients, and writes one JSON of results.
The goal is one of four consumers. Linux only: CPU time is read from /proc.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.lib.measures import cpu_seconds
from bench.lib.rows import Row, save, show
from bench.lib.sides import Side, ours, theirs
from harness import genuine
from roquet.client import ConsumeFrom, ConsumerConfig, Message, Producer
from roquet.client.pop import PopConsumer
from roquet.net import loop

TOPIC = "PopBench"
BODY = b"x" * 128
GOAL = 20_000
IDLE_S = 2
LOOK = 64


def fill(namesrv: str, count: int) -> None:
    """Messages that wait to be popped."""

    async def send() -> None:
        async with Producer(namesrv) as producer:
            await producer.send_many(Message(TOPIC, BODY) for _ in range(count))

    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        runner.run(send())


def drain(namesrv: str, consumers: int) -> tuple[float, float, int, float]:
    """Take and acknowledge until nothing comes; gives begin, end, messages and CPU seconds."""
    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        return runner.run(_drain(namesrv, consumers))


async def _drain(namesrv: str, consumers: int) -> tuple[float, float, int, float]:
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    members = [
        PopConsumer(namesrv, group="pop-bench", topic=TOPIC, config=config)
        for _ in range(consumers)
    ]
    for member in members:
        await member.start()
    begin, cpu = time.monotonic(), time.process_time()
    results = await asyncio.gather(*map(_take, members))
    seconds = time.process_time() - cpu
    for member in members:
        await member.close()
    return begin, max(last for last, _ in results), sum(done for _, done in results), seconds


async def _take(member: PopConsumer) -> tuple[float, int]:
    """Messages until none has come for a while; gives when the last one came, and how many."""
    done, last = 0, time.monotonic()

    async def watch() -> None:
        before = -1
        while done != before or not done:
            before = done
            await asyncio.sleep(IDLE_S)
        member.stop()

    watching = asyncio.create_task(watch())
    async for message in member.messages():
        await message.ack()
        done += 1
        if not done % LOOK:
            last = time.monotonic()
    await watching
    return last, done


@dataclass
class Seen:
    """One drain of the topic."""

    messages: int
    seconds: float
    broker_s: float
    client_s: float


def measure(side: Side, given: argparse.Namespace) -> Seen:
    """Fill the topic of one side, and drain it."""
    fill(side.namesrv, given.messages)
    before = cpu_seconds(side.pid)
    each = given.consumers // given.processes
    with ProcessPoolExecutor(given.processes) as pool:
        jobs = [pool.submit(drain, side.namesrv, each) for _ in range(given.processes)]
        results = [job.result() for job in jobs]
    seen = Seen(
        messages=sum(r[2] for r in results),
        seconds=max(r[1] for r in results) - min(r[0] for r in results),
        broker_s=cpu_seconds(side.pid) - before,
        client_s=sum(r[3] for r in results),
    )
    print(f"  {side.name:8} {seen}", flush=True)
    if seen.messages < given.messages:
        sys.exit(f"{side.name}: {given.messages - seen.messages} messages never came")
    return seen


def rows(seen: dict[str, Seen]) -> list[Row]:
    """The results as lines of a table."""

    def row(work: str, unit: str, figure: Callable[[Seen], float], goal: str = "") -> Row:
        values = {side: figure(one) for side, one in seen.items()}
        return Row(f"pop drain: {work}", unit, values["ours"], values.get("genuine"), goal)

    rate = row("throughput", "msg/s", lambda one: one.messages / one.seconds, f">= {GOAL:,}")
    return [
        rate,
        row("broker CPU a message", "us", lambda one: one.broker_s / one.messages * 1e6),
        row("client CPU a message", "us", lambda one: one.client_s / one.messages * 1e6),
    ]


def main() -> None:
    """Fill and drain each side, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--ours-only", action="store_true", help="leave the genuine broker out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-pop.json"))
    given = parser.parse_args()
    starts = [ours] if given.ours_only or genuine.missing() else [theirs, ours]
    seen: dict[str, Seen] = {}
    for start in starts:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, start(Path(folder)) as side:
            seen[side.name] = measure(side, given)
    print(f"{os.cpu_count()} cores, {given.consumers} consumers, {given.processes} processes")
    table = rows(seen)
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
