"""Transaction commit: a decided batch becomes visible once and completely, after any kill."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.sink.conftest import SinkCluster, write_rows

from roquet.lake.queue_offsets import OffsetsJson
from roquet.model.errors import CallTimeout, RecordError, StoreError
from roquet.spark.access_options import AccessOptions
from roquet.spark.sink.commit import (
    abort,
    commit,
    commit_record,
    decided_batches,
    finish_batch,
    finish_decided,
    open_committer,
    refs_at,
    roll_back,
)
from roquet.spark.sink.commit_half_messages import CommitOutcome, HalfMessageRef
from roquet.spark.sink.commit_records import (
    PARTITION_SHIFT,
    SCHEMA,
    CommitRecord,
    CommitRecords,
    concat,
    from_bytes,
    to_bytes,
)
from roquet.spark.sink.locked_journals import LockedDirectory
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.visibility import VisibilityReader, VisibleRows
from roquet.testing.cluster import BlockingCluster
from roquet.wire.signing import Credentials

BODIES = [f"{at:03d}".encode() for at in range(60)]


class Transaction:
    """Batch 0 of a query that writes to a topic of its own."""

    def __init__(self, cluster: SinkCluster, topic: str, folder: Path, **settings: Any) -> None:
        self.cluster, self.topic = cluster, topic
        self.options = cluster.transaction(topic, str(folder), **settings)
        self.records = CommitRecords(LockedDirectory(folder))

    def send(self, **columns: Any) -> list[bytes]:
        return [write_rows(self.options, **{"body": BODIES, **columns})[1]]

    def commit(self, halves: list[bytes]) -> None:
        commit(self.options, "q", 0, halves, quiet_ms=0)

    def finish(self) -> None:
        finish_decided(self.options, quiet_ms=0)

    def decide_and_die(self, halves: list[bytes]) -> CommitRecord:
        """Leave what a driver does that is killed right after its decision."""
        record = commit_record(self.options, "q", 0, concat(map(from_bytes, halves)))
        self.records.write(record)
        return record

    def commit_some(self, record: CommitRecord, count: int) -> Any:
        with open_committer(self.options, self.options.group, 5_000) as (wait, committer):
            return wait(committer.commit(refs_at(record.halves, range(count))))

    @property
    def bodies(self) -> list[bytes]:
        return self.cluster.bodies(self.topic)


@pytest.fixture
def batch(sink_cluster: SinkCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Transaction:
    return Transaction(sink_cluster, request.node.name[:100], tmp_path)


def test_a_commit_shows_all_rows_and_marks_the_batch_done(batch: Transaction) -> None:
    halves = batch.send()
    assert batch.bodies == []
    batch.commit(halves)
    assert batch.bodies == BODIES
    assert decided_batches(batch.options) == {"q": {0}}
    assert batch.records.open() == []


def test_an_abort_shows_nothing_ever(batch: Transaction) -> None:
    halves = batch.send()
    abort(batch.options, "q", 0, halves)
    outcomes = batch.commit_some(batch.decide_and_die(halves), 60)
    assert {outcome.name for outcome in outcomes.values()} == {"REFUSED"}
    assert batch.bodies == []


def test_an_abort_after_the_decision_changes_nothing(batch: Transaction) -> None:
    halves = batch.send()
    batch.decide_and_die(halves)
    abort(batch.options, "q", 0, halves)
    batch.finish()
    assert batch.bodies == BODIES


def test_a_driver_that_died_half_way_is_finished_without_doubles(batch: Transaction) -> None:
    batch.commit_some(batch.decide_and_die(batch.send()), 25)
    assert batch.bodies == BODIES[:25]
    for _ in range(2):
        batch.finish()
        assert batch.bodies == BODIES


def test_a_repeated_batch_is_finished_and_its_new_half_messages_are_rolled_back(
    batch: Transaction,
) -> None:
    batch.decide_and_die(batch.send())
    for _ in range(2):
        batch.commit(batch.send())
        assert batch.bodies == BODIES


def test_half_messages_that_a_broker_discarded_are_sent_again(
    impatient_cluster: SinkCluster, tmp_path: Path
) -> None:
    batch = Transaction(impatient_cluster, "given-up", tmp_path, transaction_time_ms=0)
    halves = batch.send(key=[f"k{at}" for at in range(60)], flag=list(range(60)))
    batch.commit_some(batch.decide_and_die(halves), 25)
    wait_until(
        lambda: (
            len(impatient_cluster.read("given-up"))
            + len(impatient_cluster.read("TRANS_CHECK_MAX_TIME_TOPIC"))
            == 60
        )
    )
    batch.finish()
    table = impatient_cluster.read("given-up")
    assert sorted(table["body"].to_pylist()) == BODIES
    for row in table.to_pylist():
        number = int(row["body"])
        properties = dict(row["properties"])
        assert (row["flag"], properties["KEYS"]) == (number, f"k{number}")
        assert properties["ROQUET_ROW"] == f"q/0/0/{number}"
        assert "REAL_TOPIC" not in properties


def wait_until(is_so: Callable[[], object]) -> None:
    for _ in range(200):
        try:
            if is_so():
                return
        except Exception:  # the topic is not there yet
            pass
        threading.Event().wait(0.05)
    raise AssertionError("it never was so")


def test_rows_of_one_order_key_become_visible_in_their_order(batch: Transaction) -> None:
    batch.commit(batch.send(order_key=[f"k{at % 5}" for at in range(60)]))
    lines: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for row in batch.cluster.read(batch.topic).to_pylist():
        place = (row["queue_offset"], row["body"])
        lines.setdefault((row["broker"], row["queue_id"]), []).append(place)
    assert sum(map(len, lines.values())) == 60
    for line in lines.values():
        assert [body for _, body in sorted(line)] == sorted(body for _, body in line)


def test_a_batch_without_rows_is_recorded_too(batch: Transaction) -> None:
    batch.commit([])
    assert decided_batches(batch.options) == {"q": {0}}


def test_a_commit_without_the_lock_is_an_error(sink_cluster: SinkCluster, tmp_path: Path) -> None:
    sink_options = sink_cluster.options(
        topic="x", transactional=True, commits=str(tmp_path), timeout_ms=0
    )
    with (
        CommitRecords(LockedDirectory(tmp_path)).locked(0, lambda _: None),
        pytest.raises(StoreError, match="another process is committing"),
    ):
        commit(sink_options, "q", 0, [])


def test_a_missing_half_message_is_an_error_and_its_record_stays_open(batch: Transaction) -> None:
    table = from_bytes(batch.send()[0])
    lost = table.set_column(
        table.schema.get_field_index("position"), "position", pa.array([7] * 60, pa.int64())
    )
    with pytest.raises(RecordError, match="no longer has the half message at 7"):
        batch.commit([to_bytes(lost)])
    assert len(batch.records.open()) == 1
    roll_back(batch.options, table)


def test_the_driver_signs_with_the_keys_of_the_options(tmp_path: Path) -> None:
    """Its environment has none: it could neither note where queues end nor look for rows."""
    user = Credentials(access_key="lake", secret_key="hush-hush")
    checks: dict[str, Any] = {
        "authentication_enabled": True, "authorization_enabled": True, "initial_user": user,
        "inner_credentials": user,
    }  # fmt: skip
    access = AccessOptions(access_key=user.access_key, secret_key=user.secret_key)
    with BlockingCluster(**checks) as running:
        sink_options = SinkOptions(
            namesrv=(running.namesrv_addr,), topic="signed", transactional=True,
            commits=str(tmp_path), timeout_ms=5_000, access=access, creates_topics=True,
        )  # fmt: skip
        halves = from_bytes(write_rows(sink_options, body=BODIES)[1])
        record = commit_record(sink_options, "q", 0, halves)
        CommitRecords(LockedDirectory(tmp_path)).write(record)
        finish_decided(sink_options, quiet_ms=0)
        rows = VisibilityReader(sink_options, ["signed"]).since(record.ends, record.prefix)
    assert len(rows.visible) == len(BODIES)


DONE, REFUSED, UNKNOWN, NOT_ASKED = CommitOutcome


def record(count: int) -> CommitRecord:
    rows = {
        "partition": [at % 2 for at in range(count)], "row": list(range(count)),
        "topic": ["orders"] * count, "broker": ["broker-a"] * count,
        "queue_id": [at % 4 for at in range(count)], "half_offset": list(range(count)),
        "position": [100 * at for at in range(count)],
        "unique_key": [f"U{at}" for at in range(count)], "ordered": [False] * count,
    }  # fmt: skip
    ends = {"orders": {"broker-a": {"0": 0}}}
    return CommitRecord("q", 1, "g", ("a:1",), ends, pa.Table.from_pydict(rows, SCHEMA))


class ScriptedBroker:
    """A broker with a script: how it answers each commit, and whether it carries it out."""

    def __init__(self, script: Sequence[str] = ()) -> None:
        self.script = iter(script)
        self.visible: list[int] = []
        self.discarded: set[int] = set()
        self.late: list[int] = []
        self.commits: list[tuple[int, bool]] = []
        self.pauses: list[int] = []

    def end(self, halves: Sequence[HalfMessageRef]) -> dict[int, CommitOutcome]:
        return {half.number: self._end(half) for half in halves}

    def _end(self, half: HalfMessageRef) -> CommitOutcome:
        self.commits.append((half.number, half.is_discarded))
        step = next(self.script, "done")
        if step == "refused" and not half.is_discarded:
            self.discarded.add(half.number)
            return REFUSED
        if step in ("done", "lost", "slow"):
            # An Apache broker commits again when it is asked again.
            (self.late if step == "slow" else self.visible).append(half.number)
        return DONE if step == "done" else NOT_ASKED if step == "not asked" else UNKNOWN

    def since(self, ends: OffsetsJson, prefix: str) -> VisibleRows:
        assert prefix == "q/1/"
        codes = [self._code(number) for number in self.visible]
        discarded = [self._code(number) for number in self.discarded]
        return VisibleRows(np.array(codes, np.int64), np.array(discarded, np.int64), ends)

    def pause(self, pause_ms: int) -> None:
        self.pauses.append(pause_ms)
        self.visible += self.late
        self.late = []

    def _code(self, number: int) -> int:
        return (number % 2) << PARTITION_SHIFT | number

    def finish(self, record: CommitRecord, *, fresh: bool, timeout_ms: int = 60_000) -> None:
        finish_batch(record, self.end, self.since, self.pause, timeout_ms, fresh=fresh)


def test_a_fresh_batch_is_committed_without_a_wait() -> None:
    broker = ScriptedBroker()
    broker.finish(record(5), fresh=True)
    assert broker.visible == [0, 1, 2, 3, 4]
    assert broker.pauses == []


def test_after_a_kill_only_invisible_rows_are_committed() -> None:
    broker = ScriptedBroker()
    broker.visible = [0, 3]
    broker.finish(record(5), fresh=False)
    assert [number for number, _ in broker.commits] == [1, 2, 4]
    assert sorted(broker.visible) == [0, 1, 2, 3, 4]
    assert len(broker.pauses) == 1


def test_rows_of_discarded_half_messages_are_sent_again() -> None:
    broker = ScriptedBroker()
    broker.discarded = {1}
    broker.finish(record(3), fresh=False)
    assert broker.commits == [(0, False), (1, True), (2, False)]


script = st.lists(st.sampled_from(["done", "lost", "slow", "nothing", "refused", "not asked"]))


@given(st.integers(0, 12), script, st.booleans(), st.sets(st.integers(0, 11)))
def test_whatever_happens_each_row_is_there_once(
    count: int, given_script: list[str], fresh: bool, seen: set[int]
) -> None:
    broker = ScriptedBroker(given_script)
    if not fresh:
        broker.visible = sorted(number for number in seen if number < count)
    broker.finish(record(count), fresh=fresh)
    assert sorted(broker.visible + broker.late) == list(range(count))


def test_a_batch_that_makes_no_progress_is_an_error() -> None:
    broker = ScriptedBroker(["nothing"] * 100)
    with pytest.raises(CallTimeout, match="2 rows of batch 1 could not be made visible"):
        broker.finish(record(2), fresh=True, timeout_ms=-1)


def test_halves_are_values_of_their_table() -> None:
    (half,) = refs_at(record(3).halves, [2], [True])
    assert half == HalfMessageRef(2, "orders", "broker-a", 2, 2, 200, "U2", False, True)
