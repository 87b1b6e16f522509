"""Workers of taskiq as processes, which are killed."""

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from roquet.integrations.taskiq import RocketMQBroker
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.slow, pytest.mark.kill]

ROOT = Path(__file__).parents[2]
TASKS = 300
KILLS = 6

WORKER = dedent(
    """
    import asyncio, os, sys
    from taskiq import TaskiqEvents
    from taskiq.cli.worker.args import WorkerArgs
    from taskiq.cli.worker.run import start_listen
    from roquet.client import ConsumeFrom, ConsumerConfig
    from roquet.integrations.taskiq import RocketMQBroker

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, invisible_ms=3_000)
    broker = RocketMQBroker(consumer=config)
    done = os.open("done", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    @broker.on_event(TaskiqEvents.WORKER_STARTUP)
    async def note(_state: object) -> None:
        open(f"worker-{os.getpid()}", "x").close()

    @broker.task("bill")
    async def bill(number: int) -> None:
        await asyncio.sleep(0.1)
        os.write(done, b"%d\\n" % number)

    if __name__ == "__main__":
        start_listen(WorkerArgs(broker=broker, modules=[], max_async_tasks=5))
    """
)


def start(folder: Path, namesrv: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "worker.py"],
        cwd=folder,
        env={**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.DEVNULL,
    )


async def send(namesrv: str) -> None:
    broker = RocketMQBroker(namesrv)

    @broker.task("bill")
    async def bill(number: int) -> None: ...

    await broker.startup()
    for number in range(TASKS):
        labels: dict[str, float] = {"delay": number % 5 / 2} if number % 3 == 0 else {}
        await bill.kicker().with_labels(**labels).kiq(number)
    await broker.shutdown()


def done(folder: Path) -> list[int]:
    path = folder / "done"
    return [int(line) for line in path.read_text("ascii").splitlines()] if path.exists() else []


def test_killed_workers_lose_no_task(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER, "utf-8")
    rng = random.Random(7)
    with BlockingCluster() as running:
        workers = [start(tmp_path, running.namesrv_addr) for _ in range(3)]
        asyncio.run(send(running.namesrv_addr))
        try:
            for _ in range(KILLS):
                time.sleep(1)
                victim = rng.randrange(len(workers))
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = start(tmp_path, running.namesrv_addr)
            for _ in range(300):  # a minute
                if {*done(tmp_path)} == {*range(TASKS)}:
                    break
                time.sleep(0.2)
        finally:
            for worker in workers:
                while not (tmp_path / f"worker-{worker.pid}").exists() and worker.poll() is None:
                    time.sleep(0.05)  # before its start SIGTERM would kill it
                worker.terminate()
            assert [worker.wait(30) for worker in workers] == [0, 0, 0]
    runs = done(tmp_path)
    assert {*runs} == {*range(TASKS)}
    assert len(runs) < TASKS + KILLS * 10, "only what the killed ones held came again"
