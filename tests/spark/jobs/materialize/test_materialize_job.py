"""A topic of keyed changes becomes a table of the latest state, each change exactly once."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession
from tests.lake.conftest import Crash, CrashingDisk
from tests.spark.jobs.conftest import MakeSpark, Topic

from roquet.lake.states.state_table import StateIdentity, StateTable
from roquet.model.errors import ConfigError, UsageError
from roquet.spark.cluster.cluster_client import DataLost
from roquet.spark.jobs.materialize import materialize_job
from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, NullKeys, Params, run

Change = tuple[str | None, bytes]
"""A key and a body; `null` deletes."""


class Materializer:
    """Runs the job for one topic and table, and knows what the table should hold."""

    def __init__(self, topic: Topic, eager: MakeSpark, root: Path) -> None:
        self.topic, self.eager, self.root = topic, eager, root
        self.expected: dict[str, bytes] = {}

    def send(self, *changes: Change) -> None:
        """Send changes; a key always goes to one queue."""
        for place, (broker, queue_id) in enumerate(self.topic.queues):
            own = [one for one in changes if self._queue_of(one[0]) == place]
            if own:
                self.send_to(broker, queue_id, *own)

    def send_to(self, broker: str, queue_id: int, *changes: Change) -> None:
        keys, bodies = zip(*changes, strict=True)
        rows = {"key": pa.array(keys, pa.string()), "body": list(bodies)}
        self.topic.send_rows(broker, queue_id, pa.RecordBatch.from_pydict(rows))
        for key, body in changes:
            if key is not None:
                self.expected.pop(key, None)
                if body != b"null":
                    self.expected[key] = body

    def _queue_of(self, key: str | None) -> int:
        return sum((key or "").encode()) % len(self.topic.queues)

    def run(self, *, spark: Any = None, **params: Any) -> MaterializeProgress:
        options = {"namesrv": self.topic.namesrv, "timeout": "2s", **params.pop("options", {})}
        arguments = {"topic": "orders", "target": str(self.root), "options": options, "buckets": 3}
        return run(Params(**{**arguments, **params}), lambda: spark or self.eager())

    def take(self, *changes: Change) -> None:
        self.send(*changes)
        self.run()

    def rows(self) -> pa.Table:
        return Log(str(self.root)).to_pyarrow_table()

    def state(self) -> dict[str, bytes]:
        rows = self.rows()
        assert len(set(rows["key"].to_pylist())) == rows.num_rows, "a key has one row"
        return dict(zip(rows["key"].to_pylist(), rows["body"].to_pylist(), strict=True))


@pytest.fixture
def job(topic: Topic, eager: MakeSpark, tmp_path: Path) -> Materializer:
    return Materializer(topic, eager, tmp_path / "state")


def test_the_table_has_the_latest_change_of_each_key(job: Materializer) -> None:
    job.send(("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"))
    done = job.run()
    assert (done.rows, done.changed, done.deleted, done.commits) == (4, 3, 0, 2)
    assert job.state() == job.expected == {"a": b"2", "b": b"1", "c": b"1"}


def test_a_run_continues_at_the_offsets_of_the_table(job: Materializer) -> None:
    job.take(("a", b"1"), ("b", b"1"))
    assert job.run() == MaterializeProgress(number=2, kind="delta"), "nothing new is no commit"
    job.send(("a", b"2"), ("b", b"null"), ("c", b"1"))
    done = job.run()
    assert (done.rows, done.changed, done.deleted) == (3, 2, 1)
    assert job.state() == {"a": b"2", "c": b"1"}


def test_a_table_without_any_key_left_is_empty(job: Materializer) -> None:
    job.take(("a", b"1"))
    job.take(("a", b"null"))
    assert job.state() == {}


def test_small_batches_give_the_same_table(job: Materializer) -> None:
    random = Random(7)
    changes = [
        (f"k{random.randrange(9)}", b"null" if random.random() < 0.2 else b"%d" % number)
        for number in range(120)
    ]
    job.send(*changes)
    assert job.run(options={"maxOffsetsPerTrigger": "17"}).commits > 5
    assert job.state() == job.expected


def test_a_table_remembers_how_it_was_made(job: Materializer) -> None:
    job.send(("a", b'{"n": 1}'), ("b", b'{"n": 2}'))
    job.run(deletes="keep", body_format="json", infer_body=True)
    job.send(("a", b"null"), ("b", b'{"n": 3, "on": true}'), ("c", b"no json"))
    done = job.run(buckets=None)
    assert (done.new_columns, done.bad_bodies, done.deleted) == (["on boolean"], 1, 1)
    rows = job.rows().sort_by("key").select(["key", "n", "on", "is_deleted"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("a", None, None, True), ("b", 3, True, False), ("c", None, None, False),
    ]  # fmt: skip
    errors = job.rows().sort_by("key")["body_error"].to_pylist()
    assert [error is None for error in errors] == [True, True, False], "a tombstone is none"
    with pytest.raises(ConfigError, match=r"made with buckets 3, not 4: say the same or nothing"):
        job.run(buckets=4)


def test_fields_named_like_columns_of_the_table_stay_in_the_body(job: Materializer) -> None:
    job.send(("a", b'{"bucket": 7, "is_deleted": true, "n": 1}'))
    assert job.run(body_format="json", infer_body=True).new_columns == ["n bigint"]
    with pytest.raises(ConfigError, match="'bucket' is a column of the table"):
        job.run(body_schema="bucket int")
    job.send(("b", b'{"bucket": 7}'))
    job.run(body_schema="json_bucket=bucket int")
    assert job.rows().sort_by("key")["json_bucket"].to_pylist() == [None, 7]


def test_rows_that_a_new_column_comes_after_have_no_value(job: Materializer) -> None:
    job.send(("a", b'{"n": 1}'), ("b", b'{"n": 2}'))
    job.run(body_format="json", body_schema="n bigint", buckets=1)
    job.send(("b", b'{"n": 3, "city": "Rome"}'))
    done = job.run(body_schema="city string", buckets=None)
    assert done.new_columns == ["city string"]
    rows = job.rows().sort_by("key").select(["n", "city"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, None), (3, "Rome")]


def test_buckets_without_changes_are_left_alone(job: Materializer) -> None:
    job.take(*((f"k{at}", b"1") for at in range(30)))
    before = {*Log(str(job.root)).file_uris()}
    assert len(before) == 3
    job.take(("k1", b"2"))
    assert len(before & {*Log(str(job.root)).file_uris()}) == 2


def test_a_file_of_another_writer_that_tells_no_bucket_is_refused(job: Materializer) -> None:
    job.take(("a", b"1"), ("b", b"1"))
    log = Log(str(job.root))
    theirs = AddAction("x7/part-0.parquet", 10, {"bucket": "1"}, 0, True, '{"numRecords":1}')
    log.create_write_transaction([theirs], "append", log.schema(), partition_by=["bucket"])
    before = Log(str(job.root)).version()
    job.send(("a", b"2"))
    with pytest.raises(ConfigError, match=r"in no bucket's directory \(part-0.parquet\)"):
        job.run()
    assert Log(str(job.root)).version() == before, "nothing was committed"


def test_a_key_that_moved_to_another_queue_is_counted(job: Materializer) -> None:
    job.send_to("broker-a", 0, ("a", b"1"))
    job.run()
    job.send_to("broker-b", 1, ("a", b"2"))
    assert job.run().moved == 1
    assert job.state() == {"a": b"2"}


def test_kept_rows_are_marked(job: Materializer) -> None:
    job.send(("a", b"1"), ("b", b"1"))
    job.run(deletes="keep")
    job.send(("a", b"null"))
    job.run(deletes="keep")
    rows = job.rows()
    marks = dict(zip(rows["key"].to_pylist(), rows["is_deleted"].to_pylist(), strict=True))
    assert marks == {"a": True, "b": False}


def test_messages_without_a_key_are_refused_with_their_place(job: Materializer) -> None:
    job.send_to("broker-a", 1, ("a", b"1"), (None, b"2"))
    with pytest.raises(NullKeys, match=r"^1 of .* no key, the first at broker-a, queue 1, off"):
        job.run()
    assert job.state() == {}, "nothing of the batch was committed"


def test_messages_without_a_key_may_be_quarantined(job: Materializer) -> None:
    for _ in range(2):
        job.send_to("broker-a", 1, ("a", b"1"), (None, b"2"), (None, b"2"))
        assert job.run(null_keys="quarantine").null_keys == 2
    rows = job.rows()
    keyless = rows.filter(pa.compute.is_null(rows["key"]))
    assert sorted(keyless["queue_offset"].to_pylist()) == [1, 2, 4, 5]
    assert keyless["bucket"].null_count == 4
    assert rows.num_rows == 5


def test_the_key_may_be_a_property(job: Materializer) -> None:
    rows = {"body": [b"1", b"2"], "properties": [[("id", "x")], [("id", "x")]]}
    types = {"body": pa.binary(), "properties": pa.map_(pa.string(), pa.string())}
    job.topic.send_rows("broker-a", 0, pa.RecordBatch.from_pydict(rows, schema=pa.schema(types)))
    job.run(key="property:id")
    assert job.state() == {"x": b"2"}


def test_tasks_that_ran_twice_count_once(job: Materializer) -> None:
    job.send(("a", b"1"), ("b", b"1"), ("a", b"2"))
    job.run(spark=job.eager(repeats=True))
    job.send(("b", b"null"), ("c", b"3"))
    job.run(spark=job.eager(repeats=True))
    assert job.state() == job.expected
    on_disk = {path.name for path in job.root.rglob("*.parquet")}
    log = Log(str(job.root))
    removed = log.vacuum(0, dry_run=True, enforce_retention_duration=False)
    assert on_disk == {Path(path).name for path in (*log.file_uris(), *removed)}, "no orphans"


@pytest.mark.parametrize("last_is_done", [False, True])
@pytest.mark.parametrize(
    "stride",
    [pytest.param(7, id="some steps"), pytest.param(1, id="every step", marks=pytest.mark.slow)],
)
def test_a_kill_at_any_step_loses_nothing_and_counts_nothing_twice(
    job: Materializer, monkeypatch: pytest.MonkeyPatch, last_is_done: bool, stride: int
) -> None:
    wanted = StateIdentity(topic="orders", buckets=3)
    job.take(*((f"k{at}", b"0") for at in range(6)))
    usual = materialize_job.open_state
    for steps in range(1, 70, stride):
        job.send((f"k{steps % 6}", b"%d" % steps), (f"k{(steps + 1) % 6}", b"null"))
        disk = CrashingDisk(steps, last_is_done=last_is_done)
        monkeypatch.setattr(
            materialize_job, "open_state", lambda _, disk=disk: StateTable(job.root, wanted, disk)
        )
        try:
            job.run()
        except Crash:
            monkeypatch.setattr(materialize_job, "open_state", usual)
            job.run()
            assert job.state() == job.expected
        else:
            assert steps > 8, "the disk never crashed"
            break
    else:
        raise AssertionError("more steps than expected")
    assert job.state() == job.expected


def test_a_run_that_dies_between_its_tasks_has_done_nothing(job: Materializer) -> None:
    job.take(("a", b"1"))
    job.send(("a", b"2"))

    class Dying(job.eager):  # type: ignore[misc, name-defined]
        def collect(self) -> Any:
            if self.jobs == 1:
                raise Crash
            return super().collect()

    with pytest.raises(Crash):
        job.run(spark=Dying())
    assert job.state() == {"a": b"1"}
    job.run()
    assert job.state() == {"a": b"2"}


@pytest.mark.spark_suite
def test_the_job_runs_on_spark(job: Materializer, spark: SparkSession) -> None:
    job.send(("a", b"1"), ("b", b"1"), ("c", b"1"))
    job.run(spark=spark)
    job.send(("a", b"2"), ("b", b"null"))
    done = job.run(spark=spark)
    assert (done.rows, done.changed, done.deleted) == (2, 1, 1)
    assert job.state() == job.expected == {"a": b"2", "c": b"1"}


def test_a_topic_made_anew_is_not_mixed_with_the_old_one(job: Materializer) -> None:
    job.take(("a", b"1"), ("a", b"2"))
    job.topic.recreate()
    job.send(("a", b"3"))
    with pytest.raises(DataLost, match="made anew"):
        job.run()
    assert job.state() == {"a": b"2"}


def test_a_topic_with_fewer_queues_goes_on_once_the_removed_ones_are_read(
    job: Materializer,
) -> None:
    for broker, queue_id in job.topic.queues:
        job.send_to(broker, queue_id, (f"{broker}{queue_id}", b"1"))
    job.run()
    job.send_to("broker-a", 1, ("late", b"1"))
    job.topic.resize(1)
    with pytest.raises(DataLost, match="was removed from the topic with messages up to offset 1"):
        job.run()
    job.topic.resize(2)
    job.run()
    assert job.state() == job.expected
    job.topic.resize(1)
    job.send_to("broker-a", 0, ("new", b"1"))
    assert job.run().rows == 1
    assert job.state() == job.expected


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"options": {"failOnDataLoss": "false"}}, "missed changes"),
        ({"options": {"tags": "red"}}, "'tags' is not allowed"),
        ({"null_keys": "drop"}, "refuse or quarantine"),
        ({"key": "id"}, "property:id"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    job: Materializer, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        job.run(**params)
    assert not (job.root / "_delta_log").exists()


def test_a_topic_that_is_not_there_makes_no_table(job: Materializer) -> None:
    with pytest.raises(UsageError):
        job.run(topic="nowhere")
    assert not job.root.exists()
