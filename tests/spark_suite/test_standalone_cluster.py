"""Archives by a standalone cluster whose workers share nothing but an S3 server.

Master and workers are processes of this machine, each with its own directories. Executors and a
worker are killed while their tasks wait for a broker: Spark alone runs the tasks again. A worker
that is decommissioned ends its tasks, unless it is killed before.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Log
from tests.spark_suite.conftest import PersistentTopic, S3Server
from tests.spark_suite.spark_processes import StandaloneCluster, standalone_cluster, until

from roquet.broker.handlers import HANDLERS
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.testing.cluster import BlockingCluster
from roquet.wire.call import Call
from roquet.wire.calls.pull import Pull

pytestmark = [pytest.mark.spark_suite, pytest.mark.xdist_group("spark")]

TABLE = "s3://lake/orders"

COUNT = 15_000
"""Messages to each of four queues: enough for six tasks."""

SAMPLES_MAX = 1_000
"""Messages of the pulls by which a driver learns sizes; tasks ask for more."""


class PullGate:
    """Holds the pulls of tasks at the broker while it is closed."""

    def __init__(self) -> None:
        self.is_open = True
        self.waiting = 0

    def handler(self) -> Any:
        @wraps(PullHandler.pull)
        async def gated(*arguments: Any) -> Any:
            call: Pull = arguments[-2]
            if call.max_msg_nums > SAMPLES_MAX:
                await self._wait()
            reply: Any = PullHandler.pull(*arguments)
            return await reply if isawaitable(reply) else reply

        return gated

    def _wait(self) -> Awaitable[None]:
        async def waits() -> None:
            self.waiting += 1
            try:
                while not self.is_open:  # noqa: ASYNC110 - a test's thread opens it
                    await asyncio.sleep(0.02)
            finally:
                self.waiting -= 1

        return waits()


@pytest.fixture
def gate() -> PullGate:
    return PullGate()


@pytest.fixture
def gated_orders(
    tmp_path: Path, gate: PullGate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PersistentTopic]:
    handlers: dict[type[Call[Any]], Any] = {**HANDLERS, Pull: gate.handler()}
    monkeypatch.setattr("roquet.broker.app.HANDLERS", handlers)
    with BlockingCluster(store=tmp_path / "brokers") as running:
        yield PersistentTopic(running)


@pytest.fixture(scope="module")
def cluster(
    s3_of_module: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandaloneCluster]:
    root = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(root, s3_of_module.environ) as running:
        yield running


@contextmanager
def archiving(
    cluster: StandaloneCluster, topic: PersistentTopic, *more: str
) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable, "-m", "roquet", "spark", "archive", "orders", TABLE, "--kind", "delta",
        "--master", cluster.url, "--namesrv", topic.namesrv, "--json", *more,
    ]  # fmt: skip
    (cluster.root / "driver").mkdir(exist_ok=True)
    with (
        (cluster.root / "driver" / "log").open("w") as log,
        subprocess.Popen(
            command,
            env=cluster.driver_environment(),
            cwd=cluster.root / "driver",
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as driver,
    ):
        try:
            yield driver
        finally:
            driver.kill()


def ended(cluster: StandaloneCluster, driver: "subprocess.Popen[str]") -> dict[str, Any]:
    """The result that a driver prints at its end."""
    text, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, (text, (cluster.root / "driver" / "log").read_text()[-4000:])
    result: dict[str, Any] = json.loads(text)
    return result


def row_count() -> int:
    """Rows of the table by its log; 0 without a table."""
    if not Log.is_deltatable(TABLE):
        return 0
    actions = Log(TABLE).get_add_actions(flatten=True)
    return sum(actions.column("num_records").to_pylist())


def bodies() -> list[bytes]:
    rows = Log(TABLE).to_pyarrow_table(columns=["body"])
    return sorted(rows["body"].to_pylist())


def test_a_batch_is_split_for_the_cores_of_workers_that_share_no_directory(
    s3: S3Server, cluster: StandaloneCluster, orders: PersistentTopic
) -> None:
    orders.send(count=COUNT)
    with archiving(cluster, orders) as driver:
        assert ended(cluster, driver)["rows"] == 4 * COUNT
    assert bodies() == sorted(orders.sent)
    assert len(Log(TABLE).file_uris()) == 2 * cluster.cores, "a file of each task"
    assert all(cluster.applications(worker) for worker in cluster.workers), "each had tasks"
    assert not [*cluster.root.rglob("*.parquet")], "no row has touched their disks"


def test_a_killed_executor_and_a_lost_worker_cost_no_row_and_double_none(
    s3: S3Server, cluster: StandaloneCluster, gated_orders: PersistentTopic, gate: PullGate
) -> None:
    gate.is_open = False
    gated_orders.send(count=COUNT)
    first, second = cluster.workers
    with archiving(cluster, gated_orders, "--every", "500ms") as driver:
        until(lambda: gate.waiting >= 2 * cluster.cores, "all tasks read")
        (executor,) = first.executors()
        first_executors = len(cluster.applications(first))
        os.kill(executor, signal.SIGKILL)
        until(lambda: gate.waiting < 2 * cluster.cores, "its tasks are gone")
        gate.is_open = True
        until(lambda: row_count() == 4 * COUNT, "the batch is whole")
        assert len(cluster.applications(first)) > first_executors, "Spark started another one"

        gate.is_open = False
        driver.send_signal(signal.SIGSTOP)  # one batch gets all of what follows
        gated_orders.send(count=COUNT)
        driver.send_signal(signal.SIGCONT)
        # Planned for the executors of that moment: the one of the first worker may come later.
        until(lambda: gate.waiting >= cluster.cores, "tasks read")
        second.kill()
        third = cluster.add_worker()
        gate.is_open = True
        until(lambda: row_count() == 8 * COUNT, "the next batch is whole")
        until(lambda: cluster.applications(third), "the new worker is used")
        driver.send_signal(signal.SIGTERM)
        assert ended(cluster, driver)["rows"] == 8 * COUNT
    assert bodies() == sorted(gated_orders.sent)


@pytest.mark.parametrize("is_killed", [False, True], ids=["ends", "is killed"])
def test_a_decommissioned_worker_costs_no_row_and_doubles_none(
    s3: S3Server,
    cluster: StandaloneCluster,
    gated_orders: PersistentTopic,
    gate: PullGate,
    is_killed: bool,
) -> None:
    leaving = cluster.add_worker()
    gate.is_open = False
    gated_orders.send(count=COUNT)
    with archiving(cluster, gated_orders, "--every", "500ms") as driver:
        until(lambda: gate.waiting >= 2 * cluster.cores and leaving.executors(), "all tasks read")
        leaving.decommission()
        until(lambda: "ecommission" in leaving.log, "the worker has heard it")
        if is_killed:
            leaving.kill()
        gate.is_open = True
        until(lambda: row_count() == 4 * COUNT, "the batch is whole")
        until(lambda: not leaving.executors(), "its executor has ended")
        gated_orders.send(count=COUNT)
        until(lambda: row_count() == 8 * COUNT, "the next batch does without it")
        driver.send_signal(signal.SIGTERM)
        assert ended(cluster, driver)["rows"] == 8 * COUNT
    assert bodies() == sorted(gated_orders.sent)
