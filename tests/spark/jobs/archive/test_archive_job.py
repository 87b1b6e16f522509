"""A topic becomes a table, each message once; a run continues from the last commit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import create_topic
from tests.spark.jobs.conftest import MakeSpark, Topic

from roquet.lake.queue_offsets import OffsetRange
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import TableConflict
from roquet.lake.task_set import TaskResult
from roquet.model.errors import ConfigError, UsageError
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import DataLost
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.archive.archive_job import (
    COMPACT_MIN_RUNNING,
    ArchiveProgress,
    OnArchiveProgress,
    Params,
    count_missing,
    run,
    source_options,
    transform,
)
from roquet.spark.jobs.job_runner import JobFailed
from roquet.spark.options import SourceOptions
from roquet.spark.source import plan, stream
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.fastjson.codec import loads


class ArchiveRunner:
    def __init__(self, topic: Topic, eager: MakeSpark, root: Path) -> None:
        self.topic, self.eager, self.root = topic, eager, root

    def run(
        self,
        *,
        send: int = 0,
        spark: Any = None,
        on_progress: OnArchiveProgress = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
        **params: Any,
    ) -> ArchiveProgress:
        """Send so many messages to each queue, and archive what there is."""
        self.topic.send(send)
        options = {"namesrv": self.topic.namesrv, "timeout": "2s", **params.pop("options", {})}
        arguments = {"topic": "orders", "target": str(self.root), "options": options, **params}
        return run(Params(**arguments), lambda: spark or self.eager(), on_progress, should_stop)

    @property
    def files(self) -> list[str]:
        return list(read_snapshot(str(self.root)).paths) if self.root.exists() else []

    @property
    def bodies(self) -> list[bytes]:
        files = self.files
        return sorted(ds.dataset(files).to_table()["body"].to_pylist()) if files else []


@pytest.fixture
def runner(topic: Topic, eager: MakeSpark, tmp_path: Path) -> ArchiveRunner:
    return ArchiveRunner(topic, eager, tmp_path / "lake")


def test_a_run_continues_at_the_offsets_of_the_table(runner: ArchiveRunner) -> None:
    first, second, third = runner.run(send=30), runner.run(), runner.run(send=5)
    assert (first.rows, first.commits, first.number) == (120, 2, 2)
    assert second == ArchiveProgress(number=2, kind="delta"), "nothing new is no commit"
    assert (third.rows, third.commits, third.number) == (20, 1, 3)
    assert first.bytes > third.bytes > 0, "each run counts the files that it has added"
    assert runner.bodies == runner.topic.bodies


def test_batches_have_at_most_the_size_of_the_option(runner: ArchiveRunner) -> None:
    done = runner.run(send=30, options={"maxOffsetsPerTrigger": "50"})
    assert (done.rows, done.commits) == (120, 4)
    assert runner.bodies == runner.topic.bodies


def test_each_batch_is_split_for_the_cores_that_spark_has_by_then(
    runner: ArchiveRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PARTITION_ROWS_MIN", 1)
    cores = iter([3, 5])
    monkeypatch.setattr(archive_job, "ready_cores", lambda _: next(cores))
    assert runner.run(send=30, options={"maxOffsetsPerTrigger": "60"}).commits == 3
    assert len(list(runner.root.glob("day=*/*.parquet"))) == 3 + 5
    assert runner.bodies == runner.topic.bodies


def test_a_new_table_may_begin_at_the_latest_offsets(runner: ArchiveRunner) -> None:
    assert runner.run(send=3, options={"startingOffsets": "latest"}).rows == 0
    assert runner.run(send=2, options={"startingOffsets": "latest"}).rows == 8, (
        "the first run has noted where"
    )


def test_a_run_may_end_before_the_end(runner: ArchiveRunner) -> None:
    runner.topic.send(3)
    until = '{"orders": {"broker-a": {"0": 1, "1": 0}, "broker-b": {"0": 2, "1": 3}}}'
    assert runner.run(options={"endingOffsets": until}).rows == 6
    assert runner.run().rows == 6
    assert runner.bodies == runner.topic.bodies


def test_an_endless_run_archives_until_it_is_stopped(runner: ArchiveRunner) -> None:
    runner.topic.send(3)
    looks = iter([False, False, False])

    def should_stop() -> bool:
        is_over = next(looks, True)
        if not is_over and runner.topic.ends["broker-a", 0] < 5:
            runner.topic.send(1)
        return is_over

    done = runner.run(every_ms=1, should_stop=should_stop)
    assert done.rows >= 12
    runner.run()
    assert runner.bodies == runner.topic.bodies


def test_small_files_are_merged_during_a_run(runner: ArchiveRunner) -> None:
    done = runner.run(send=30, options={"maxOffsetsPerTrigger": "50"}, compact=True)
    assert done.merged >= 3
    assert len(runner.files) == 1
    assert runner.bodies == runner.topic.bodies


def test_a_run_without_end_merges_now_and_then(
    runner: ArchiveRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_job, "COMPACT_MIN_RUNNING", 3)
    looks = iter([False] * 20)

    def should_stop() -> bool:
        runner.topic.send(1)
        return next(looks, True)

    done = runner.run(every_ms=1, compact=True, should_stop=should_stop)
    assert done.merged > 3
    runner.run()
    assert runner.bodies == runner.topic.bodies


class HourlyRun:
    """A run that never ends: each pause between two looks is an hour, with new messages."""

    def __init__(self, runner: ArchiveRunner, hours: int) -> None:
        self._runner, self._hours = runner, hours
        self._commits = 0
        self.most_files = 0
        """Most files of one day at any hour."""

    def run(self, **params: Any) -> ArchiveProgress:
        self._send()
        return self._runner.run(
            every_ms=1, on_progress=self._look, should_stop=lambda: self._hours < 0, **params
        )

    def _look(self, progress: ArchiveProgress) -> None:
        if progress.commits > self._commits:  # the hour's batch; the pause comes next
            self._commits = progress.commits
        else:
            self._send()
        self.most_files = max(self.most_files, len(self._runner.files))

    def _send(self) -> None:
        self._hours -= 1
        if self._hours >= 0:
            self._runner.topic.send(1)


@pytest.mark.spark_suite
def test_a_week_of_an_hourly_run_makes_few_files(
    runner: ArchiveRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are in one day here, and so more than a day of any week would have."""
    monkeypatch.setattr(stream, "IDLE_MS", 1)
    week = HourlyRun(runner, 7 * 24)
    done = week.run(compact=True)
    assert (done.rows, done.commits) == (4 * 7 * 24, 7 * 24 + 1)
    assert len(runner.files) == 1
    assert 16 <= week.most_files <= 2 * COMPACT_MIN_RUNNING * len(runner.topic.queues)
    assert runner.bodies == runner.topic.bodies


