"""FastStream over our broker, and over Redis streams: messages a second, CPU of a message.

    python -m bench.faststream_messages --messages 20000 --redis redis-server

Both brokers run in processes of their own; the application is this one, for both. A round publishes
all messages, each awaited, from many tasks, then handles them all with as many handlers, each
message acknowledged after its handler. Redis streams are read by a consumer group, which has such
acknowledgements, too; Redis writes no file. Without `--redis` (which needs the package redis) ours
alone is measured. Printed and saved are medians of the rounds.
"""

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.lib.measures import cpu_seconds
from bench.lib.raw_client import ours
from bench.lib.rows import Row, save, show
from harness.ports import free_port
from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.integrations.faststream import RocketBroker

BODY: Final = "x" * 128
READ_AT_ONCE: Final = 256
"""Messages of one read from Redis; our consumer asks for as many."""


Handler = Callable[[str], Awaitable[None]]


@dataclass
class Figures:
    """One round of one side."""

    published: float
    """Messages a second."""
    handled: float
    app_us: float
    """CPU of the application for one message, published and handled."""
    server_us: float


@dataclass
class Side:
    """A server, and the application's broker for a round with new topics."""

    pids: list[int]
    new_broker: Callable[[], Any]
    subscribe: Callable[[Any, str, int], Callable[[Handler], object]]
    """The decorator of a broker's handlers for a topic, so many at the same time."""
    target: str
    """The publish's keyword for the topic."""


async def measure(side: Side, topic: str, messages: int, tasks: int) -> Figures:
    """One round."""
    broker, handled, done = side.new_broker(), 0, asyncio.Event()

    async def handle(body: str) -> None:
        nonlocal handled
        handled += len(body) // len(BODY)
        if handled == messages:
            done.set()

    side.subscribe(broker, topic, tasks)(handle)

    left = iter(range(messages))

    async def send() -> None:
        for _ in left:
            await broker.publish(BODY, **{side.target: topic})

    async with broker:
        server_s, app_s = sum(map(cpu_seconds, side.pids)), time.process_time()
        began = time.perf_counter()
        await asyncio.gather(*[send() for _ in range(tasks)])
        sent = time.perf_counter()
        await broker.start()
        await done.wait()
        ended = time.perf_counter()
        app_s, server_s = time.process_time() - app_s, sum(map(cpu_seconds, side.pids)) - server_s
    return Figures(
        messages / (sent - began),
        messages / (ended - sent),
        app_s * 1e6 / messages,
        server_s * 1e6 / messages,
    )


@contextmanager
def our_side() -> Iterator[Side]:
    """`roquet serve` and RocketBroker."""
    settings = ConsumerConfig(consume_from=ConsumeFrom.FIRST, pull_count=READ_AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as data, ours(Path(data)) as server:
        yield Side(
            server.pids,
            lambda: RocketBroker(server.namesrv, consumer=settings, logger=None),
            lambda broker, topic, workers: broker.subscriber(
                topic, group=f"bench-{topic}", max_workers=workers
            ),
            "topic",
        )


@contextmanager
def redis_side(program: str) -> Iterator[Side]:
    """A Redis server without files, and FastStream's RedisBroker."""
    faststream = import_module("faststream.redis")  # without types where redis is missing
    redis = import_module("redis")
    port = free_port()

    def subscribe(broker: Any, topic: str, workers: int) -> Callable[[Handler], object]:
        # A group that FastStream makes begins with messages that are published later.
        redis.Redis(port=port).xgroup_create(topic, "bench", "0", mkstream=True)
        stream = faststream.StreamSub(
            topic, group="bench", consumer="one", max_records=READ_AT_ONCE, polling_interval=10
        )
        made: Callable[[Handler], object] = broker.subscriber(stream=stream, max_workers=workers)
        return made

    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            time.sleep(1)
            url = f"redis://127.0.0.1:{port}"
            yield Side(
                [server.pid], lambda: faststream.RedisBroker(url, logger=None), subscribe, "stream"
            )
        finally:
            server.terminate()


def rows(rounds: dict[str, list[Figures]]) -> list[Row]:
    """The table of medians, ours beside Redis's."""
    titles = {
        "published": ("published, each awaited", "msg/s"),
        "handled": ("handled and acknowledged", "msg/s"),
        "app_us": ("CPU of the application a message", "us"),
        "server_us": ("CPU of the server a message", "us"),
    }

    def middle(side: str, name: str) -> float | None:
        figures = [getattr(one, name) for one in rounds.get(side, [])]
        return statistics.median(figures) if figures else None

    return [
        Row(work, unit, middle("ours", name), middle("redis", name))
        for name, (work, unit) in titles.items()
    ]


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=20_000, help="of each round")
    parser.add_argument("--tasks", type=int, default=64, help="that publish, and that handle")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians count")
    parser.add_argument("--redis", help="the program redis-server; left out without it")
    parser.add_argument("--out", type=Path, default=Path("build/bench-faststream.json"))
    given = parser.parse_args()
    with ExitStack() as stack:
        sides = {"ours": stack.enter_context(our_side())}
        if given.redis:
            sides["redis"] = stack.enter_context(redis_side(given.redis))
        rounds: dict[str, list[Figures]] = {name: [] for name in sides}
        for number in range(given.rounds):
            for name, side in sides.items():
                work = measure(side, f"Bench{number}", given.messages, given.tasks)
                rounds[name].append(asyncio.run(work))
    table = rows(rounds)
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
