"""Tasks of taskiq measured: sent and handled by our broker and by Redis streams, a second.

    python -m bench.taskiq_tasks --tasks 20000

One process sends tasks that do nothing, 64 at a time; then one worker handles them all, with an
acknowledgement each. One side runs at a time. Needs `pip install taskiq-redis` and a redis-server;
without them, or with --ours-only, it measures ours alone. Redis keeps its tasks in memory here, our
broker in files. Prints a table of tasks per second and of the CPU time that a task costs sender and
worker, and writes one JSON of results.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from taskiq import AsyncBroker
from taskiq.receiver import Receiver

from bench.lib.rows import Row, save, show
from harness import servers
from harness.ports import free_port
from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.integrations.taskiq import RocketMQBroker
from roquet.net import loop

IN_FLIGHT = 64
RUNNING_MAX = 100
"""Tasks of a worker at a time: taskiq's default."""

START_S = 0.2


class Work(NamedTuple):
    """Work that a process has done: tasks, seconds by the clock, seconds of CPU time."""

    tasks: int
    seconds: float
    cpu_s: float


def broker_of(side: str, address: str) -> AsyncBroker:
    """The broker of a side."""
    if side == "ours":
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
        return RocketMQBroker(address, topic="bench", consumer=config)
    made = importlib.import_module("taskiq_redis").RedisStreamBroker(f"redis://{address}")
    assert isinstance(made, AsyncBroker)
    return made


async def send(side: str, address: str, tasks: int) -> Work:
    """Send tasks, so many at one time."""
    broker = broker_of(side, address)
    task = broker.task("nothing")(nothing)
    await broker.startup()
    left = iter(range(tasks))

    async def kick() -> None:
        for number in left:
            await task.kiq(number)

    began, cpu_s = time.monotonic(), time.process_time()
    await asyncio.gather(*[kick() for _ in range(IN_FLIGHT)])
    work = Work(tasks, time.monotonic() - began, time.process_time() - cpu_s)
    await broker.shutdown()
    return work


async def nothing(_number: int) -> None:
    """The task."""


async def handle(side: str, address: str, tasks: int) -> Work:
    """Handle that many tasks, as a worker of taskiq does."""
    broker, finish = broker_of(side, address), asyncio.Event()
    broker.is_worker_process = True
    times: list[tuple[float, float]] = []

    async def counted(_number: int) -> None:
        times.append((time.monotonic(), time.process_time()))
        if len(times) == tasks:
            finish.set()

    broker.task("nothing")(counted)
    await Receiver(broker, max_async_tasks=RUNNING_MAX).listen(finish)
    await broker.shutdown()
    (began, cpu_s), (ended, cpu_end_s) = times[0], times[-1]
    return Work(len(times), ended - began, cpu_end_s - cpu_s)


def in_a_process(does: str, side: str, address: str, tasks: int) -> Work:
    """Send or handle tasks in a process of its own."""
    command = [sys.executable, "-m", "bench.taskiq_tasks", "--does", does, side, address]
    command += ["--tasks", str(tasks)]
    return Work(*json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL)))


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[str]:
    """Our name server and broker as processes."""
    with (
        servers.name_server(folder) as names,
        servers.broker(folder, "ours-a", {"namesrvAddr": names.address}),
    ):
        yield names.address


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Redis as a process, without files."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        time.sleep(START_S)
        yield f"127.0.0.1:{port}"
        server.terminate()


def measure(side: str, tasks: int) -> dict[str, Work]:
    """Send tasks, and handle them."""
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        start = ours if side == "ours" else redis
        with start(Path(folder)) as address:
            return {does: in_a_process(does, side, address, tasks) for does in ("send", "handle")}


def rows_of(rounds: dict[str, list[dict[str, Work]]]) -> Iterator[Row]:
    """Medians of all rounds."""
    for does in ("send", "handle"):
        works = {side: [one[does] for one in all_] for side, all_ in rounds.items()}
        rates = {
            side: statistics.median(work.tasks / work.seconds for work in all_)
            for side, all_ in works.items()
        }
        yield Row(f"{does} tasks", "1/s", rates["ours"], rates.get("redis"))
        costs = {
            side: statistics.median(work.cpu_s / work.tasks * 1e6 for work in all_)
            for side, all_ in works.items()
        }
        yield Row(f"{does} tasks: CPU of the client", "µs", costs["ours"], costs.get("redis"))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians count")
    parser.add_argument("--ours-only", action="store_true", help="leave Redis out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-taskiq-tasks.json"))
    parser.add_argument("--does", choices=("send", "handle"), help=argparse.SUPPRESS)
    parser.add_argument("place", nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, or do the work of one process."""
    given = parsed()
    if given.does:
        work = {"send": send, "handle": handle}[given.does]
        side, address = given.place
        with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
            print(json.dumps(runner.run(work(side, address, given.tasks))))
        return
    has_redis = find_spec("taskiq_redis") is not None and shutil.which("redis-server") is not None
    sides = ["ours"] if given.ours_only or not has_redis else ["ours", "redis"]
    rounds: dict[str, list[dict[str, Work]]] = {side: [] for side in sides}
    for _ in range(given.rounds):
        for side in sides:
            rounds[side].append(measure(side, given.tasks))
    rows = list(rows_of(rounds))
    show(rows, "redis")
    save(rows, given.out, "redis")


if __name__ == "__main__":
    main()
