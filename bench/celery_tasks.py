"""Celery's tasks measured: our transport and kombu's Redis transport, one side at a time.

    python -m bench.celery_tasks --tasks 5000 --rounds 3

Each side gets the same tasks of one publisher, and one worker of the solo pool that does nothing in
them. Prints tasks per second and CPU of publisher or worker, and of the server, for each task.
Redis keeps them in memory, our broker writes them to its log. Needs a redis-server and the package
redis, or --ours-only. Linux only: CPU time is read from /proc.
"""

import argparse
import contextlib
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from celery import Celery

import roquet.integrations.celery  # noqa: F401 - registers rocketmq://
from bench.lib import sides
from bench.lib.measures import cpu_seconds
from bench.lib.rows import Row, save, show
from harness.ports import HOST, free_port

ROOT: Final = Path(__file__).resolve().parents[1]

MISSING: Final = (
    "Redis is missing: apt-get install redis-server, pip install redis; or give --ours-only"
)

app = Celery("bench", broker=os.environ.get("BENCH_BROKER", "rocketmq://"))
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)

_times: list[float] = []
"""Of the worker's first task and its last one, and the CPU seconds of it between them."""


@app.task(name="nothing")
def nothing(number: int, count: int) -> None:
    """Do nothing, but note when the first task began and the last one ended."""
    if not _times:
        _times.extend([time.monotonic(), time.process_time()])
    _times.append(number)
    if len(_times) == count + 2:
        wall, cpu = time.monotonic() - _times[0], time.process_time() - _times[1]
        Path(os.environ["BENCH_RESULT"]).write_text(f"{wall} {cpu}")


@dataclass
class Figures:
    """Results of one side in one round."""

    publish_rate: float
    publish_cpu_us: float
    publish_server_us: float
    consume_rate: float
    consume_cpu_us: float
    consume_server_us: float


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[tuple[str, int]]:
    """Our broker's URL and process."""
    with sides.ours(folder) as side:
        yield f"rocketmq://{side.namesrv}", side.pid


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[tuple[str, int]]:
    """The URL and process of a Redis."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [
        "redis-server",
        "--port",
        str(port),
        "--bind",
        HOST,
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            time.sleep(1)
            yield f"redis://{HOST}:{port}/0", server.pid
        finally:
            server.terminate()


def measured(url: str, server: int, tasks: int, folder: Path) -> Figures:
    """Publish tasks by this process, then let a worker do them."""
    publisher = Celery("publisher", broker=url)
    publisher.conf.task_ignore_result = True
    publisher.send_task("nothing", (0, 0))  # connects, and declares the queue
    wall, cpu, server_s = time.monotonic(), time.process_time(), cpu_seconds(server)
    for number in range(tasks - 1):
        publisher.send_task("nothing", (number, tasks))
    publish_s, publish_cpu = time.monotonic() - wall, time.process_time() - cpu
    server_s, before = cpu_seconds(server) - server_s, cpu_seconds(server)
    publisher.amqp.producer_pool.force_close_all()
    publisher.pool.force_close_all()
    publisher.close()
    consume_s, consume_cpu = _consumed(url, folder)
    each = 1e6 / tasks
    return Figures(
        publish_rate=tasks / publish_s,
        publish_cpu_us=publish_cpu * each,
        publish_server_us=server_s * each,
        consume_rate=tasks / consume_s,
        consume_cpu_us=consume_cpu * each,
        consume_server_us=(cpu_seconds(server) - before) * each,
    )


def _consumed(url: str, folder: Path) -> tuple[float, float]:
    """Wall time and CPU seconds in which a worker did all tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / "result"
    options = ["worker", "-P", "solo", "-l", "ERROR", "--without-gossip", "--without-mingle"]
    environment = {**os.environ, "BENCH_BROKER": url, "BENCH_RESULT": str(result)}
    command = [sys.executable, "-m", "celery", "-A", "bench.celery_tasks", *options]
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        until = time.monotonic() + 100
        while not (result.exists() and result.read_text()) and time.monotonic() < until:
            if worker.poll() is not None:
                raise SystemExit(f"the worker has ended: {(folder / 'log').read_text()[-2_000:]}")
            time.sleep(0.1)
        worker.kill()
        worker.wait()
    wall, cpu = result.read_text().split()
    return float(wall), float(cpu)


WORKS: Final = {
    "publish_rate": ("publish", "tasks/s"),
    "publish_cpu_us": ("publish, CPU of the publisher", "us/task"),
    "publish_server_us": ("publish, CPU of the server", "us/task"),
    "consume_rate": ("consume", "tasks/s"),
    "consume_cpu_us": ("consume, CPU of the worker", "us/task"),
    "consume_server_us": ("consume, CPU of the server", "us/task"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both sides in turn, and print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=5_000, help="of each round")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians count")
    parser.add_argument("--ours-only", action="store_true", help="leave Redis out")
    parser.add_argument("--out", type=Path, default=Path("build/bench-celery-tasks.json"))
    given = parser.parse_args(arguments)
    has_redis = shutil.which("redis-server") and importlib.util.find_spec("redis")
    if not given.ours_only and not has_redis:
        parser.error(MISSING)
    starts = [ours] if given.ours_only else [ours, redis]
    rounds: dict[str, list[Figures]] = {start.__name__: [] for start in starts}
    for number in range(given.rounds):
        for start in starts:
            with tempfile.TemporaryDirectory(prefix="roquet-bench-") as name:
                folder = Path(name)
                with start(folder / "server") as (url, server):
                    found = measured(url, server, given.tasks, folder / str(number))
                rounds[start.__name__].append(found)
    rows = [
        Row(work, unit, _median(rounds["ours"], field), _median(rounds.get("redis", []), field))
        for field, (work, unit) in WORKS.items()
    ]
    show(rows, "redis")
    save(rows, given.out, "redis")


def _median(rounds: Sequence[Figures], field: str) -> float | None:
    values = [float(getattr(figures, field)) for figures in rounds]
    return statistics.median(values) if values else None


if __name__ == "__main__":
    main()
