"""Celery itself: workers as processes, killed and restarted, revoked tasks, remote control."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from roquet.integrations.celery.control import RecallingControl
from roquet.net.clock import SYSTEM_CLOCK
from roquet.testing.cluster import BlockingCluster

ROOT = Path(__file__).resolve().parents[3]
TASK = "tests.integrations.celery.fleet_tasks"
TASKS = int(os.environ.get("FLEET_TASKS", "300"))
KILLS = int(os.environ.get("FLEET_KILLS", "3"))


@contextmanager
def worker(broker: str, folder: Path, name: str, pool: str = "prefork") -> Iterator[Any]:
    command = [sys.executable, "-m", "celery", "-A", TASK]
    options = ["worker", "-P", pool, "-c", "2", "-n", f"{name}@here", "-l", "WARNING"]
    environment = {
        **os.environ, "FLEET_BROKER": broker, "FLEET_DONE": str(folder / "done"),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }  # fmt: skip
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *options], env=environment, cwd=ROOT, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a worker with its children, as a machine that loses its power."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def done(folder: Path) -> dict[int, list[tuple[float, float]]]:
    """Times of each task's runs, and when it was due."""
    runs: dict[int, list[tuple[float, float]]] = {}
    path = folder / "done"
    for line in path.read_text().splitlines() if path.exists() else ():
        number, ran, due = line.split()
        runs.setdefault(int(number), []).append((float(ran), float(due)))
    return runs


def publisher(broker: str) -> Celery:
    """A program that sends the fleet's tasks."""
    app = Celery("publisher", broker=broker, backend="rpc://", control=RecallingControl)
    app.conf.update(task_queue_max_priority=9, broker_connection_retry_on_startup=True)
    return app


def test_a_revoked_task_is_recalled_from_the_broker(url: str) -> None:
    app = publisher(url)
    with app.connection_for_read() as connection:
        queue = app.amqp.queues["celery"](connection.default_channel)
        queue.declare()
        app.control.revoke("unknown")  # no task has waited yet
        revoked, kept = (app.send_task("bill", countdown=4) for _ in range(2))
        app.control.revoke(revoked.id)
        time.sleep(4.5)
        found = [message for _ in range(10) if (message := queue.get()) is not None]
        assert [message.headers["id"] for message in found] == [kept.id]
        for message in found:
            message.ack()
    app.close()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_workers_answer_run_tasks_and_stop_in_good_order(
    url: str, tmp_path: Path, pool: str
) -> None:
    app = publisher(url)

    def add(one: int, other: int) -> Any:
        return app.send_task(f"{TASK}.add", (one, other)).get(timeout=30)

    with worker(url, tmp_path, "one", pool) as process:
        assert add(1, 2) == 3
        assert app.control.inspect(timeout=5).ping() == {"one@here": {"ok": "pong"}}
        assert sorted(add(n, n) for n in range(20)) == [*range(0, 40, 2)]
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fleet_that_is_killed_does_each_task_and_none_early(tmp_path: Path) -> None:
    """Three workers, tasks with ETAs, retries and priorities, and a worker killed again and again.

    FLEET_TASKS and FLEET_KILLS make it larger.
    """
    rng = random.Random(7)
    with BlockingCluster(store=tmp_path / "store") as cluster, ExitStack() as stack:
        broker = f"rocketmq://{cluster.namesrv_addr}"
        app = publisher(broker)
        fleet = [worker(broker, tmp_path, f"w{n}") for n in range(3)]
        processes = [stack.enter_context(each) for each in fleet]
        for number in range(TASKS):
            wait = rng.choice([0, 0, 0, rng.uniform(1, 15)])
            due = SYSTEM_CLOCK.now_ms() / 1000 + wait
            fails = rng.choice([0, 0, 0, 0, 1, 2])
            options: dict[str, Any] = {"countdown": wait} if wait else {}
            priority = rng.choice([None, 0, 5, 9])
            app.send_task(
                f"{TASK}.note",
                (number, due, fails),
                priority=priority,
                ignore_result=True,
                **options,
            )
            if number % (TASKS // KILLS) == TASKS // KILLS // 2:
                victim = rng.randrange(3)
                kill(processes[victim])
                again = worker(broker, tmp_path, f"w{victim}")
                processes[victim] = stack.enter_context(again)
        until = SYSTEM_CLOCK.monotonic_ms() / 1000 + 60 + TASKS / 10
        while len(done(tmp_path)) < TASKS and SYSTEM_CLOCK.monotonic_ms() / 1000 < until:
            time.sleep(0.5)
        runs = done(tmp_path)
        app.close()
    assert set(range(TASKS)) - runs.keys() == set()
    early = {n: times for n, times in runs.items() if any(ran < due for ran, due in times)}
    assert early == {}
    sys.stderr.write(f"{TASKS} tasks, {sum(map(len, runs.values()))} runs, {KILLS} kills\n")
