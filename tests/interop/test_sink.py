"""Rows sunk into Apache RocketMQ: batches, delays, order, and transactions after every death."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness import genuine
from roquet.lake.queue_offsets import ranges
from roquet.model.names import CHECK_MAX_TIME_TOPIC
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions
from roquet.spark.sink.commit import commit, commit_record, finish_decided, open_committer, refs_at
from roquet.spark.sink.commit_records import CommitRecords, concat, from_bytes
from roquet.spark.sink.locked_journals import LockedDirectory
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.row_encoder import PartitionOrigin
from roquet.spark.sink.task import send_partition
from roquet.wire.calls.admin.topic import CreateTopic

pytestmark = pytest.mark.interop

COLUMNS = ("queue_id", "queue_offset", "body", "properties")
BODIES = [b"%03d" % at for at in range(50)]


class ImpatientApacheBroker:
    """An Apache broker that soon discards half messages that nobody ends."""

    def __init__(self, running: genuine.Genuine) -> None:
        self.running = running

    def options(self, topic: str, **settings: Any) -> SinkOptions:
        with BlockingChannel(self.running.broker) as channel:
            channel.call(CreateTopic(topic=topic, read_queue_nums=4, write_queue_nums=4, perm=6))
        wait_until(lambda: self.read(topic) is not None)
        return SinkOptions(namesrv=(self.running.namesrv,), topic=topic, **settings)

    def read(self, topic: str) -> list[dict[str, Any]]:
        settings = SourceOptions(namesrv=(self.running.namesrv,), topics=(topic,))
        cluster = ClusterClient(settings)
        pieces = ranges(cluster.earliest(), cluster.latest())
        batches = RangeReader(cluster, COLUMNS).batches(pieces)
        return [row for batch in batches for row in batch.to_pylist()]

    def bodies(self, topic: str) -> list[bytes]:
        return sorted(row["body"] for row in self.read(topic))


def wait_until(is_so: Callable[[], object], seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.2)):
        try:
            if is_so():
                return
        except Exception:  # the topic is not there yet
            pass
        threading.Event().wait(0.2)
    raise AssertionError("it never was so")


@pytest.fixture(scope="module")
def theirs(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImpatientApacheBroker]:
    settings = {
        "transactionCheckInterval": "3000",
        "transactionTimeOut": "1000",
        "transactionCheckMax": "1",
    }
    with genuine.cluster(tmp_path_factory.mktemp("genuine"), **settings) as running:
        yield ImpatientApacheBroker(running)


def send_rows(options: SinkOptions, **columns: Any) -> bytes:
    batch = pa.RecordBatch.from_pydict({"body": BODIES, **columns})
    return send_partition(iter([batch]), options, batch.schema.names, PartitionOrigin("q", 0, 0))[1]


def test_batches_near_the_limit_are_taken(theirs: ImpatientApacheBroker) -> None:
    options = theirs.options("Batches", batch_bytes=4 * 1024 * 1024 - 64 * 1024)
    small = pa.RecordBatch.from_pydict({"body": [b"x"] * 30_000, "key": ["k"] * 30_000})
    large = pa.RecordBatch.from_pydict({"body": [b"y" * 200_000] * 40, "key": ["k"] * 40})
    send_partition(iter([small, large]), options, ["body", "key"], PartitionOrigin("q", 0, 0))
    wait_until(lambda: len(theirs.read("Batches")) == 30_040)


def test_the_largest_body_and_a_delayed_one_go_alone(theirs: ImpatientApacheBroker) -> None:
    options = theirs.options("Alone")
    body = b"z" * (4 * 1024 * 1024)
    batch = pa.RecordBatch.from_pydict({"body": [b"a", body, b"b"], "delay_level": [0, 0, 1]})
    send_partition(iter([batch]), options, batch.schema.names, PartitionOrigin("q", 0, 0))
    wait_until(lambda: theirs.bodies("Alone") == [b"a", b"b", body])


def test_rows_of_one_order_key_stay_in_their_order(theirs: ImpatientApacheBroker) -> None:
    send_rows(theirs.options("Ordered", batch_bytes=1_024), order_key=["a", "b"] * 25)
    wait_until(lambda: len(theirs.read("Ordered")) == 50)
    lines: dict[str, list[bytes]] = {}
    for row in sorted(theirs.read("Ordered"), key=lambda row: row["queue_offset"]):
        lines.setdefault(dict(row["properties"])["__SHARDINGKEY"], []).append(row["body"])
    assert lines == {"a": BODIES[0::2], "b": BODIES[1::2]}


def transactional(
    theirs: ImpatientApacheBroker, topic: str, folder: Path, time_ms: int = 600_000
) -> SinkOptions:
    return theirs.options(
        topic, transactional=True, commits=str(folder), transaction_time_ms=time_ms
    )


def leave_killed_driver(options: SinkOptions, ended: int) -> None:
    """Leave the state of a driver that is killed after so many commits."""
    table = concat([from_bytes(send_rows(options))])
    record = commit_record(options, "q", 0, table)
    CommitRecords(LockedDirectory(Path(options.commits or ""))).write(record)
    with open_committer(options, options.group, 20_000) as (wait, committer):
        wait(committer.commit(refs_at(table, range(ended))))


def test_a_commit_shows_all_rows(theirs: ImpatientApacheBroker, tmp_path: Path) -> None:
    options = transactional(theirs, "Committed", tmp_path)
    halves = send_rows(options)
    assert theirs.bodies("Committed") == []
    commit(options, "q", 0, [halves])
    wait_until(lambda: theirs.bodies("Committed") == BODIES)


def test_a_driver_that_died_half_way_is_finished_without_doubles(
    theirs: ImpatientApacheBroker, tmp_path: Path
) -> None:
    options = transactional(theirs, "HalfWay", tmp_path)
    leave_killed_driver(options, 20)
    finish_decided(options)
    wait_until(lambda: len(theirs.bodies("HalfWay")) >= 50)
    assert theirs.bodies("HalfWay") == BODIES


def test_rows_of_discarded_half_messages_are_visible_once(
    theirs: ImpatientApacheBroker, tmp_path: Path
) -> None:
    options = transactional(theirs, "GivenUp", tmp_path, time_ms=1_000)
    leave_killed_driver(options, 20)
    prefix = "q/0/0/"

    def given_up() -> int:
        properties_list = [dict(row["properties"]) for row in theirs.read(CHECK_MAX_TIME_TOPIC)]
        return sum(
            row.get("ROQUET_ROW", "").startswith(prefix) and row.get("REAL_TOPIC") == "GivenUp"
            for row in properties_list
        )

    wait_until(lambda: given_up() >= 30)
    finish_decided(options)
    wait_until(lambda: len(theirs.bodies("GivenUp")) >= 50)
    assert theirs.bodies("GivenUp") == BODIES
