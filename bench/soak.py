"""Soak: an hour of mixed load; the broker's memory, p99 and descriptors stay flat.

    python -m bench.soak --minutes 60                 exit code 1 when something grows
    python -m bench.soak --work batches --minutes 10  memory after batches at full rate

At a bounded rate: sends, batches, delays, transactions, pops, filters by tag and by SQL92, and a
consumer that is too slow. The log has small files, which retention deletes all the time. Samples
are saved beside the rows. A trial of less than half an hour judges nothing but errors. Linux only.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bench.lib.measures import percentile
from bench.lib.plot import Plot, standalone
from bench.lib.raw_client import (
    Brokers,
    Client,
    Load,
    allow_descriptors,
    descriptors,
    memory_mib,
    ours,
    requests,
)
from bench.lib.rows import Row, bound, save, show
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RoquetError,
    TransactionProducer,
    TransactionState,
)
from roquet.net.loop import run

GROWTH_MAX: Final = 2.0
"""MB an hour that the broker's own memory may grow."""
P99_MAX: Final = 1.5
"""Times by which p99 of the last third may exceed that of the first."""
DESCRIPTORS_MAX: Final = 2
"""Descriptors by which the last third may exceed the first."""
BATCH_MEMORY_MAX: Final = 200
"""MB of own memory after batches at full rate."""
JUDGED_MINUTES: Final = 30
"""A shorter run shows no slope."""
MB: Final = 1.048576
"""MB of a MiB."""

TOPIC: Final = "Soak"
WAITING: Final = "SoakWaiting"
BATCH: Final = 32
SENDER_RATE: Final = 50
"""Steps a second of one task: so many that each is over before the next."""
SLOW_S: Final = 0.2


@dataclass(frozen=True)
class Sample:
    """The broker at one moment, and the sends since the sample before."""

    minute: float
    own_mib: float
    mapped_mib: float
    p99_ms: float
    descriptors: int
    sent: int
    received: int


@dataclass
class Counts:
    """Messages and errors of the load so far."""

    sent: int = 0
    received: int = 0
    errors: int = 0
    error: str = ""
    """The first error."""
    trips_ms: list[float] = field(default_factory=list)
    """Of single sends, since the last sample."""

    def failed(self, error: Exception) -> None:
        """Note an error."""
        self.errors += 1
        self.error = self.error or f"{type(error).__name__}: {error}"


# -- the mixed load ------------------------------------------------------------------------------


def message(number: int, topic: str = TOPIC, **fields: object) -> Message:
    """A message with a tag, a key and properties to filter by."""
    return Message(
        topic,
        b"x" * 256,
        tag="ABC"[number % 3],
        keys=(f"k{number}",),
        properties={"amount": str(number * 37 % 1_000)},
        **fields,  # type: ignore[arg-type]
    )


async def steadily(rate: float, counts: Counts, step: Callable[[int], Awaitable[int]]) -> None:
    """Take a step so many times a second, by as many tasks as that needs, until cancelled.

    A step gives the number of messages it has sent. What a slow broker delays is not made up for.
    """
    numbers = itertools.count()
    tasks = max(1, round(rate / SENDER_RATE))

    async def work() -> None:
        while True:
            began = time.monotonic()
            try:
                messages = await step(next(numbers))
                counts.sent += messages
            except RoquetError as error:
                counts.failed(error)
            await asyncio.sleep(max(0.0, tasks / rate - (time.monotonic() - began)))

    await asyncio.gather(*(work() for _ in range(tasks)))


def steps(
    producer: Producer, shop: TransactionProducer, counts: Counts
) -> dict[Callable[[int], Awaitable[int]], float]:
    """Kinds of sends, and each one's share of the rate, in steps."""

    async def single(number: int) -> int:
        began = time.perf_counter()
        await producer.send(message(number))
        counts.trips_ms.append((time.perf_counter() - began) * 1000)
        return 1

    async def batch(number: int) -> int:
        await producer.send_batch([message(number * BATCH + n) for n in range(BATCH)])
        return BATCH

    async def by_level(number: int) -> int:
        await producer.send(message(number, WAITING, delay_level=1 + number % 3))
        return 1

    async def by_time(number: int) -> int:
        wait = timedelta(seconds=1 + number % 15)
        await producer.send(message(number, WAITING, delay=wait))
        return 1

    async def transaction(number: int) -> int:
        async with shop.transaction(TOPIC, b"x" * 256, tag="A") as decided:
            if number % 10 == 0:
                decided.rollback()
            elif number % 10 == 1:
                decided.unknown()
        return 1

    return {single: 0.4, batch: 0.4 / BATCH, by_level: 0.05, by_time: 0.05, transaction: 0.1}


