"""Transaction commit: a decided batch becomes visible once and completely, after any kill."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from roquet.model.errors import RecordError, StoreError
from roquet.spark.access_options import AccessOptions
from roquet.spark.sink.commit import (
    abort,
    commit,
    commit_record,
    decided_batches,
    finish_decided,
    open_committer,
    roll_back,
)
from roquet.spark.sink.commit_records import CommitRecord, CommitRecords
from roquet.spark.sink.finish_batch import refs_at
from roquet.spark.sink.half_message_refs import concat, from_bytes, to_bytes
from roquet.spark.sink.locked_journals import LockedDirectory
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.row_encoder import PartitionOrigin
from roquet.spark.sink.task import send_partition
from roquet.spark.sink.visibility import VisibilityReader
from roquet.testing.cluster import BlockingCluster
from roquet.wire.signing import Credentials

if TYPE_CHECKING:
    from tests.spark.sink.conftest import SinkCluster

BODIES = [f"{at:03d}".encode() for at in range(60)]


def send_half_messages(
    options: SinkOptions, bodies: list[bytes] = BODIES, **columns: Any
) -> list[bytes]:
    batch = pa.RecordBatch.from_pydict({"body": bodies, **columns})
    return [
        send_partition(iter([batch]), options, batch.schema.names, PartitionOrigin("q", 0, 0))[1]
    ]


def options(sink_cluster: "SinkCluster", topic: str, folder: Path) -> SinkOptions:
    sink_cluster.create(topic)
    return sink_cluster.options(
        topic=topic, transactional=True, commits=str(folder), timeout_ms=5_000
    )


def decide_and_die(
    sink_cluster: "SinkCluster", sink_options: SinkOptions, halves: list[bytes]
) -> CommitRecord:
    """The state that a driver leaves when it is killed right after its decision."""
    table = concat(map(from_bytes, halves))
    record = commit_record(sink_options, "q", 0, table)
    CommitRecords(LockedDirectory(Path(sink_options.commits or ""))).write(record)
    return record


def test_a_commit_shows_all_rows_and_marks_the_batch_done(
    sink_cluster: "SinkCluster", tmp_path: Path
) -> None:
    sink_options = options(sink_cluster, "shown", tmp_path)
    halves = send_half_messages(sink_options)
    assert sink_cluster.bodies("shown") == []
    commit(sink_options, "q", 0, halves)
    assert sink_cluster.bodies("shown") == BODIES
    assert decided_batches(sink_options) == {"q": {0}}
    assert CommitRecords(LockedDirectory(tmp_path)).open() == []


def test_an_abort_shows_nothing_ever(sink_cluster: "SinkCluster", tmp_path: Path) -> None:
    sink_options = options(sink_cluster, "aborted", tmp_path)
    halves = send_half_messages(sink_options)
    abort(sink_options, "q", 0, halves)
    record = decide_and_die(sink_cluster, sink_options, halves)
    outcomes = commit_all(sink_options, record)
    assert {outcome.name for outcome in outcomes.values()} == {"REFUSED"}
    assert sink_cluster.bodies("aborted") == []


def commit_all(sink_options: SinkOptions, record: CommitRecord) -> Any:
    with open_committer(sink_options, sink_options.group, 5_000) as (wait, committer):
        halves = refs_at(record.halves, range(record.halves.num_rows))
        return wait(committer.commit(halves))


def test_an_abort_after_the_decision_changes_nothing(
    sink_cluster: "SinkCluster", tmp_path: Path
) -> None:
    sink_options = options(sink_cluster, "too-late", tmp_path)
    halves = send_half_messages(sink_options)
    decide_and_die(sink_cluster, sink_options, halves)
    abort(sink_options, "q", 0, halves)
    finish_decided(sink_options, quiet_ms=0)
    assert sink_cluster.bodies("too-late") == BODIES


def test_a_driver_that_died_half_way_is_finished_without_doubles(
    sink_cluster: "SinkCluster", tmp_path: Path
) -> None:
    sink_options = options(sink_cluster, "half-way", tmp_path)
    halves = send_half_messages(sink_options)
    record = decide_and_die(sink_cluster, sink_options, halves)
    first = refs_at(record.halves, range(25))
    with open_committer(sink_options, sink_options.group, 5_000) as (wait, committer):
        wait(committer.commit(first))
    assert sink_cluster.bodies("half-way") == BODIES[:25]
    finish_decided(sink_options, quiet_ms=0)
    assert sink_cluster.bodies("half-way") == BODIES
    finish_decided(sink_options, quiet_ms=0)
    assert sink_cluster.bodies("half-way") == BODIES


def test_a_repeated_batch_is_finished_and_its_new_half_messages_are_rolled_back(
    sink_cluster: "SinkCluster", tmp_path: Path
) -> None:
    sink_options = options(sink_cluster, "again", tmp_path)
    decide_and_die(sink_cluster, sink_options, send_half_messages(sink_options))
    commit(sink_options, "q", 0, send_half_messages(sink_options), quiet_ms=0)
    assert sink_cluster.bodies("again") == BODIES
    commit(sink_options, "q", 0, send_half_messages(sink_options), quiet_ms=0)
    assert sink_cluster.bodies("again") == BODIES


def test_half_messages_that_a_broker_discarded_are_sent_again(
    impatient_cluster: "SinkCluster", tmp_path: Path
) -> None:
    sink_options = replace(options(impatient_cluster, "given-up", tmp_path), transaction_time_ms=0)
    batch: dict[str, Any] = {"key": [f"k{at}" for at in range(60)], "flag": list(range(60))}
    record = decide_and_die(
        impatient_cluster, sink_options, send_half_messages(sink_options, **batch)
    )
    first = refs_at(record.halves, range(25))
    with open_committer(sink_options, sink_options.group, 5_000) as (wait, committer):
        wait(committer.commit(first))
    wait_until(
        lambda: (
            len(impatient_cluster.read("given-up"))
            + len(impatient_cluster.read("TRANS_CHECK_MAX_TIME_TOPIC"))
            == 60
        )
    )
    finish_decided(sink_options, quiet_ms=0)
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


def test_rows_of_one_order_key_become_visible_in_their_order(
    sink_cluster: "SinkCluster", tmp_path: Path
) -> None:
    sink_options = options(sink_cluster, "in-order", tmp_path)
    commit(
        sink_options,
        "q",
        0,
        send_half_messages(sink_options, order_key=[f"k{at % 5}" for at in range(60)]),
    )
    lines: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for row in sink_cluster.read("in-order").to_pylist():
        place = (row["queue_offset"], row["body"])
        lines.setdefault((row["broker"], row["queue_id"]), []).append(place)
    assert sum(map(len, lines.values())) == 60
    for line in lines.values():
        assert [body for _, body in sorted(line)] == sorted(body for _, body in line)


def test_a_batch_without_rows_is_recorded_too(sink_cluster: "SinkCluster", tmp_path: Path) -> None:
    sink_options = options(sink_cluster, "empty", tmp_path)
    commit(sink_options, "q", 0, [])
    assert decided_batches(sink_options) == {"q": {0}}


def test_a_commit_without_the_lock_is_an_error(sink_cluster: "SinkCluster", tmp_path: Path) -> None:
    sink_options = sink_cluster.options(
        topic="x", transactional=True, commits=str(tmp_path), timeout_ms=0
    )
    with (
        CommitRecords(LockedDirectory(tmp_path)).locked(0, lambda _: None),
        pytest.raises(StoreError, match="another process is committing"),
    ):
        commit(sink_options, "q", 0, [])


def test_a_missing_half_message_is_an_error_and_its_record_stays_open(
    sink_cluster: "SinkCluster", tmp_path: Path
) -> None:
    sink_options = options(sink_cluster, "nowhere", tmp_path)
    table = from_bytes(send_half_messages(sink_options)[0])
    lost = table.set_column(
        table.schema.get_field_index("position"), "position", pa.array([7] * 60, pa.int64())
    )
    with pytest.raises(RecordError, match="no longer has the half message at 7"):
        commit(sink_options, "q", 0, [to_bytes(lost)], quiet_ms=0)
    assert len(CommitRecords(LockedDirectory(tmp_path)).open()) == 1
    roll_back(sink_options, table)


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
            commits=str(tmp_path), timeout_ms=5_000, access=access,
        )  # fmt: skip
        halves = concat(map(from_bytes, send_half_messages(sink_options)))
        record = commit_record(sink_options, "q", 0, halves)
        CommitRecords(LockedDirectory(tmp_path)).write(record)
        finish_decided(sink_options, quiet_ms=0)
        rows = VisibilityReader(sink_options, ["signed"]).since(record.ends, record.prefix)
    assert len(rows.visible) == len(BODIES)
