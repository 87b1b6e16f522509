"""An archive becomes a topic again: each row once and in order, also across kills."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow.compute as pc
import pytest

from roquet.lake.task_set import TaskResult, TaskSet
from roquet.model.errors import CallTimeout, ConfigError, ConnectFailed, RoquetError
from roquet.model.route import TopicRoute
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs import exactly_once_sender
from roquet.spark.jobs.job_runner import run_task_set
from roquet.spark.jobs.replay import replay_job as replaying
from roquet.spark.jobs.replay.replay_job import (
    Params,
    ReplayProgress,
    destination_options,
    row_filter_of,
    run,
)
from roquet.store.filesystem.directory_lock import store_error
from roquet.wire.call import Call
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import SendBatch
from roquet.wire.fastjson.codec import dumps, loads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.jobs.conftest import ArchivedTopic, EagerSpark, MakeSpark


def params_of(archived_topic: "ArchivedTopic", **params: Any) -> Params:
    options = {
        "namesrv": archived_topic.topic.namesrv,
        "timeout": "5s",
        **params.pop("options", {}),
    }
    arguments: dict[str, Any] = {
        "source": str(archived_topic.root),
        "topic": archived_topic.again,
        "options": options,
        "tasks": 2,
    }
    return Params(**{**arguments, **params})


def run_replay(
    archived_topic: "ArchivedTopic", spark: "EagerSpark", **params: Any
) -> ReplayProgress:
    return run(params_of(archived_topic, **params), lambda: cast("SparkSession", spark))


def test_a_replay_copies_the_topic(archived_topic: "ArchivedTopic", eager: "MakeSpark") -> None:
    archived_topic.topic.send(30)
    archived_topic.archive()
    assert run_replay(archived_topic, eager()) == ReplayProgress(rows=120)
    assert archived_topic.places() == archived_topic.places("orders"), (
        "each message in its old place"
    )


def test_a_repeated_replay_sends_only_new_rows(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.topic.send(10)
    archived_topic.archive()
    run_replay(archived_topic, eager())
    spark = eager()
    assert run_replay(archived_topic, spark) == ReplayProgress(there=40)
    assert spark.jobs == 0, "nothing to be sent needs no Spark"
    archived_topic.topic.send(5)
    archived_topic.archive()
    assert run_replay(archived_topic, eager()) == ReplayProgress(rows=20, there=40)
    assert archived_topic.places() == archived_topic.places("orders")


def test_a_second_run_at_the_same_time_is_an_error_and_sends_nothing(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.topic.send(5)
    archived_topic.archive()

    def meanwhile() -> Any:
        with pytest.raises(RoquetError, match=f"another replay of {archived_topic.root} to topic"):
            run_replay(archived_topic, eager())
        return eager()

    assert run(params_of(archived_topic), meanwhile) == ReplayProgress(rows=20)
    assert run_replay(archived_topic, eager()) == ReplayProgress(there=20)


def test_a_read_only_directory_is_replayed(
    archived_topic: "ArchivedTopic", eager: "MakeSpark", monkeypatch: pytest.MonkeyPatch
) -> None:
    archived_topic.topic.send(5)
    archived_topic.archive()

    def refuse(path: Path, _: str) -> None:
        raise store_error(path, PermissionError(13, "Permission denied"))

    monkeypatch.setattr(replaying, "FileLock", refuse)
    assert run_replay(archived_topic, eager()) == ReplayProgress(rows=20)


def test_copies_name_their_original(archived_topic: "ArchivedTopic", eager: "MakeSpark") -> None:
    archived_topic.topic.send(1)
    archived_topic.archive()
    run_replay(archived_topic, eager())
    properties = archived_topic.rows()["properties"]
    wanted = sorted(f"orders/{broker}/{number}/0" for broker, number in archived_topic.topic.queues)
    for name in ("ROQUET_FROM", "ROQUET_ROW"):
        values = pc.map_lookup(properties.combine_chunks(), name, "first").to_pylist()
        assert sorted(values) == wanted
    columns = [
        archived_topic.rows(name)["properties"].combine_chunks()
        for name in ("orders", archived_topic.again)
    ]
    ids = [pc.map_lookup(column, "UNIQ_KEY", "first") for column in columns]
    assert None not in ids[1].to_pylist()
    if None not in ids[0].to_pylist():
        assert ids[0] == ids[1]


@pytest.mark.parametrize("sends", [1, 2, 5, 11])
def test_a_run_that_dies_is_ended_by_the_next(
    archived_topic: "ArchivedTopic",
    eager: "MakeSpark",
    monkeypatch: pytest.MonkeyPatch,
    sends: int,
) -> None:
    archived_topic.topic.send(30)
    archived_topic.archive()
    with monkeypatch.context() as patch:
        patch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 10)
        patch.setattr(ClusterClient, "ask_once", lose_process_after(sends))
        with pytest.raises(KeyboardInterrupt):
            run_replay(archived_topic, eager())
    assert 0 < len(archived_topic.bodies()) < 120
    done = run_replay(archived_topic, eager())
    assert done.rows + done.there == 120
    assert archived_topic.places() == archived_topic.places("orders")


def lose_process_after(sends: int) -> Any:
    """A replacement of `ask_once` that ends the process after it has sent so many batches."""
    ask, count = ClusterClient.ask_once, 0

    def ask_once(self: ClusterClient, broker: str, call: Call[Any]) -> Any:
        nonlocal count
        reply = ask(self, broker, call)
        count += isinstance(call, SendBatch)
        if count >= sends:
            raise KeyboardInterrupt
        return reply

    return ask_once


def test_an_answer_that_gets_lost_doubles_nothing(
    archived_topic: "ArchivedTopic", eager: "MakeSpark", monkeypatch: pytest.MonkeyPatch
) -> None:
    archived_topic.topic.send(20)
    archived_topic.archive()
    ask, count = ClusterClient.ask_once, 0

    def losing(self: ClusterClient, broker: str, call: Call[Any]) -> Any:
        nonlocal count
        if not isinstance(call, SendBatch):
            return ask(self, broker, call)
        count += 1
        if count % 3 == 0:
            raise CallTimeout("it never came")
        reply = ask(self, broker, call)
        if count % 3 == 1:
            raise CallTimeout("its answer never came")
        return reply

    monkeypatch.setattr(ClusterClient, "ask_once", losing)
    monkeypatch.setattr(exactly_once_sender, "RETRY_PAUSE_MS_MAX", 1)
    monkeypatch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 7)
    assert run_replay(archived_topic, eager()) == ReplayProgress(rows=80)
    assert count > 4
    assert archived_topic.places() == archived_topic.places("orders")


def test_tasks_that_run_twice_send_once(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.topic.send(10)
    archived_topic.archive()
    assert run_replay(archived_topic, eager(repeats=True)).rows == 40
    assert archived_topic.places() == archived_topic.places("orders")


def lose_leader(monkeypatch: pytest.MonkeyPatch, broker: str) -> None:
    """Let name servers know only a replica of a broker from now on, which has all messages here."""
    ask = BlockingChannel.call

    def reply_to(self: BlockingChannel, call: Call[Any], timeout_ms: int) -> Any:
        reply = ask(self, call, timeout_ms)
        if not isinstance(call, GetRoute):
            return reply
        route = loads(bytes(reply.body), TopicRoute)
        datas = [
            msgspec.structs.replace(data, broker_addrs={1: data.broker_addrs[0]})
            if data.broker_name == broker
            else data
            for data in route.broker_datas
        ]
        route = msgspec.structs.replace(route, broker_datas=datas)
        return msgspec.structs.replace(reply, body=dumps(route, standard=True))

    monkeypatch.setattr(BlockingChannel, "call", reply_to)


@pytest.mark.parametrize("is_planned", [False, True])
def test_rows_wait_for_the_master_of_their_queue(
    archived_topic: "ArchivedTopic",
    eager: "MakeSpark",
    monkeypatch: pytest.MonkeyPatch,
    is_planned: bool,
) -> None:
    """Sent to another queue they would be out of order, and twice where a replica lacks some."""
    archived_topic.topic.send(10)
    archived_topic.archive()
    run_replay(archived_topic, eager())
    archived_topic.topic.send(5)
    archived_topic.archive()

    def lose_after_plan(_: Any) -> int:
        lose_leader(monkeypatch, "broker-b")
        return 2

    if is_planned:
        monkeypatch.setattr(replaying, "ready_cores", lose_after_plan)
    else:
        lose_leader(monkeypatch, "broker-b")
    options = {"timeout": "1ms"}
    with pytest.raises(ConnectFailed, match="broker 'broker-b'"):
        run_replay(archived_topic, eager(), options=options, tasks=None)
    monkeypatch.undo()
    assert len(archived_topic.bodies()) == 40
    assert run_replay(archived_topic, eager()) == ReplayProgress(rows=20, there=40)
    assert archived_topic.places() == archived_topic.places("orders")


@pytest.mark.parametrize(("tasks", "count"), [(None, 3), (2, 2)])
def test_there_is_a_task_for_each_core_of_the_session_unless_told(
    archived_topic: "ArchivedTopic",
    eager: "MakeSpark",
    monkeypatch: pytest.MonkeyPatch,
    tasks: int | None,
    count: int,
) -> None:
    sizes = list[int]()

    def counted(spark: "SparkSession", task_set: TaskSet) -> list[TaskResult]:
        sizes.append(len(task_set))
        return run_task_set(spark, task_set)

    monkeypatch.setattr(replaying, "ready_cores", lambda _: 3)
    monkeypatch.setattr(replaying, "run_task_set", counted)
    archived_topic.topic.send(10)
    archived_topic.archive()
    assert run_replay(archived_topic, eager(), tasks=tasks).rows == 40
    assert sizes == [count]


def test_a_destination_of_another_form_keeps_the_order(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.make("narrow", queues=1)
    archived_topic.topic.send(20)
    archived_topic.archive()
    assert run_replay(archived_topic, eager(), topic="narrow").rows == 80
    seen: dict[bytes, int] = {}
    for _, _, _, body in archived_topic.places("narrow"):
        queue, _, number = body.rpartition(b"/")
        assert seen.get(queue, -1) < int(number)
        seen[queue] = int(number)
    assert archived_topic.bodies("narrow") == archived_topic.topic.bodies


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_archives_of_all_kinds_are_replayed(
    archived_topic: "ArchivedTopic", eager: "MakeSpark", kind: str
) -> None:
    archived_topic.topic.send(5)
    archived_topic.archive(kind=kind)
    assert run_replay(archived_topic, eager()).rows == 20
    assert archived_topic.bodies() == archived_topic.topic.bodies


def test_a_replay_has_no_more_than_its_rate(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.topic.send(5)
    archived_topic.archive()
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    run_replay(archived_topic, eager(), rate=200.0, tasks=1)
    assert SYSTEM_CLOCK.monotonic_ms() - began_ms >= 70, "four requests, 25 ms apart"


def test_progress_is_reported_while_rows_are_sent(
    archived_topic: "ArchivedTopic", eager: "MakeSpark", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PROGRESS_PERIOD_S", 0.01)
    archived_topic.topic.send(10)
    archived_topic.archive()
    reports: list[ReplayProgress] = []
    params: dict[str, Any] = {
        "source": str(archived_topic.root),
        "topic": archived_topic.again,
        "rate": 200.0,
        "tasks": 1,
    }
    run(Params(**params, options={"namesrv": archived_topic.topic.namesrv}), eager, reports.append)
    assert reports[0] == ReplayProgress(left=40)
    assert reports[-1] == ReplayProgress(rows=40)
    assert any(0 < one.rows < 40 and one.rows + one.left == 40 for one in reports)


def test_a_time_before_all_messages_selects_nothing(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.topic.send(2)
    archived_topic.archive()
    assert run_replay(archived_topic, eager(), until="2020-01-01") == ReplayProgress()
    assert run_replay(archived_topic, eager(), begin="-1 hour").rows == 8


def test_a_topic_of_another_archive_is_an_error(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.archive()
    with pytest.raises(ConfigError, match="is the archive of topic 'orders', not of 'bills'"):
        run_replay(archived_topic, eager(), only_topic="bills")


def test_a_topic_gets_its_own_messages_only_on_request(
    archived_topic: "ArchivedTopic", eager: "MakeSpark"
) -> None:
    archived_topic.topic.send(2)
    archived_topic.archive()
    with pytest.raises(ConfigError, match=r"would be there twice.*--same-topic"):
        run_replay(archived_topic, eager(), topic="orders")
    assert len(archived_topic.bodies("orders")) == 8
    assert run_replay(archived_topic, eager(), topic="orders", same_topic=True) == ReplayProgress(
        rows=8
    )
    assert archived_topic.bodies("orders") == sorted(2 * archived_topic.topic.bodies)
    assert run_replay(archived_topic, eager(), topic="orders", same_topic=True) == ReplayProgress(
        there=8
    )


def test_a_missing_table_is_an_error(archived_topic: "ArchivedTopic", eager: "MakeSpark") -> None:
    with pytest.raises(ConfigError, match=r"there is no .*: give the directory of a table"):
        run_replay(archived_topic, eager(), source=str(archived_topic.root / "elsewhere"))


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"options": {"namesrv": "a:1", "tags": "x"}}, "option 'tags' is not for replays"),
        ({"topic": "a,b"}, "a replay goes to exactly one topic"),
        ({"topic": "%DLQ%billing"}, "is internal to the broker"),
        ({"rate": 0.0}, "rate has to be over 0"),
    ],
)
def test_impossible_settings_are_an_error(params: dict[str, Any], says: str) -> None:
    arguments = {"source": "lake", "topic": "again", "options": {"namesrv": "a:1"}, **params}
    with pytest.raises(ConfigError, match=says):
        destination_options(Params(**arguments))


def test_times_must_hold_something_between_them() -> None:
    with pytest.raises(ConfigError, match="no message would be chosen"):
        row_filter_of(Params(source="a", topic="b", begin="2026-02-01", until="2026-01-01"))


def test_a_destination_that_lost_messages_wants_to_know_since_when(
    archived_topic: "ArchivedTopic", eager: "MakeSpark", monkeypatch: pytest.MonkeyPatch
) -> None:
    archived_topic.topic.send(2)
    archived_topic.archive()
    run_replay(archived_topic, eager())
    queue_bounds = ClusterClient.queue_bounds

    def retained(self: ClusterClient, topic: str, broker: str, ids: Sequence[int]) -> Any:
        bounds = queue_bounds(self, topic, broker, ids)
        return {number: (min(1, last), last) for number, (_, last) in bounds.items()}

    monkeypatch.setattr(ClusterClient, "queue_bounds", retained)
    with pytest.raises(ConfigError, match="has lost its messages before offset 1"):
        run_replay(archived_topic, eager())
    with pytest.raises(ConfigError, match="give --since"):
        run_replay(archived_topic, eager(), since="-1 hour")


CHILD = """
import sys
import pyarrow as pa
from roquet.spark.jobs.replay.replay_job import Params, run

