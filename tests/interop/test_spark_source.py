"""Topics of Apache RocketMQ as tables: batches, streams that start again, and its files."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from harness import genuine
from harness.java_client import JavaClient
from roquet.arrow.encode import encode
from roquet.client.blocking import Producer
from roquet.lake.schema import TYPES
from roquet.model.errors import ConfigError
from roquet.model.flags import SysFlag
from roquet.model.names import SCHEDULE_TOPIC
from roquet.model.topic import SubscriptionGroup
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.options import parse
from roquet.spark.source.batch import BatchReader
from roquet.spark.source.store_files import StoreFileReader, parse_store
from roquet.spark.source.stream import StreamReader
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.send import SendBatch, SendReply
from roquet.wire.fastjson.codec import dumps

pytestmark = pytest.mark.interop

BROKER: Final = "genuine-a"
PATIENCE_S: Final = 30
"""For what takes a moment, on a machine of two cores that has other work."""

Rows = list[dict[str, Any]]


class ApacheTopics:
    """Topics of an Apache broker, and their rows as Spark reads them."""

    def __init__(self, running: genuine.Genuine, channel: BlockingChannel) -> None:
        self.running, self.channel = running, channel
        self.namesrv = running.namesrv

    def make(self, topic: str, queues: int = 2) -> None:
        """A topic, or one with more queues than before; the name server knows it then."""
        self.channel.call(
            CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
        )
        until(lambda: len(self.ends(topic)) == queues)

    def send(self, topic: str, queue_id: int, *bodies: str, **columns: list[Any]) -> SendReply:
        """Messages to a queue, in one request; they are in it then, which takes a moment."""
        items = encode(pa.RecordBatch.from_pydict({"body": list(bodies), **columns}))
        call = SendBatch(
            batch=True,
            producer_group="tests",
            topic=topic,
            queue_id=queue_id,
            born_timestamp=1_700_000_000_000,
            body=b"".join(items.to_pylist()),
        )
        reply = self.channel.call(call)
        end = reply.queue_offset + len(bodies)
        until(lambda: self.ends(topic)[str(queue_id)] >= end)
        return reply

    def ends(self, topic: str) -> dict[str, int]:
        """Where the queues of a topic end."""
        offset = self.stream(topic, startingOffsets="latest").initialOffset()
        return dict(offset[topic][BROKER])

    def rows(self, topic: str = "", **options: str) -> Rows:
        """What a batch read gives, queue by queue."""
        topic_option = {"topic": topic} if topic else {}
        settings = parse({"namesrv": self.namesrv, **topic_option, **options}, {})
        return all_of(BatchReader(settings, settings.columns))

    def bodies(self, topic: str = "", **options: str) -> list[str]:
        """Bodies alone."""
        return [row["body"].decode() for row in self.rows(topic, columns="body", **options)]

    def stream(self, topic: str, **options: str) -> StreamReader:
        """What a query that begins, or starts again, reads with."""
        settings = parse({"namesrv": self.namesrv, "topic": topic, **options}, {})
        return StreamReader(settings, ("body",))


def all_of(reader: BatchReader | StoreFileReader) -> Rows:
    """All that the tasks of a batch read give."""
    batches = (batch for task in reader.partitions() for batch in reader.read(task))
    return [row for batch in batches for row in batch.to_pylist()]


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(PATIENCE_S * 10):
        with suppress(Exception):  # the topic is not there yet
            if is_so():
                return
        threading.Event().wait(0.1)
    raise AssertionError("it never was so")


@pytest.fixture(scope="module")
def there(theirs: genuine.Genuine) -> Iterator[ApacheTopics]:
    with closing(BlockingChannel(theirs.broker)) as channel:
        yield ApacheTopics(theirs, channel)


# -- batches ---------------------------------------------------------------------------------


def test_every_column_is_what_was_sent(there: ApacheTopics) -> None:
    there.make("SourceColumns")
    maps = pa.map_(pa.string(), pa.string())
    properties = pa.array([[("colour", "red")], [("colour", "blue")]], maps)
    before_ms = SYSTEM_CLOCK.now_ms()
    reply = there.send(
        *("SourceColumns", 1, "one", "two"),
        key=["k1", "k2"], tag=["new", "old"], message_id=["ID1", "ID2"], properties=properties,
    )  # fmt: skip
    columns_read = there.rows("SourceColumns", columns="*")
    assert list(columns_read[0]) == list(TYPES)
    for name, wanted in {
        "topic": ["SourceColumns"] * 2,
        "broker": [BROKER] * 2,
        "queue_id": [1, 1],
        "queue_offset": [0, 1],
        "body": [b"one", b"two"],
        "message_id": ["ID1", "ID2"],
        "key": ["k1", "k2"],
        "tag": ["new", "old"],
        "offset_message_id": reply.msg_id.split(","),
        "born_at": [datetime.fromtimestamp(1_700_000_000, UTC)] * 2,
        "message_type": ["normal"] * 2,
    }.items():
        assert [row[name] for row in columns_read] == wanted, name
    assert [dict(row["properties"])["colour"] for row in columns_read] == ["red", "blue"]
    stored = {round(row["stored_at"].timestamp() * 1000) for row in columns_read}
    assert before_ms <= min(stored) <= max(stored) <= SYSTEM_CLOCK.now_ms()


@pytest.fixture(scope="module")
def halves(there: ApacheTopics) -> str:
    """A topic: hundred messages in each of two queues, and later as many again."""
    topic = "SourceEdges"
    there.make(topic)
    for first in (0, 100):
        for queue_id in (0, 1):
            there.send(topic, queue_id, *(f"{queue_id}/{at}" for at in range(first, first + 100)))
        threading.Event().wait(0.05)
    return topic


def numbers(first: int, end: int, *queues: int) -> list[str]:
    return [f"{queue_id}/{at}" for queue_id in queues or (0, 1) for at in range(first, end)]


def test_all_is_read_also_by_several_tasks(there: ApacheTopics, halves: str) -> None:
    assert there.bodies(halves) == numbers(0, 200)
    assert there.bodies(halves, minPartitions="3") == numbers(0, 200)
    assert there.bodies(halves, startingOffsets="latest") == []


def test_offsets_say_where_a_read_begins_and_ends(there: ApacheTopics, halves: str) -> None:
    first, last = ({halves: {BROKER: {"0": at, "1": edge}}} for at, edge in ((20, -2), (-1, 30)))
    options = {"startingOffsets": json.dumps(first), "endingOffsets": json.dumps(last)}
    assert there.bodies(halves, **options) == numbers(20, 200, 0) + numbers(0, 30, 1)
    beyond = json.dumps({halves: {BROKER: {"0": 201}}})
    with pytest.raises(ConfigError, match="to be read from 201, but has messages up to 200"):
        there.bodies(halves, startingOffsets=beyond)


def test_a_time_is_found_to_the_message(there: ApacheTopics, halves: str) -> None:
    stored = {
        row["body"].decode(): round(row["stored_at"].timestamp() * 1000)
        for row in there.rows(halves, columns="body,stored_at")
    }
    later = [stored[f"{queue_id}/100"] for queue_id in (0, 1)]
    assert there.bodies(halves, startingTime=str(min(later))) == numbers(100, 200)
    assert there.bodies(halves, endingTime=str(min(later))) == numbers(0, 100)
    assert there.bodies(halves, startingTime=str(max(stored.values()) + 1)) == []
    assert there.bodies(halves, startingTime="-1 hour") == numbers(0, 200)


def test_a_groups_progress_is_a_place_to_begin(there: ApacheTopics, halves: str) -> None:
    group = "SourceBilling"
    there.channel.call(CreateGroup(body=dumps(SubscriptionGroup(group_name=group))))
    there.channel.call(
        UpdateOffset(consumer_group=group, topic=halves, queue_id=1, commit_offset=150)
    )
    wanted = numbers(0, 200, 0) + numbers(150, 200, 1)
    assert there.bodies(halves, startingOffsets=f"group:{group}") == wanted


def test_tags_and_properties_choose(there: ApacheTopics) -> None:
    there.make("SourceFilters", queues=1)
    maps = pa.map_(pa.string(), pa.string())
    count = 90
    colours = [("red", "blue", "green")[at % 3] for at in range(count)]
    properties = pa.array([[("number", str(at))] for at in range(count)], maps)
    bodies = [str(at) for at in range(count)]
    there.send("SourceFilters", 0, *bodies, tag=colours, properties=properties)
    bodies_read = there.bodies("SourceFilters", tags="red || green")
    assert bodies_read == [str(at) for at in range(count) if at % 3 != 1]
    bodies_read = there.bodies("SourceFilters", sql92="number >= 80 AND TAGS = 'blue'")
    assert bodies_read == [str(at) for at in range(80, count) if at % 3 == 1]
    assert there.bodies("SourceFilters", tags="white") == []


def test_a_pattern_is_of_all_that_match(there: ApacheTopics) -> None:
    for name in ("SourceMany1", "SourceMany2", "SourceOther"):
        there.make(name)
        there.send(name, 0, name)
    assert there.bodies(topicPattern="SourceMany.*") == ["SourceMany1", "SourceMany2"]
    assert there.bodies("SourceOther,SourceMany1") == ["SourceMany1", "SourceOther"]


async def test_what_java_compressed_is_read(there: ApacheTopics, java_member: JavaClient) -> None:
    there.make("SourceJava")
    body = "long" * 5_000
    await java_member.send(there.namesrv, "SourceJava", body)
    [row] = there.rows("SourceJava", columns="body,sys_flag")
    assert row["body"].decode() == body
    [raw] = there.rows("SourceJava", columns="body,sys_flag", decompress="false")
    assert raw["sys_flag"] & SysFlag.COMPRESSED
    assert len(raw["body"]) < 1_000


def test_messages_that_wait_say_what_they_are(there: ApacheTopics) -> None:
    there.make("SourceDelayed")
    with Producer(there.namesrv, group="tests") as producer:
        assert producer.send("SourceDelayed", b"later", delay_level=3).ok
    columns = "body,message_type,real_topic"
    waiting = there.rows(SCHEDULE_TOPIC, columns=columns)
    wanted = {"body": b"later", "message_type": "delay", "real_topic": "SourceDelayed"}
    assert wanted in waiting
    until(lambda: there.bodies("SourceDelayed") == ["later"])


# -- streams ---------------------------------------------------------------------------------


class Query:
    """A query as Spark runs it: a checkpoint, and readers that come and go."""

    def __init__(self, there: ApacheTopics, topic: str, **options: str) -> None:
        self._there, self._topic, self._options = there, topic, options
        self.kept: str = ""
        self.starts()
        self.kept = json.dumps(self.reader.initialOffset())

    def starts(self) -> None:
        """A first time, or again after a kill."""
        self.reader = self._there.stream(self._topic, **self._options)

    def rows(self, start: str, end: str) -> list[str]:
        """A batch."""
        tasks = self.reader.partitions(json.loads(start), json.loads(end))
        batches = (batch for task in tasks for batch in self.reader.read(task))
        return sorted(row["body"].decode() for batch in batches for row in batch.to_pylist())

    def batch(self) -> list[str]:
        """The next one, done and noted."""
        start, end = self.kept, self.plan()
        batch_rows = self.rows(start, end)
        self.kept = end
        self.reader.commit(json.loads(end))
        return batch_rows

    def plan(self) -> str:
        """Where the next one ends."""
        before, limit = json.loads(self.kept), self.reader.getDefaultReadLimit()
        return json.dumps(self.reader.latestOffset(before, limit))


def test_a_stream_continues_and_repeats_a_lost_batch(there: ApacheTopics) -> None:
    there.make("SourceStream")
    query = Query(there, "SourceStream", maxOffsetsPerTrigger="40")
    there.send("SourceStream", 0, *numbers(0, 60, 0))
    assert query.batch() == sorted(numbers(0, 40, 0))
    planned = query.plan()  # Spark has noted it, and is killed
    before = query.rows(query.kept, planned)
    there.send("SourceStream", 1, *numbers(0, 5, 1))
    query.starts()
    assert query.rows(query.kept, planned) == before == sorted(numbers(40, 60, 0))
    query.kept = planned
    assert query.batch() == numbers(0, 5, 1)
    assert query.plan() == query.kept, "nothing new"


def test_a_stream_finds_new_queues(there: ApacheTopics) -> None:
    there.make("SourceGrows", queues=1)
    query = Query(there, "SourceGrows")
    there.make("SourceGrows", queues=3)
    there.send("SourceGrows", 2, "first of a new queue")
    bodies: list[str] = []

    def is_there() -> bool:
        bodies.extend(query.batch())
        return bool(bodies)

    until(is_there)
    assert bodies == ["first of a new queue"]


def test_available_now_ends_with_what_was_there(there: ApacheTopics) -> None:
    there.make("SourceNow")
    there.send("SourceNow", 0, *numbers(0, 50, 0))
    query = Query(there, "SourceNow", maxOffsetsPerTrigger="30")
    query.reader.prepareForTriggerAvailableNow()
    there.send("SourceNow", 0, "too late")
    assert [len(query.batch()) for _ in range(3)] == [30, 20, 0]


def test_mqadmin_sees_how_far_a_stream_is(there: ApacheTopics, tmp_path: Path) -> None:
    there.make("SourceSeen")
    query = Query(there, "SourceSeen", publishProgress="SourceLake")
    for queue_id in (0, 1):
        there.send("SourceSeen", queue_id, *numbers(0, 10, queue_id))
    query.batch()
    there.send("SourceSeen", 0, *numbers(10, 13, 0))
    words = ("consumerProgress", "-g", "SourceLake", "-n", there.namesrv)
    command = genuine.java("tools.command.MQAdminStartup", *words, heap="128m")
    output = genuine.run(command, seconds=60, home=tmp_path / "h")
    rows = [line.split() for line in output.splitlines() if line.startswith("SourceSeen")]
    ends = {row[2]: tuple(map(int, row[3:5])) for row in rows}
    assert ends == {"0": (13, 10), "1": (10, 10)}, output
    assert "Consume Diff Total: 3" in output


# -- files -----------------------------------------------------------------------------------


def test_files_in_use_and_a_copy_of_them_are_the_topic(there: ApacheTopics, tmp_path: Path) -> None:
    there.make("SourceFiles")
    for queue_id in (0, 1):
        there.send("SourceFiles", queue_id, *numbers(0, 100, queue_id), key=["k"] * 100)
    columns = "queue_id,queue_offset,position,body,key,properties,stored_at,offset_message_id"
    wanted = there.rows("SourceFiles", columns=columns)
    assert len(wanted) == 200

    def held(folder: Path) -> Rows:
        options = {"store": str(folder), "topic": "SourceFiles", "columns": columns}
        fields = [(name, TYPES[name]) for name in columns.split(",")]
        rows_read = all_of(StoreFileReader(parse_store(options, 0), fields))
        return sorted(rows_read, key=lambda row: (row["queue_id"], row["queue_offset"]))

    assert held(there.running.store) == wanted
    log = there.running.store / "commitlog"
    subprocess.run(["cp", "-r", "--sparse=always", str(log), str(tmp_path / "copy")], check=True)
    assert held(tmp_path / "copy") == wanted
