"""Messages become changes, and changes become rows."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from roquet.arrow.records import SCHEMA
from roquet.lake.states.state_table import DELETED, StateIdentity, agreed_settings
from roquet.spark.jobs.materialize.materialize_tasks import (
    LatestChanges,
    MergeCounts,
    as_changes,
    merged,
)

WHEN = datetime(2026, 1, 31, tzinfo=UTC)


def identity(key: str = "key", deletes: str = "tombstone") -> StateIdentity:
    return agreed_settings(
        StateIdentity(topic="accounts", key=key, deletes=deletes, buckets=4), None
    )


def messages(*rows: dict[str, Any], settings: StateIdentity) -> pa.RecordBatch:
    """Messages of one queue; what a row does not say is the same in all."""
    usual = {"broker": "a", "queue_id": 0, "tag": None, "stored_at": WHEN, "born_at": WHEN}
    whole = [
        {**usual, "key": None, "body": b"x", "properties": {}, "queue_offset": at, **row}
        for at, row in enumerate(rows)
    ]
    for row in whole:
        row["properties"] = list(row["properties"].items())
    schema = pa.schema([SCHEMA.field(name) for name in settings.columns])
    return pa.RecordBatch.from_pylist(whole, schema)


@pytest.mark.parametrize(
    ("message", "is_deleted"),
    [
        ({"body": b"{}"}, False),
        ({"body": b""}, True),
        ({"body": b"null"}, True),
        ({"properties": {"tombstone": "true"}}, True),
        ({"properties": {"tombstone": "false"}}, False),
        ({"properties": {"a": "true", "b": "tombstone"}}, False),
    ],
)
def test_a_tombstone_is_a_null_body_or_a_property(
    message: dict[str, Any], is_deleted: bool
) -> None:
    changes = as_changes(messages(message, settings=identity()), identity())
    assert changes[DELETED].to_pylist() == [is_deleted]


def test_the_key_may_be_a_property() -> None:
    settings = identity("property:id")
    both = {"key": "k", "properties": {"id": "7", "x": "y"}}
    rows = messages(both, {"key": "k"}, {"properties": {"id": ""}}, settings=settings)
    changes = as_changes(rows, settings)
    assert changes["key"].to_pylist() == ["7", None, None]


def test_messages_without_a_key_are_counted_with_the_first_place() -> None:
    settings = identity()
    latest = LatestChanges(settings)
    latest.add(messages({"key": "a"}, {}, {"key": "a"}, {}, settings=settings))
    rows, without_key = latest.tables()
    assert rows["queue_offset"].to_pylist() == [2]
    assert without_key["queue_offset"].to_pylist() == [1, 3]
    assert (latest.counts.null_keys, latest.counts.first_null_key) == (2, "a, queue 0, offset 1")


def merge(
    present: pa.Table | None, *rows: dict[str, Any], settings: StateIdentity
) -> tuple[pa.Table, MergeCounts]:
    changes = as_changes(messages(*rows, settings=settings), settings)
    state = settings.file_schema().empty_table() if present is None else present
    after, counts = merged(state, pa.Table.from_batches([changes]), settings)
    return after.select(settings.file_schema().names), counts


def test_a_change_replaces_the_row_of_its_key() -> None:
    settings = identity()
    before, _ = merge(
        None, {"key": "a", "body": b"1"}, {"key": "b", "body": b"2"}, settings=settings
    )
    after, counts = merge(before, {"key": "a", "body": b"3", "queue_offset": 9}, settings=settings)
    assert sorted(zip(after["key"].to_pylist(), after["body"].to_pylist(), strict=True)) == [
        ("a", b"3"),
        ("b", b"2"),
    ]
    assert counts == MergeCounts(changed=1)


def test_a_tombstone_removes_the_row() -> None:
    settings = identity()
    before, _ = merge(None, {"key": "a"}, {"key": "b"}, settings=settings)
    after, counts = merge(
        before, {"key": "a", "body": b"null", "queue_offset": 9}, settings=settings
    )
    assert after["key"].to_pylist() == ["b"]
    assert counts == MergeCounts(deleted=1)


def test_a_kept_row_is_marked_and_no_older_change_of_another_queue_brings_it_back() -> None:
    settings = identity(deletes="keep")
    before, _ = merge(None, {"key": "a", "body": b"null", "queue_offset": 9}, settings=settings)
    assert before[DELETED].to_pylist() == [True]
    early = WHEN.replace(year=2025)
    after, counts = merge(
        before, {"key": "a", "queue_id": 1, "stored_at": early}, settings=settings
    )
    assert after[DELETED].to_pylist() == [True]
    assert counts == MergeCounts(moved=1)


def test_a_deleted_key_may_come_again() -> None:
    settings = identity(deletes="keep")
    before, _ = merge(None, {"key": "a", "body": b"null"}, settings=settings)
    after, _ = merge(before, {"key": "a", "body": b"2", "queue_offset": 5}, settings=settings)
    assert (after["body"].to_pylist(), after[DELETED].to_pylist()) == ([b"2"], [False])