class Here:
    def range(self, start, end, step, parts):
        self.count = end
        return self
    def mapInArrow(self, work, schema):
        self.work = work
        return self
    def collect(self):
        numbers = (pa.RecordBatch.from_pydict({"id": [at]}) for at in range(self.count))
        return [row for answer in self.work(numbers) for row in answer.to_pylist()]

source, namesrv, rate = sys.argv[1:]
options = {"namesrv": namesrv}
run(Params(source=source, topic="again", options=options, rate=float(rate), tasks=1), Here)
"""


@pytest.mark.kill
@pytest.mark.parametrize("share", [0.05, 0.4, 0.8])
def test_a_process_that_is_killed_leaves_no_row_twice_or_out(
    archived_topic: "ArchivedTopic", eager: "MakeSpark", share: float
) -> None:
    archived_topic.topic.send(500)
    archived_topic.archive()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    rate = (1 - share) * 2000 / 0.4  # at the kill, the rest would take 0.4 s
    parameters = [str(archived_topic.root), archived_topic.topic.namesrv, str(rate)]
    command = [sys.executable, "-c", CHILD, *parameters]
    cluster = archived_topic.cluster()
    with subprocess.Popen(command, env=environ) as child:
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + 30_000
        while sum(cluster.latest().values()) < share * 2000:
            assert child.poll() is None
            assert SYSTEM_CLOCK.monotonic_ms() < deadline_ms
            time.sleep(0.002)
        child.kill()
    assert share * 2000 <= len(archived_topic.bodies()) < 2000
    done = run_replay(archived_topic, eager())
    assert (done.rows + done.there, done.doubled) == (2000, 0)
    assert archived_topic.places() == archived_topic.places("orders")
