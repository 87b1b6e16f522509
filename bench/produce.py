"""Our producer measured: awaited sends, the same gathered into batches, and `send_many`.

`--only alone,batches,oneway` measures single sends one after the other, batches of a hundred that
are sent so, and sends without an answer.

A broker runs in a process of its own; the producer is this one. Prints one JSON and saves rows:
messages per second, and the client's CPU in microseconds a message, which other work on the machine
disturbs less.
"""

import argparse
import asyncio
import json
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from bench.lib.rows import Row, reach, save
from harness.servers import DevServer
from roquet.client import Message, Producer, ProducerConfig
from roquet.net.loop import run

BODY: Final = b"x" * 128
TOPIC: Final = "Produced"
"""Made by its first message, with the four queues that a new topic has."""

GOALS: Final = {"awaited": 15_000, "gathered": 50_000, "many": 150_000}
"""Messages a second in one client process."""

BATCH_COUNT: Final = 100
"""Messages in a batch of `batches`."""

Work = Callable[[Producer, int], Awaitable[None]]


@contextmanager
def broker(data: str | None) -> Iterator[str]:
    """The address of the name server of `roquet dev` in a process of its own."""
    options = ("--data", data) if data else ("--memory",)
    with (
        tempfile.TemporaryDirectory(prefix="roquet-produce-") as folder,
        DevServer(Path(folder), *options) as server,
    ):
        yield server.address


@asynccontextmanager
async def producer(namesrv: str, linger_ms: int | None = None) -> AsyncIterator[Producer]:
    """A producer that has found its topic."""
    async with Producer(namesrv, config=ProducerConfig(linger_ms=linger_ms)) as made:
        await made.send(TOPIC, BODY)
        await asyncio.sleep(1.5)  # the topic's own route is known by then
        yield made


def awaited(in_flight: int) -> Work:
    """So many tasks, each of which awaits one send after the other."""

    async def work(sender: Producer, count: int) -> None:
        async def one(share: int) -> None:
            for _ in range(share):
                await sender.send(TOPIC, BODY)

        await asyncio.gather(*(one(count // in_flight) for _ in range(in_flight)))

    return work


async def many(sender: Producer, count: int) -> None:
    """One `send_many`; the receipts are looked at as they come."""
    async for _ in sender.send_many(Message(TOPIC, BODY) for _ in range(count)):
        pass


async def batches(sender: Producer, count: int) -> None:
    """Batches of one size, each awaited before the next one."""
    for _ in range(count // BATCH_COUNT):
        await sender.send_batch([Message(TOPIC, BODY)] * BATCH_COUNT)


async def oneway(sender: Producer, count: int) -> None:
    """Sends without an answer; the last one is answered, so that all have left."""
    for _ in range(count):
        await sender.send_oneway(TOPIC, BODY)
    await sender.send(TOPIC, BODY)


async def measure(sender: Producer, work: Work, count: int, rounds: int) -> dict[str, float]:
    """The best round by rate, and the least CPU a message."""
    await work(sender, max(count // 10, 1_000))
    rates, costs = [], []
    for _ in range(rounds):
        began, spent = time.perf_counter(), time.process_time()
        await work(sender, count)
        rates.append(count / (time.perf_counter() - began))
        costs.append((time.process_time() - spent) / count * 1e6)
    return {"per_second": round(max(rates)), "cpu_us": round(min(costs), 2)}


async def all_works(
    namesrv: str, only: set[str], scale: float, rounds: int
) -> dict[str, dict[str, float]]:
    """The works asked for."""
    found: dict[str, dict[str, float]] = {}
    works: dict[str, tuple[Work, int, int | None]] = {
        "awaited": (awaited(64), 64_000, None),
        "gathered": (awaited(1_000), 200_000, 1),
        "many": (many, 400_000, None),
        "alone": (awaited(1), 5_000, None),
        "batches": (batches, 100_000, None),
        "oneway": (oneway, 50_000, None),
    }
    for name in only & works.keys():
        work, count, linger_ms = works[name]
        async with producer(namesrv, linger_ms) as sender:
            seen = await measure(sender, work, int(count * scale), rounds)
        found[name] = {**seen, "goal": GOALS[name]} if name in GOALS else seen
    return found


def rows(found: dict[str, dict[str, float]]) -> list[Row]:
    """The works as lines of the table."""
    table: list[Row] = []
    for name, seen in found.items():
        title, goal = f"Producer, {name}: ", GOALS.get(name)
        rate = (f"{title}throughput", "msg/s", seen["per_second"])
        table += [
            Row(*rate) if goal is None else reach(*rate, goal),
            Row(f"{title}client CPU a message", "us", seen["cpu_us"]),
        ]
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(GOALS), help="some of the works")
    parser.add_argument("--data", help="a directory for the broker's files; memory without it")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/bench-produce.json"))
    args = parser.parse_args()
    with broker(args.data) as namesrv:
        found = run(all_works(namesrv, set(args.only.split(",")), args.scale, args.rounds))
    print(json.dumps({"python": platform.python_version(), **found}, indent=2))
    save(rows(found), args.out)


if __name__ == "__main__":
    main()