def test_tasks_that_ran_twice_are_in_the_table_once(runner: ArchiveRunner) -> None:
    runner.run(send=30, spark=runner.eager(repeats=True))
    assert runner.bodies == runner.topic.bodies


def test_a_run_that_dies_before_its_commit_has_done_nothing(runner: ArchiveRunner) -> None:
    runner.topic.send(30)

    class Dying(runner.eager):  # type: ignore[misc, name-defined]
        def collect(self) -> Any:
            super().collect()
            raise ConnectionRefusedError("nobody is there")

    with pytest.raises(JobFailed, match="Spark's JVM has ended"):
        runner.run(spark=Dying())
    assert runner.bodies == []
    assert runner.run().rows == 120
    assert runner.bodies == runner.topic.bodies


def test_another_table_kind_is_chosen_by_name(runner: ArchiveRunner) -> None:
    assert runner.run(send=3, kind="iceberg").rows == 12
    assert read_snapshot(str(runner.root)).kind == "iceberg"
    assert runner.bodies == runner.topic.bodies
    with pytest.raises(ConfigError, match="holds a table of kind iceberg"):
        runner.run(kind="delta")


def test_a_topic_that_there_is_not_makes_no_table(runner: ArchiveRunner) -> None:
    with pytest.raises(UsageError, match="topic 'odrers' is unknown"):
        runner.run(topic="odrers")
    assert not runner.root.exists()


def test_two_archives_of_a_table_do_not_run_at_once(runner: ArchiveRunner) -> None:
    runner.topic.send(1)
    second = list[BaseException]()

    def spark() -> Any:
        if not second:
            with pytest.raises(TableConflict, match="another archive writes to") as refused:
                runner.run()
            second.append(refused.value)
        return runner.eager()

    options = {"namesrv": runner.topic.namesrv}
    run(Params(topic="orders", target=str(runner.root), options=options), spark)
    assert len(second) == 1
    assert runner.bodies == runner.topic.bodies


@pytest.mark.parametrize("topic_name", ["", "orders,bills"])
def test_an_archive_is_of_one_topic(topic_name: str) -> None:
    with pytest.raises(ConfigError, match="an archive holds exactly one topic"):
        source_options(Params(topic=topic_name, target="lake", options={"namesrv": "a:1"}))


def test_an_option_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match="no option 'startingOffset'"):
        source_options(Params(topic="a", target="b", options={"startingOffset": "latest"}))


@pytest.mark.parametrize("name", ["tags", "sql92", "topicpattern", "dropDoubles", "columns"])
def test_an_archive_is_of_all_messages(name: str) -> None:
    with pytest.raises(ConfigError, match="an archive holds all messages"):
        source_options(Params(topic="a", target="b", options={"namesrv": "a:1", name: "x"}))


def test_an_end_and_no_end_contradict_each_other() -> None:
    options = {"namesrv": "a:1", "endingOffsets": "latest"}
    with pytest.raises(ConfigError, match="either ends at given offsets"):
        source_options(Params(topic="a", target="b", options=options, every_ms=5))


