"""Transaction commit: a decided batch becomes visible once and completely, after any kill."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from roquet.model.errors import RecordError, StoreError
from roquet.spark.sink import commit as commits
from roquet.spark.sink.commit import abort, commit, decided_batches, finish_decided, roll_back
from roquet.spark.sink.commit_records import CommitRecords
from roquet.spark.sink.finish_batch import refs_at
from roquet.spark.sink.half_message_refs import concat, from_bytes, to_bytes
from roquet.spark.sink.row_encoder import PartitionOrigin
from roquet.spark.sink.task import send_partition

BODIES = [f"{at:03d}".encode() for at in range(60)]


def written(options: Any, bodies: list[bytes] = BODIES, **columns: Any) -> list[bytes]:
    batch = pa.RecordBatch.from_pydict({"body": bodies, **columns})
    return [
        send_partition(iter([batch]), options, batch.schema.names, PartitionOrigin("q", 0, 0))[1]
    ]


def options(sink_cluster: Any, topic: str, folder: Path) -> Any:
    sink_cluster.create(topic)
    return sink_cluster.options(
        topic=topic, transactional=True, commits=str(folder), timeout_ms=5_000
    )


def decided(sink_cluster: Any, found: Any, halves: list[bytes]) -> Any:
    """The state that a driver leaves when it is killed right after its decision."""
    table = concat(map(from_bytes, halves))
    record = commits._record(found, "q", 0, table)
    CommitRecords(Path(found.commits)).write(record)
    return record


def test_a_commit_shows_all_rows_and_marks_the_batch_done(
    sink_cluster: Any, tmp_path: Path
) -> None:
    found = options(sink_cluster, "shown", tmp_path)
    halves = written(found)
    assert sink_cluster.bodies("shown") == []
    commit(found, "q", 0, halves)
    assert sink_cluster.bodies("shown") == BODIES
    assert decided_batches(found) == {"q": {0}}
    assert CommitRecords(tmp_path).open() == []


def test_an_abort_shows_nothing_ever(sink_cluster: Any, tmp_path: Path) -> None:
    found = options(sink_cluster, "aborted", tmp_path)
    halves = written(found)
    abort(found, "q", 0, halves)
    record = decided(sink_cluster, found, halves)
    outcomes = end_all(found, record)
    assert {outcome.name for outcome in outcomes.values()} == {"REFUSED"}
    assert sink_cluster.bodies("aborted") == []


def end_all(found: Any, record: Any) -> Any:
    with commits._committer(found, found.group, 5_000) as (wait, committer):
        halves = refs_at(record.halves, range(record.halves.num_rows))
        return wait(committer.commit(halves))


def test_an_abort_after_the_decision_changes_nothing(sink_cluster: Any, tmp_path: Path) -> None:
    found = options(sink_cluster, "too-late", tmp_path)
    halves = written(found)
    decided(sink_cluster, found, halves)
    abort(found, "q", 0, halves)
    finish_decided(found, quiet_ms=0)
    assert sink_cluster.bodies("too-late") == BODIES


def test_a_driver_that_died_half_way_is_finished_without_doubles(
    sink_cluster: Any, tmp_path: Path
) -> None:
    found = options(sink_cluster, "half-way", tmp_path)
    halves = written(found)
    record = decided(sink_cluster, found, halves)
    first = refs_at(record.halves, range(25))
    with commits._committer(found, found.group, 5_000) as (wait, committer):
        wait(committer.commit(first))
    assert sink_cluster.bodies("half-way") == BODIES[:25]
    finish_decided(found, quiet_ms=0)
    assert sink_cluster.bodies("half-way") == BODIES
    finish_decided(found, quiet_ms=0)
    assert sink_cluster.bodies("half-way") == BODIES


def test_a_batch_that_is_run_again_is_finished_and_its_new_halves_go(
    sink_cluster: Any, tmp_path: Path
) -> None:
    found = options(sink_cluster, "again", tmp_path)
    decided(sink_cluster, found, written(found))
    commit(found, "q", 0, written(found), quiet_ms=0)
    assert sink_cluster.bodies("again") == BODIES
    commit(found, "q", 0, written(found), quiet_ms=0)
    assert sink_cluster.bodies("again") == BODIES


def test_halves_that_a_broker_gave_up_are_sent_anew(impatient_cluster: Any, tmp_path: Path) -> None:
    found = options(impatient_cluster, "given-up", tmp_path)
    found = type(found)(**{f: getattr(found, f) for f in found.__struct_fields__}
                        | {"transaction_time_ms": 0})  # fmt: skip
    batch: dict[str, Any] = {"key": [f"k{at}" for at in range(60)], "flag": list(range(60))}
    record = decided(impatient_cluster, found, written(found, **batch))
    first = refs_at(record.halves, range(25))
    with commits._committer(found, found.group, 5_000) as (wait, committer):
        wait(committer.commit(first))
    wait_until(
        lambda: (
            len(impatient_cluster.read("given-up"))
            + len(impatient_cluster.read("TRANS_CHECK_MAX_TIME_TOPIC"))
            == 60
        )
    )
    finish_decided(found, quiet_ms=0)
    table = impatient_cluster.read("given-up")
    assert sorted(table["body"].to_pylist()) == BODIES
    for row in table.to_pylist():
        number = int(row["body"])
        properties = dict(row["properties"])
        assert (row["flag"], properties["KEYS"]) == (number, f"k{number}")
        assert properties["ROQUET_ROW"] == f"q/0/0/{number}"
        assert "REAL_TOPIC" not in properties


def wait_until(is_so: Any) -> None:
    for _ in range(200):
        try:
            if is_so():
                return
        except Exception:  # the topic is not there yet
            pass
        threading.Event().wait(0.05)
    raise AssertionError("it never was so")


def test_rows_of_one_order_key_become_visible_in_their_order(
    sink_cluster: Any, tmp_path: Path
) -> None:
    found = options(sink_cluster, "in-order", tmp_path)
    commit(found, "q", 0, written(found, order_key=[f"k{at % 5}" for at in range(60)]))
    lines: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for row in sink_cluster.read("in-order").to_pylist():
        place = (row["queue_offset"], row["body"])
        lines.setdefault((row["broker"], row["queue_id"]), []).append(place)
    assert sum(map(len, lines.values())) == 60
    for line in lines.values():
        assert [body for _, body in sorted(line)] == sorted(body for _, body in line)


def test_a_batch_without_rows_is_recorded_too(sink_cluster: Any, tmp_path: Path) -> None:
    found = options(sink_cluster, "empty", tmp_path)
    commit(found, "q", 0, [])
    assert decided_batches(found) == {"q": {0}}


def test_who_cannot_have_the_lock_says_so(sink_cluster: Any, tmp_path: Path) -> None:
    found = sink_cluster.options(topic="x", transactional=True, commits=str(tmp_path), timeout_ms=0)
    with (
        CommitRecords(tmp_path).locked(0, lambda _: None),
        pytest.raises(StoreError, match="another process is committing"),
    ):
        commit(found, "q", 0, [])


def test_a_half_message_that_is_nowhere_is_an_outcry_and_stays_open(
    sink_cluster: Any, tmp_path: Path
) -> None:
    found = options(sink_cluster, "nowhere", tmp_path)
    table = from_bytes(written(found)[0])
    lost = table.set_column(
        table.schema.get_field_index("position"), "position", pa.array([7] * 60, pa.int64())
    )
    with pytest.raises(RecordError, match="no longer has the half message at 7"):
        commit(found, "q", 0, [to_bytes(lost)], quiet_ms=0)
    assert len(CommitRecords(tmp_path).open()) == 1
    roll_back(found, table)
