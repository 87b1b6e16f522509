"""An archive becomes a topic again: each row once and in order, also across kills."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.spark.jobs.conftest import ArchivedTopic, EagerSpark, MakeSpark

from roquet.lake.task_set import TaskResult, TaskSet
from roquet.model.errors import CallTimeout, ConfigError, ConnectFailed, RoquetError
from roquet.model.route import TopicRoute
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs import exactly_once_sender
from roquet.spark.jobs.job_runner import run_task_set
from roquet.spark.jobs.replay import replay_job as replaying
from roquet.spark.jobs.replay.replay_job import ReplayProgress, run
from roquet.spark.jobs.replay.replay_plan import Params, destination_options, row_filter_of
from roquet.store.filesystem.directory_lock import store_error
from roquet.wire.call import Call
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import SendBatch
from roquet.wire.fastjson.codec import dumps, loads


class Replayer:
    def __init__(self, lake: ArchivedTopic, eager: MakeSpark, patch: pytest.MonkeyPatch) -> None:
        self.lake, self.eager, self.patch = lake, eager, patch

    def params(self, **params: Any) -> Params:
        namesrv = self.lake.topic.namesrv
        options = {"namesrv": namesrv, "timeout": "5s", **params.pop("options", {})}
        arguments = {"source": str(self.lake.root), "topic": self.lake.again, "tasks": 2, **params}
        return Params(**arguments, options=options)

    def run(self, spark: EagerSpark | None = None, **params: Any) -> ReplayProgress:
        return run(self.params(**params), lambda: cast(SparkSession, spark or self.eager()))


@pytest.fixture
def replay(
    archived_topic: ArchivedTopic, eager: MakeSpark, monkeypatch: pytest.MonkeyPatch
) -> Replayer:
    return Replayer(archived_topic, eager, monkeypatch)


def test_a_replay_copies_the_topic(replay: Replayer) -> None:
    replay.lake.send_and_archive(30)
    assert replay.run() == ReplayProgress(rows=120)
    assert replay.lake.places() == replay.lake.places("orders"), "each message in its old place"


def test_a_repeated_replay_sends_only_new_rows(replay: Replayer) -> None:
    replay.lake.send_and_archive(10)
    replay.run()
    spark = replay.eager()
    assert replay.run(spark) == ReplayProgress(there=40)
    assert spark.jobs == 0, "nothing to be sent needs no Spark"
    replay.lake.send_and_archive(5)
    assert replay.run() == ReplayProgress(rows=20, there=40)
    assert replay.lake.places() == replay.lake.places("orders")


def test_a_limit_is_of_the_chosen_rows_and_not_of_one_run(replay: Replayer) -> None:
    replay.lake.send_and_archive(10)
    assert replay.run(limit=15) == ReplayProgress(rows=15)
    assert replay.run(limit=15) == ReplayProgress(there=15), "the same command sends no others"
    assert replay.run(limit=25) == ReplayProgress(rows=10, there=15)
    assert replay.run() == ReplayProgress(rows=15, there=25)
    assert replay.lake.places() == replay.lake.places("orders")


def test_a_second_run_at_the_same_time_is_an_error_and_sends_nothing(replay: Replayer) -> None:
    replay.lake.send_and_archive(5)

    def meanwhile() -> Any:
        with pytest.raises(RoquetError, match=f"another replay of {replay.lake.root} to topic"):
            replay.run()
        return replay.eager()

    assert run(replay.params(), meanwhile) == ReplayProgress(rows=20)
    assert replay.run() == ReplayProgress(there=20)


def test_a_read_only_directory_is_replayed(replay: Replayer) -> None:
    replay.lake.send_and_archive(5)

    def refuse(path: Path, _: str) -> None:
        raise store_error(path, PermissionError(13, "Permission denied"))

    replay.patch.setattr(replaying, "FileLock", refuse)
    assert replay.run() == ReplayProgress(rows=20)


def test_copies_name_their_original(replay: Replayer) -> None:
    replay.lake.send_and_archive(1)
    replay.run()
    properties = replay.lake.rows()["properties"]
    wanted = sorted(f"orders/{broker}/{number}/0" for broker, number in replay.lake.topic.queues)
    for name in ("ROQUET_FROM", "ROQUET_ROW"):
        values = pc.map_lookup(properties.combine_chunks(), name, "first").to_pylist()
        assert sorted(values) == wanted
    columns = [
        replay.lake.rows(name)["properties"].combine_chunks()
        for name in ("orders", replay.lake.again)
    ]
    ids = [pc.map_lookup(column, "UNIQ_KEY", "first") for column in columns]
    assert None not in ids[1].to_pylist()
    if None not in ids[0].to_pylist():
        assert ids[0] == ids[1]


@pytest.mark.parametrize("sends", [1, 2, 5, 11])
def test_a_run_that_dies_is_ended_by_the_next(replay: Replayer, sends: int) -> None:
    replay.lake.send_and_archive(30)
    with replay.patch.context() as patch:
        patch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 10)
        patch.setattr(ClusterClient, "ask_once", lose_process_after(sends))
        with pytest.raises(KeyboardInterrupt):
            replay.run()
    assert 0 < len(replay.lake.bodies()) < 120
    done = replay.run()
    assert done.rows + done.there == 120
    assert replay.lake.places() == replay.lake.places("orders")


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


def test_an_answer_that_gets_lost_doubles_nothing(replay: Replayer) -> None:
    replay.lake.send_and_archive(20)
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

    replay.patch.setattr(ClusterClient, "ask_once", losing)
    replay.patch.setattr(exactly_once_sender, "RETRY_PAUSE_MS_MAX", 1)
    replay.patch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 7)
    assert replay.run() == ReplayProgress(rows=80)
    assert count > 4
    assert replay.lake.places() == replay.lake.places("orders")


def test_tasks_that_run_twice_send_once(replay: Replayer) -> None:
    replay.lake.send_and_archive(10)
    assert replay.run(replay.eager(repeats=True)).rows == 40
    assert replay.lake.places() == replay.lake.places("orders")


def lose_leader(patch: pytest.MonkeyPatch, broker: str) -> None:
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

    patch.setattr(BlockingChannel, "call", reply_to)


@pytest.mark.parametrize("is_planned", [False, True])
def test_rows_wait_for_the_master_of_their_queue(replay: Replayer, is_planned: bool) -> None:
    """Sent to another queue they would be out of order, and twice where a replica lacks some."""
    replay.lake.send_and_archive(10)
    replay.run()
    replay.lake.send_and_archive(5)

    def lose_after_plan(_: Any) -> int:
        lose_leader(replay.patch, "broker-b")
        return 2

    if is_planned:
        replay.patch.setattr(replaying, "ready_cores", lose_after_plan)
    else:
        lose_leader(replay.patch, "broker-b")
    options = {"timeout": "1ms"}
    with pytest.raises(ConnectFailed, match="broker 'broker-b'"):
        replay.run(options=options, tasks=None)
    replay.patch.undo()
    assert len(replay.lake.bodies()) == 40
    assert replay.run() == ReplayProgress(rows=20, there=40)
    assert replay.lake.places() == replay.lake.places("orders")


@pytest.mark.parametrize(("tasks", "count"), [(None, 3), (2, 2)])
def test_there_is_a_task_for_each_core_of_the_session_unless_told(
    replay: Replayer, tasks: int | None, count: int
) -> None:
    sizes = list[int]()

    def counted(spark: SparkSession, task_set: TaskSet) -> list[TaskResult]:
        sizes.append(len(task_set))
        return run_task_set(spark, task_set)

    replay.patch.setattr(replaying, "ready_cores", lambda _: 3)
    replay.patch.setattr(replaying, "run_task_set", counted)
    replay.lake.send_and_archive(10)
    assert replay.run(tasks=tasks).rows == 40
    assert sizes == [count]


def test_a_destination_of_another_form_keeps_the_order(replay: Replayer) -> None:
    replay.lake.make("narrow", queues=1)
    replay.lake.send_and_archive(20)
    assert replay.run(topic="narrow").rows == 80
    seen: dict[bytes, int] = {}
    for _, _, _, body in replay.lake.places("narrow"):
        queue, _, number = body.rpartition(b"/")
        assert seen.get(queue, -1) < int(number)
        seen[queue] = int(number)
    assert replay.lake.bodies("narrow") == replay.lake.topic.bodies


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_archives_of_all_kinds_are_replayed(replay: Replayer, kind: str) -> None:
    replay.lake.topic.send(5)
    replay.lake.archive(kind=kind)
    assert replay.run().rows == 20
    assert replay.lake.bodies() == replay.lake.topic.bodies


def test_a_replay_has_no_more_than_its_rate(replay: Replayer) -> None:
    replay.lake.send_and_archive(5)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    replay.run(rate=200.0, tasks=1)
    assert SYSTEM_CLOCK.monotonic_ms() - began_ms >= 70, "four requests, 25 ms apart"


def test_progress_is_reported_while_rows_are_sent(replay: Replayer) -> None:
    replay.patch.setattr(replaying, "PROGRESS_PERIOD_S", 0.01)
    replay.lake.send_and_archive(10)
    reports: list[ReplayProgress] = []
    run(replay.params(rate=200.0, tasks=1), replay.eager, reports.append)
    assert reports[0] == ReplayProgress(left=40)
    assert reports[-1] == ReplayProgress(rows=40)
    assert any(0 < one.rows < 40 and one.rows + one.left == 40 for one in reports)


def test_a_time_before_all_messages_selects_nothing(replay: Replayer) -> None:
    replay.lake.send_and_archive(2)
    assert replay.run(until="2020-01-01") == ReplayProgress()
    assert replay.run(begin="-1 hour").rows == 8


def test_a_topic_of_another_archive_is_an_error(replay: Replayer) -> None:
    replay.lake.archive()
    with pytest.raises(ConfigError, match="is the archive of topic 'orders', not of 'bills'"):
        replay.run(only_topic="bills")


def test_a_topic_gets_its_own_messages_only_on_request(replay: Replayer) -> None:
    replay.lake.send_and_archive(2)
    with pytest.raises(ConfigError, match=r"would be there twice.*--same-topic"):
        replay.run(topic="orders")
    assert len(replay.lake.bodies("orders")) == 8
    assert replay.run(topic="orders", same_topic=True) == ReplayProgress(rows=8)
    assert replay.lake.bodies("orders") == sorted(2 * replay.lake.topic.bodies)
    assert replay.run(topic="orders", same_topic=True) == ReplayProgress(there=8)


def test_a_missing_table_is_an_error(replay: Replayer) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*: give the directory of a table"):
        replay.run(source=str(replay.lake.root / "elsewhere"))


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


def test_a_destination_that_lost_messages_wants_to_know_since_when(replay: Replayer) -> None:
    replay.lake.send_and_archive(2)
    replay.run()
    queue_bounds = ClusterClient.queue_bounds

    def retained(self: ClusterClient, topic: str, broker: str, ids: Sequence[int]) -> Any:
        bounds = queue_bounds(self, topic, broker, ids)
        return {number: (min(1, last), last) for number, (_, last) in bounds.items()}

    replay.patch.setattr(ClusterClient, "queue_bounds", retained)
    with pytest.raises(ConfigError, match="has lost its messages before offset 1"):
        replay.run()
    with pytest.raises(ConfigError, match="give --since"):
        replay.run(since="-1 hour")


CHILD = """
import sys
import pyarrow as pa
from roquet.spark.jobs.replay import Params, run

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
    replay: Replayer, share: float
) -> None:
    replay.lake.send_and_archive(500)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    rate = (1 - share) * 2000 / 0.4  # at the kill, the rest would take 0.4 s
    parameters = [str(replay.lake.root), replay.lake.topic.namesrv, str(rate)]
    command = [sys.executable, "-c", CHILD, *parameters]
    cluster = replay.lake.cluster()
    with subprocess.Popen(command, env=environ) as child:
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + 30_000
        while sum(cluster.latest().values()) < share * 2000:
            assert child.poll() is None
            assert SYSTEM_CLOCK.monotonic_ms() < deadline_ms
            time.sleep(0.002)
        child.kill()
    assert share * 2000 <= len(replay.lake.bodies()) < 2000
    done = replay.run()
    assert (done.rows + done.there, done.doubled) == (2000, 0)
    assert replay.lake.places() == replay.lake.places("orders")
