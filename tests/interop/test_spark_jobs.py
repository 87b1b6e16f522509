"""The jobs on topics of Apache RocketMQ: archived, replayed, repaired, watched and audited."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from harness import genuine
from harness.processes import Process
from roquet.arrow.encode import encode
from roquet.arrow.records import SCHEMA
from roquet.lake.lag import lag_job
from roquet.lake.lag.trends import LagState
from roquet.lake.queue_offsets import ranges
from roquet.lake.snapshot import read_snapshot
from roquet.model.errors import CallTimeout
from roquet.model.topic import SubscriptionGroup
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.dispatch_wait import wait_for_dispatch
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.jobs import exactly_once_sender
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.audit import audit_job
from roquet.spark.jobs.repair import repair_job
from roquet.spark.jobs.repair.letter_table import read_letters
from roquet.spark.jobs.replay import replay_job, replay_plan
from roquet.spark.options import SourceOptions
from roquet.wire.call import Call
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.send import SendBack, SendBatch, SendReply
from roquet.wire.fastjson.codec import dumps

pytestmark = pytest.mark.interop

BROKER: Final = "genuine-a"
KINDS: Final = ("delta", "iceberg")
PATIENCE_S: Final = 60
"""For what takes a moment, on a machine of two cores that has other work."""

COLUMNS: Final = (
    *("queue_id", "queue_offset", "body", "keys", "tag", "properties", "message_id"),
    *("position", "offset_message_id", "reconsume_times"),
)


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class InProcessSpark:
    """A Spark session with only what jobs use; tasks run when their results are collected."""

    def range(self, _start: int, end: int, _step: int, _parts: int) -> "InProcessSpark":
        self._count = end
        return self

    def mapInArrow(self, work: Work, _schema: str) -> "InProcessSpark":  # noqa: N802
        self._work = work
        return self

    def collect(self) -> list[dict[str, Any]]:
        numbers = (pa.RecordBatch.from_pydict({"id": [at]}) for at in range(self._count))
        return [row for answer in self._work(numbers) for row in answer.to_pylist()]


spark: Any = InProcessSpark


class ApacheTopics:
    """Topics of an Apache broker."""

    def __init__(self, running: genuine.Genuine) -> None:
        self.running = running
        self.options = {"namesrv": running.namesrv, "timeout": "60s"}
        self._channels: dict[str, BlockingChannel] = {}
        """Jobs may run in a thread of their own, and have their own."""

    def call(self, call: Call[Any]) -> Any:
        """What the broker answers."""
        address = self.running.broker
        if address not in self._channels:
            self._channels[address] = BlockingChannel(address)
        return self._channels[address].call(call)

    def close(self) -> None:
        """Connections that there are."""
        while self._channels:
            self._channels.popitem()[1].close()

    def make(self, topic: str, queues: int = 2) -> None:
        """A topic that the name server knows of."""
        self.call(CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6))
        until(lambda: len(self.cluster(topic).latest()) == queues)

    def send(
        self, topic: str, queue_id: int, first: int, count: int, *, waits: bool = True
    ) -> SendReply:
        """So many messages to a queue in one request, and a wait until they are in it."""
        numbers = range(first, first + count)
        items = encode(
            pa.RecordBatch.from_pydict(
                {
                    "body": [f"{queue_id}/{at}" for at in numbers],
                    "key": [f"k{at}" for at in numbers],
                    "tag": [("red", "blue")[at % 2] for at in numbers],
                    "order_key": [f"order {at % 7}" for at in numbers],
                }
            )
        )
        call = SendBatch(
            batch=True,
            producer_group="tests",
            topic=topic,
            queue_id=queue_id,
            born_timestamp=1_700_000_000_000,
            body=b"".join(items.to_pylist()),
        )
        reply: SendReply = self.call(call)
        end = reply.queue_offset + count
        if waits:
            until(lambda: self.cluster(topic).latest()[topic, BROKER, queue_id] >= end)
        return reply

    def cluster(self, topic: str) -> ClusterClient:
        settings = SourceOptions(namesrv=(self.running.namesrv,), topics=(topic,))
        return ClusterClient(settings, channels=self._channels)

    def rows(self, topic: str) -> pa.Table:
        """What a topic holds, queue by queue."""
        cluster = self.cluster(topic)
        pieces = ranges(cluster.earliest(), cluster.latest())
        schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
        return pa.Table.from_batches(RangeReader(cluster, COLUMNS).batches(pieces), schema)

    def messages(self, topic: str) -> list[tuple[Any, ...]]:
        """The place, the body, the keys, the tag and the order key of each message."""
        rows = self.rows(topic)
        order_keys = property_values(rows, "__SHARDINGKEY")
        rows_read = rows.select(["queue_id", "queue_offset", "body", "keys", "tag"]).to_pylist()
        return [(*row.values(), key) for row, key in zip(rows_read, order_keys, strict=True)]

    def archive(self, topic: str, root: Path, **params: Any) -> archive_job.ArchiveProgress:
        options = {**self.options, **params.pop("options", {})}
        parameters = archive_job.Params(topic=topic, target=str(root), options=options, **params)
        return archive_job.run(parameters, spark)

    def audit(self, topic: str, root: Path) -> Any:
        return audit_job.run(audit_job.Params(topic=topic, target=str(root), options=self.options))

    def replay(self, root: Path, topic: str, **params: Any) -> replay_job.ReplayProgress:
        parameters = {"source": str(root), "topic": topic, "options": self.options, "tasks": 2}
        return replay_job.run(replay_plan.Params(**{**parameters, **params}), spark)


def property_values(rows: pa.Table, name: str) -> list[str | None]:
    """A property of each row."""
    rows_read = pc.map_lookup(rows["properties"].combine_chunks(), name, "first")
    return [None if one is None else str(one) for one in rows_read.to_pylist()]


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(PATIENCE_S * 20):
        with suppress(Exception):  # the topic is not there yet
            if is_so():
                return
        threading.Event().wait(0.05)
    raise AssertionError("it never was so")


@pytest.fixture(scope="module")
def there(theirs: genuine.Genuine) -> Iterator[ApacheTopics]:
    with closing(ApacheTopics(theirs)) as their_side:
        yield their_side


@pytest.fixture(scope="module")
def orders(there: ApacheTopics) -> str:
    """A topic: two hundred messages in each of three queues."""
    there.make("JobOrders", queues=3)
    for first in (0, 120):
        for queue_id in range(3):
            there.send("JobOrders", queue_id, first, 120 if not first else 80)
    return "JobOrders"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def places(root: Path, topic: str) -> list[tuple[int, int, bytes]]:
    """The place and the body of each row of a table, whatever its kind."""
    tables = [pq.ParquetFile(path).read() for path in read_snapshot(str(root), topic).paths]
    rows = pa.concat_tables(
        [table.select(["queue_id", "queue_offset", "body"]) for table in tables]
    )
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def archived(root: Path, topic: str) -> int:
    """How many rows it has."""
    return sum(
        pq.ParquetFile(path).metadata.num_rows for path in read_snapshot(str(root), topic).paths
    )


# -- archive and audit -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_is_archived_and_audited_and_a_second_run_adds_what_is_new(
    there: ApacheTopics, lake: Path, kind: str
) -> None:
    topic = f"Job-{kind}"
    there.make(topic)
    for queue_id in (0, 1):
        there.send(topic, queue_id, 0, 100)
    assert (
        there.archive(topic, lake, kind=kind, options={"maxOffsetsPerTrigger": "150"}).rows == 200
    )
    assert there.archive(topic, lake, kind=kind).rows == 0
    there.send(topic, 1, 100, 20)
    assert there.audit(topic, lake).waiting == 20
    assert there.archive(topic, lake, kind=kind).rows == 20
    assert places(lake, topic) == [row[:3] for row in there.messages(topic)]
    report = there.audit(topic, lake)
    assert (report.is_clean, report.rows, report.in_topic) == (True, 220, 220)
    _damage(lake)
    findings = [(one.what, one.queue_id, one.offsets) for one in there.audit(topic, lake).findings]
    assert findings == [
        ("missing", 0, "7"),
        ("doubled", 0, "50"),
        ("missing", 0, "99"),
        ("missing", 1, "0"),
        ("doubled", 1, "119"),
    ]


def _damage(root: Path) -> None:
    """Three rows removed, and two doubled, as somebody with an editor would."""
    for path in sorted(root.rglob("*.parquet")):
        rows = pq.ParquetFile(path).read()
        twice = rows.filter(pc.or_(_at(rows, 0, 50), _at(rows, 1, 119)))
        gone = pc.or_(_at(rows, 0, 7, 99), _at(rows, 1, 0))
        pq.write_table(pa.concat_tables([rows.filter(pc.invert(gone)), twice]), path)


def _at(rows: pa.Table, queue_id: int, *offsets: int) -> Any:
    is_wanted = pc.is_in(rows["queue_offset"], pa.array(offsets, pa.int64()))
    return pc.and_(pc.equal(rows["queue_id"], queue_id), is_wanted)


def test_an_archive_goes_on_when_its_broker_was_killed_and_came_back(
    java: None, tmp_path: Path, lake: Path
) -> None:
    folder = tmp_path / "genuine"
    with genuine.cluster(folder) as running, closing(ApacheTopics(running)) as there:
        there.make("JobRestart")
        there.send("JobRestart", 0, 0, 300)
        ended = threading.Event()
        params = archive_job.Params(
            topic="JobRestart", target=str(lake), options=there.options, every_ms=100
        )
        with ThreadPoolExecutor(1) as pool:
            archiving = pool.submit(archive_job.run, params, spark, should_stop=ended.is_set)
            try:
                until(lambda: archived(lake, "JobRestart") == 300)
                with killed_and_back(there, folder):
                    for first in range(300, 900, 200):
                        there.send("JobRestart", 0, first, 200)
                        there.send("JobRestart", 1, first, 200)
                    until(lambda: archived(lake, "JobRestart") == 1_500 or archiving.done())
                    ended.set()
                    assert archiving.result().rows == 1_500
                    wanted = [row[:3] for row in there.messages("JobRestart")]
                    assert places(lake, "JobRestart") == wanted
                    assert there.audit("JobRestart", lake).is_clean
            finally:
                ended.set()


@contextmanager
def killed_and_back(there: ApacheTopics, folder: Path) -> Iterator[None]:
    """Its broker is killed, and then there again on the same files, until the block ends."""
    os.kill(there.running.pid, signal.SIGKILL)
    there.close()
    host, port = there.running.broker.split(":")

    def is_gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0

    until(is_gone)
    command = genuine.java("broker.BrokerStartup", "-c", str(folder / "broker.conf"), heap="1g")
    log, home = folder / "again.log", folder / "home-b"
    with Process(command, log, ready="boot success", home=home) as child:
        until(lambda: bool(there.cluster("JobRestart").latest()))
        yield
        there.close()
        child.kill()  # in good order it takes ten seconds


# -- replay ----------------------------------------------------------------------------------


def test_a_batch_is_answered_with_the_offset_of_its_first_message(there: ApacheTopics) -> None:
    there.make("JobBatches")
    replies = [there.send("JobBatches", 1, first, 5) for first in (0, 5)]
    assert [reply.queue_offset for reply in replies] == [0, 5]
    ids = [one for reply in replies for one in reply.msg_id.split(",")]
    assert there.rows("JobBatches")["offset_message_id"].to_pylist() == ids


def test_acknowledged_messages_are_in_their_queue_after_dispatch(there: ApacheTopics) -> None:
    there.make("JobBehind", queues=1)
    for first in range(0, 20_000, 1_000):
        reply = there.send("JobBehind", 0, first, 1_000, waits=False)
        wait_for_dispatch(there.cluster("JobBehind"), BROKER)
        assert there.cluster("JobBehind").latest() == {("JobBehind", BROKER, 0): first + 1_000}
        assert reply.queue_offset == first


def test_a_replay_copies_the_topic_once(there: ApacheTopics, orders: str, lake: Path) -> None:
    there.archive(orders, lake)
    there.make("JobAgain", queues=3)
    assert there.replay(lake, "JobAgain") == replay_job.ReplayProgress(rows=600)
    assert there.messages("JobAgain") == there.messages(orders), "each message in its old place"
    assert there.replay(lake, "JobAgain") == replay_job.ReplayProgress(there=600)
    sources = property_values(there.rows("JobAgain"), "ROQUET_FROM")
    assert sources == [f"{orders}/{BROKER}/{row[0]}/{row[1]}" for row in there.messages(orders)]
    assert len(there.messages("JobAgain")) == 600


def test_a_replay_into_fewer_queues_keeps_the_order_of_each(
    there: ApacheTopics, orders: str, lake: Path
) -> None:
    there.archive(orders, lake)
    there.make("JobNarrow", queues=1)
    assert there.replay(lake, "JobNarrow", keys=("k5", "k6", "k150")).rows == 9
    assert there.replay(lake, "JobNarrow").rows == 591
    lines: dict[bytes, list[int]] = {}
    for row in there.messages("JobNarrow")[9:]:
        queue, _, number = row[2].partition(b"/")
        lines.setdefault(queue, []).append(int(number))
    wanted = [at for at in range(200) if at not in (5, 6, 150)]
    assert lines == {b"0": wanted, b"1": wanted, b"2": wanted}


def losing(fates: Mapping[int, str]) -> Callable[..., Any]:
    """The answer to the so-many-th batch gets lost, or the batch does."""
    ask, count = ClusterClient.ask_once, 0

    def reply_to(self: ClusterClient, broker: str, call: Call[Any]) -> Any:
        nonlocal count
        if not isinstance(call, SendBatch):
            return ask(self, broker, call)
        count += 1
        fate = fates.get(count, "")
        if fate == "never sent":
            raise CallTimeout("it never came")
        reply = ask(self, broker, call)
        if fate == "answer":
            raise CallTimeout("its answer never came")
        if fate == "killed":
            raise KeyboardInterrupt
        return reply

    return reply_to


def test_lost_replies_duplicate_nothing(
    there: ApacheTopics, orders: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.archive(orders, lake)
    there.make("JobLossy", queues=3)
    monkeypatch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 40)
    monkeypatch.setattr(exactly_once_sender, "RETRY_PAUSE_MS_MAX", 1)
    fates = {at: ("answer", "never sent", "answer", "")[at % 4] for at in range(100)}
    monkeypatch.setattr(ClusterClient, "ask_once", losing(fates))
    assert there.replay(lake, "JobLossy") == replay_job.ReplayProgress(rows=600)
    assert there.messages("JobLossy") == there.messages(orders)


def test_a_replay_that_dies_is_ended_by_the_next(
    there: ApacheTopics, orders: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.archive(orders, lake)
    there.make("JobDying", queues=3)
    monkeypatch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 40)
    for last in (1, 4, 6):
        with monkeypatch.context() as patch:
            patch.setattr(ClusterClient, "ask_once", losing({last: "killed"}))
            with pytest.raises(KeyboardInterrupt):
                there.replay(lake, "JobDying")
    done = there.replay(lake, "JobDying")
    assert (done.rows + done.there, done.doubled) == (600, 0)
    assert there.messages("JobDying") == there.messages(orders)


# -- repair ----------------------------------------------------------------------------------


class FailingGroup:
    """A topic, a group whose members fail, and the table of its dead letters."""

    topic, group = "JobBills", "JobBilling"

    def __init__(self, there: ApacheTopics, root: Path) -> None:
        self.there, self.root = there, root
        there.make(self.topic)
        there.call(CreateGroup(body=dumps(SubscriptionGroup(group_name=self.group))))
        there.send(self.topic, 1, 0, 6)

    def fail(self, topic: str, row: dict[str, Any], tries_max: int) -> None:
        """What a member tells the broker of a message that it failed on."""
        self.there.call(
            SendBack(
                offset=row["position"],
                group=self.group,
                delay_level=0,
                origin_msg_id=row["offset_message_id"],
                origin_topic=topic,
                max_reconsume_times=tries_max,
            )
        )

    def rows(self, topic: str, count: int) -> list[dict[str, Any]]:
        """What a topic holds, once it is so many messages."""
        until(lambda: self.there.rows(topic).num_rows >= count)
        return list(self.there.rows(topic).to_pylist())

    def repair(self, **params: Any) -> repair_job.RepairProgress:
        options, root = self.there.options, str(self.root)
        parameters = repair_job.Params(group=self.group, directory=root, options=options, **params)
        return repair_job.run(parameters, spark)

    @property
    def letters(self) -> list[dict[str, Any]]:
        rows_read = read_letters(self.root).sort_by([("body", "ascending")])
        return list(rows_read.to_pylist())


def test_dead_letters_are_a_table_and_chosen_ones_go_again_once(
    there: ApacheTopics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic = FailingGroup(there, tmp_path / "letters")
    sent = clinic.rows(clinic.topic, 6)
    for row in sent[:2]:
        clinic.fail(clinic.topic, row, 0)
    clinic.fail(clinic.topic, sent[2], 1)
    retried = f"%RETRY%{clinic.group}"
    [row] = clinic.rows(retried, 1)
    clinic.fail(retried, row, 1)
    clinic.rows(f"%DLQ%{clinic.group}", 3)

    assert clinic.repair(tries_max=1) == repair_job.RepairProgress(letters=3, new=3)
    letters = clinic.letters
    assert [one["body"] for one in letters] == [b"1/0", b"1/1", b"1/2"]
    assert [one["origin_topic"] for one in letters] == [clinic.topic] * 3
    assert [one["origin_id"] for one in letters] == [row["message_id"] for row in sent[:3]]
    assert [one["tries"] for one in letters] == [1, 1, 2]
    assert [one["reason"] for one in letters] == [
        "given up after 1 failure",
        "given up after 1 failure",
        "failed 2 times, no try was left",
    ]

    ids = tuple(one["letter_id"] for one in letters)
    monkeypatch.setattr(exactly_once_sender, "RETRY_PAUSE_MS_MAX", 1)
    monkeypatch.setattr(ClusterClient, "ask_once", losing({1: "answer"}))
    done = clinic.repair(resend=True, ids=(ids[0], sent[2]["message_id"]))
    assert (done.chosen, done.sent, done.lost, done.new) == (2, 2, 0, 0)
    done = clinic.repair(resend=True, ids=ids)
    assert (done.chosen, done.sent, done.before) == (3, 1, 2)
    again = [row for row in clinic.rows(clinic.topic, 9) if row not in sent]
    assert sorted(row["body"] for row in again) == [b"1/0", b"1/1", b"1/2"]
    assert sorted(row["keys"] for row in again) == ["k0", "k1", "k2"]
    froms = {dict(row["properties"])["ROQUET_FROM"] for row in again}
    assert froms == set(ids)


# -- lag -------------------------------------------------------------------------------------


def test_groups_are_watched(there: ApacheTopics, tmp_path: Path) -> None:
    there.make("JobWatched")
    for queue_id in (0, 1):
        there.send("JobWatched", queue_id, 0, 50)
    for group, offset in (("JobSlow", 20), ("JobDone", 50)):
        there.call(CreateGroup(body=dumps(SubscriptionGroup(group_name=group))))
        for queue_id in (0, 1):
            there.call(
                UpdateOffset(
                    consumer_group=group,
                    topic="JobWatched",
                    queue_id=queue_id,
                    commit_offset=offset,
                )
            )
    target, namesrv = str(tmp_path / "lag"), there.running.namesrv
    done = lag_job.run(lag_job.Params(target=target, namesrv=namesrv, every_ms=100, for_ms=500))
    assert done.samples == 6
    rows = lag_job.read_samples(tmp_path / "lag").to_pylist()
    names = ("group", "queue_id", "begin", "committed", "end", "lag")
    lag_rows = {tuple(row[name] for name in names) for row in rows if row["topic"] == "JobWatched"}
    slow = {("JobSlow", queue_id, 0, 20, 50, 30) for queue_id in (0, 1)}
    assert lag_rows == slow | {("JobDone", queue_id, 0, 50, 50, 0) for queue_id in (0, 1)}
    states = {one.group: one.outlook for one in done.standings if one.topic == "JobWatched"}
    assert (states["JobSlow"].state, states["JobSlow"].lag) == (LagState.STOPPED, 60)
    assert (states["JobDone"].state, states["JobDone"].lag) == (LagState.CAUGHT_UP, 0)
    assert states["JobSlow"].cut_off_s is not None, "the broker tells how long it keeps messages"