PIECES = [
    OffsetRange("orders", "a", 0, 3, 8),
    OffsetRange("orders", "a", 0, 8, 9),
    OffsetRange("orders", "a", 1, 0, 2),
]


def results_of(*rows: dict[str, int]) -> list[TaskResult]:
    return [TaskResult(rows={"orders": {"a": counts}}) for counts in rows]


def settings(*, fail: bool) -> SourceOptions:
    return SourceOptions(namesrv=("a:1",), topics=("orders",), fail_on_data_loss=fail)


def test_rows_that_add_up_are_right() -> None:
    assert count_missing(PIECES, results_of({"0": 5}, {"0": 1, "1": 2}), settings(fail=True)) == 0


def test_missing_rows_are_an_error_or_are_counted() -> None:
    offsets = results_of({"0": 5}, {"1": 2})
    with pytest.raises(JobFailed, match="queue 0 of broker 'a': 5 rows of 6 messages"):
        count_missing(PIECES, offsets, settings(fail=True))
    assert count_missing(PIECES, offsets, settings(fail=False)) == 1


@pytest.mark.parametrize("fail", [True, False])
def test_too_many_rows_are_always_an_error(fail: bool) -> None:
    with pytest.raises(JobFailed, match="7 rows of 6 messages"):
        count_missing(PIECES, results_of({"0": 7, "1": 2}), settings(fail=fail))


def test_the_transform_is_by_day() -> None:
    stored = pa.array([0, 86_400_000_000], pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([stored], ["stored_at"])
    assert [(day, len(part)) for day, part in transform(rows)] == [
        ("1970-01-01", 1),
        ("1970-01-02", 1),
    ]


@pytest.mark.spark_suite
def test_an_archive_runs_on_spark(spark: SparkSession, runner: ArchiveRunner) -> None:
    done = runner.run(send=500, spark=spark, options={"minPartitions": "2"})
    assert (done.rows, done.commits) == (2000, 2)
    table = spark.read.parquet(str(runner.root))
    assert sorted(bytes(row.body) for row in table.select("body").collect()) == runner.topic.bodies
    assert table.select("day").distinct().count() <= 2, "found in the names of the directories"


def committed(topic: Topic, group: str) -> dict[tuple[str, int], int]:
    """The offsets that the brokers have of a group."""
    found = {}
    for address in topic.running.broker_addrs:
        with BlockingChannel(address) as channel:
            reply = channel.call(GetConsumeStats(consumer_group=group))
            stats = loads(bytes(reply.body), ConsumeStats)
        for queue, wrapper in stats.offset_table.items():
            found[queue.broker_name, queue.queue_id] = wrapper.consumer_offset
    return found


def test_the_lag_of_an_archive_is_that_of_a_group_if_one_is_named(runner: ArchiveRunner) -> None:
    options = {"publishProgress": "lake-orders"}
    runner.run(send=3, options=options)
    assert committed(runner.topic, "lake-orders") == dict.fromkeys(runner.topic.queues, 3)
    runner.run(send=2)
    assert runner.run(options=options).rows == 0
    assert committed(runner.topic, "lake-orders") == dict.fromkeys(runner.topic.queues, 5), (
        "a run with nothing new publishes what a killed one has not"
    )


def test_a_topic_that_was_renamed_is_another_topic(runner: ArchiveRunner) -> None:
    runner.run(send=5)
    before = runner.bodies
    create_topic(runner.topic.running, "orders2")
    runner.topic.delete("orders")
    runner.topic.ends = dict.fromkeys(runner.topic.queues, 0)
    # At first the name server has not heard of it.
    says = r"topic 'orders' is unknown|topic 'orders', queue \d of .* ends at offset 0, but was"
    with pytest.raises((UsageError, DataLost), match=says):
        runner.run()
    with pytest.raises(ConfigError, match="is the archive of topic 'orders', not of 'orders2': gi"):
        runner.run(topic="orders2")
    assert runner.bodies == before


def test_an_archive_does_not_mix_a_topic_with_a_recreated_one(runner: ArchiveRunner) -> None:
    """Longer than before: no offset tells of it, the id of the topic does."""
    assert runner.run(send=20).rows == 80
    before = runner.bodies
    runner.topic.recreate()
    runner.topic.send(30)
    with pytest.raises(
        DataLost, match=r"deleted and made anew at .* UTC; .* queue 0 up to offset 20"
    ):
        runner.run()
    with pytest.raises(
        DataLost, match="archive the new topic to another directory; with failOnDataLoss=false"
    ):
        runner.run()
    assert runner.bodies == before, "nothing of the new one is in it"


def test_an_archive_may_continue_with_a_recreated_topic_on_request(runner: ArchiveRunner) -> None:
    runner.run(send=20)
    before = runner.bodies
    runner.topic.recreate()
    done = runner.run(send=30, options={"failOnDataLoss": "false"})
    assert done.rows == 120, "all of the new one"
    assert runner.bodies == sorted(before + runner.topic.bodies)
    assert runner.run(send=1).rows == 4, "the table is of the new one from now on"