@contextlib.asynccontextmanager
async def consumers(namesrv: str, counts: Counts) -> AsyncIterator[None]:
    """One group for each way to read, and the slow one."""
    first = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    one = ConsumerConfig(consume_from=ConsumeFrom.FIRST, concurrency=1)

    async def handle(_: ReceivedMessage) -> None:
        counts.received += 1

    async def slowly(_: ReceivedMessage) -> None:
        await asyncio.sleep(SLOW_S)

    async def pop(consumer: PopConsumer) -> None:
        async for popped in consumer.messages():
            counts.received += 1
            await popped.ack()

    def push(group: str, config: ConsumerConfig = first, **what: Any) -> PushConsumer:
        return PushConsumer(namesrv, group=group, **what, config=config)

    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        handlers = [
            (await enter(push("by_tag", topic=TOPIC, tags="A")), handle),
            (await enter(push("by_sql", topic=TOPIC, sql="amount > 500")), handle),
            (await enter(push("waiting", topic=WAITING)), handle),
            (await enter(push("slow", one, topic=TOPIC)), slowly),
        ]
        popping = await enter(PopConsumer(namesrv, group="popping", topic=TOPIC, config=first))
        tasks = [asyncio.create_task(consumer.run(handler)) for consumer, handler in handlers]
        tasks.append(asyncio.create_task(pop(popping)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def mixed(brokers: Brokers, given: argparse.Namespace, counts: Counts) -> list[Sample]:
    """The load for so long, and the samples."""

    async def check(_: object) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        Producer(brokers.namesrv) as producer,
        TransactionProducer(brokers.namesrv, group="shop", check=check) as shop,
    ):
        for topic in (TOPIC, WAITING):
            await producer.send(message(0, topic))
        await asyncio.sleep(1.5)  # the topics' routes are known by then
        async with consumers(brokers.namesrv, counts):
            works = [
                asyncio.create_task(steadily(given.rate * share, counts, step))
                for step, share in steps(producer, shop, counts).items()
            ]
            try:
                return await sampled(brokers.pids[0], given.minutes * 60, given.period, counts)
            finally:
                for work in works:
                    work.cancel()
                await asyncio.gather(*works, return_exceptions=True)


async def sampled(pid: int, seconds: float, period: float, counts: Counts) -> list[Sample]:
    """A sample each period."""
    samples: list[Sample] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        await asyncio.sleep(min(period, seconds))
        trips, counts.trips_ms = sorted(counts.trips_ms), []
        minute = round((time.monotonic() - began) / 60, 3)
        samples.append(sample(pid, minute, percentile(trips, 99) if trips else 0.0, counts))
    return samples


def sample(pid: int, minute: float, p99_ms: float, counts: Counts) -> Sample:
    """The broker now; printed."""
    own, mapped = memory_mib(pid)
    found = Sample(
        minute, round(own, 2), round(mapped, 2), round(p99_ms, 3), descriptors(pid), counts.sent,
        counts.received,
    )  # fmt: skip
    print(f"  {found}", flush=True)
    return found


# -- verdicts ------------------------------------------------------------------------------------


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """How much y grows for each x, by least squares; 0 without two different x."""
    if len(set(xs)) < 2:
        return 0.0
    return statistics.linear_regression(xs, ys).slope


def rows(samples: Sequence[Sample], counts: Counts, minutes: float) -> list[Row]:
    """Growth after the first ten minutes, or after the first sixth of a shorter run."""
    warm = [one for one in samples if one.minute >= min(10, minutes / 6)] or [*samples]
    third = max(1, len(warm) // 3)
    begin, end = warm[:third], warm[-third:]
    growth = slope([s.minute / 60 for s in warm], [s.own_mib * MB for s in warm])
    p99 = [statistics.median(s.p99_ms for s in part) for part in (begin, end)]
    opened = [statistics.median(s.descriptors for s in part) for part in (begin, end)]
    table = [
        bound("soak: own memory, growth", "MB/h", growth, GROWTH_MAX),
        bound("soak: p99, last third to first", "times", p99[1] / (p99[0] or 1), P99_MAX),
        bound("soak: descriptors, growth", "", opened[1] - opened[0], DESCRIPTORS_MAX),
    ]
    if minutes < JUDGED_MINUTES:
        for row in table:
            row.goal = ""
            row.cause = f"{minutes:g} min are too short for a verdict"
    errors = bound("soak: errors", "", float(counts.errors), 0)
    errors.cause = counts.error
    return [
        *table,
        errors,
        Row("soak: own memory at the end", "MiB", samples[-1].own_mib),
        Row("soak: mapped files at the end", "MiB", samples[-1].mapped_mib),
        Row("soak: messages sent", "msg/s", counts.sent / (samples[-1].minute * 60)),
        Row("soak: messages received", "msg/s", counts.received / (samples[-1].minute * 60)),
    ]


# -- batches at full rate ------------------------------------------------------------------------


def batches(brokers: Brokers, given: argparse.Namespace) -> tuple[list[Row], list[Sample]]:
    """Batches of 10 connections, one in flight each; memory at the end."""
    counts, samples = Counts(), list[Sample]()
    frames = itertools.cycle(requests(Load(connections=10, batch=BATCH)))
    began, cpu = time.monotonic(), brokers.cpu_seconds()
    with contextlib.closing(Client(brokers.addresses, 10)) as client:
        while (spent := time.monotonic() - began) < given.minutes * 60:
            trips = sorted(client.run(frames, min(given.period, given.minutes * 60 - spent)))
            counts.sent += len(trips) * BATCH
            minute = round((time.monotonic() - began) / 60, 3)
            p99_ms = percentile(trips, 99) * 1000 if trips else 0.0
            samples.append(sample(brokers.pids[0], minute, p99_ms, counts))
        counts.errors = client.refused
    seconds, cpu = time.monotonic() - began, brokers.cpu_seconds() - cpu
    title = f"batches for {given.minutes:g} min: "
    return [
        bound(f"{title}own memory", "MB", samples[-1].own_mib * MB, BATCH_MEMORY_MAX),
        Row(f"{title}mapped files", "MB", samples[-1].mapped_mib * MB),
        Row(f"{title}throughput", "msg/s", counts.sent / seconds),
        Row(f"{title}broker CPU a message", "us", cpu / max(counts.sent, 1) * 1e6),
        bound(f"{title}errors", "", float(counts.errors), 0),
    ], samples


def settings(minutes: float) -> str:
    """A broker.conf: small files, kept for a twelfth of the run, five minutes at most."""
    kept_s = round(min(max(minutes * 60 / 12, 20), 300))
    return (
        f"log_file_size=16MiB\nqueue_file_entries=20000\nretention={kept_s}s\n"
        "expire_ratio=0.001\nindex_slots=100000\nindex_entries=400000\n"
    )


def main() -> None:
    """Run, print, write the rows, the samples and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=("mixed", "batches"), default="mixed")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1_500, help="messages a second, mixed load")
    parser.add_argument("--period", type=float, default=10, help="seconds between two samples")
    parser.add_argument("--out", type=Path, help="build/bench-soak.json, or bench-batches.json")
    given = parser.parse_args()
    allow_descriptors()
    is_mixed = given.work == "mixed"
    out = given.out or Path("build", "bench-soak.json" if is_mixed else "bench-batches.json")
    with (
        tempfile.TemporaryDirectory(prefix="roquet-soak-") as folder,
        ours(Path(folder), 1, settings(given.minutes)) as brokers,
    ):
        if is_mixed:
            counts = Counts()
            samples = run(mixed(brokers, given, counts))
            table = rows(samples, counts, given.minutes)
        else:
            table, samples = batches(brokers, given)
    show(table)
    save(table, out)
    name = "soak" if is_mixed else "batches"
    listed = json.dumps([asdict(one) for one in samples], indent=1)
    out.with_name(f"{name}-samples.json").write_text(listed + "\n")
    lines = {
        "own": [(one.minute, one.own_mib) for one in samples],
        "of files": [(one.minute, one.mapped_mib) for one in samples],
    }
    picture = standalone(Plot("memory, MiB", "minutes", lines, is_linear=True))
    out.with_name(f"{name}.svg").write_text(picture)
    sys.exit(any(row.verdict == "NO" for row in table))


if __name__ == "__main__":
    main()
