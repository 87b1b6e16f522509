"""Where archives of letters lie: under names that every library spells alike."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from roquet.arrow.records import SCHEMA as COLUMNS
from roquet.lake.objects.object_location import ObjectLocation, parse_location
from roquet.spark.jobs.repair.letter_table import (
    RAW_COLUMNS,
    SCHEMA,
    archive_location,
    count_by_reason,
    select_by_id,
    select_sendable,
    transform,
    unknown_ids,
)


def test_an_archive_of_a_directory_has_the_quoted_name_of_its_topic() -> None:
    where = archive_location(Path("/lake"), "%DLQ%billing")
    assert where == Path("/lake/raw/@25DLQ@25billing")


def test_an_archive_of_an_object_store_has_a_path_that_is_accepted() -> None:
    root = ObjectLocation("s3://lake/letters", {"AWS_REGION": "eu-west-1"})
    topics = ("%DLQ%billing", "%RETRY%billing_orders", "%DLQ%a|b", "%DLQ%a")
    made = [archive_location(root, topic) for topic in topics]
    assert str(made[0]) == "s3://lake/letters/raw/@25DLQ@25billing"
    assert len({*map(str, made)}) == len(topics)
    for where in made:
        assert parse_location(str(where), root.options, {}) == where


DAY_US = 86_400_000_000


def letters(*rows: dict[str, Any], tries_max: int = 16) -> pa.Table:
    schema = pa.schema([COLUMNS.field(name) for name in RAW_COLUMNS])
    plain: dict[str, Any] = dict.fromkeys(RAW_COLUMNS)
    made = [
        {
            **plain, "topic": "%DLQ%billing", "broker": "a", "queue_id": 0, "queue_offset": at,
            "message_id": f"ID{at}", "properties": [], "body": b"x", "stored_at": DAY_US, **row,
        }
        for at, row in enumerate(rows)
    ]  # fmt: skip
    [batch] = pa.Table.from_pylist(made, schema).to_batches()
    return pa.Table.from_batches([transform(batch, tries_max)])


def letter_row(**properties: str) -> dict[str, Any]:
    return {"properties": list(properties.items())}


@pytest.mark.parametrize(
    ("topic", "tries", "state", "reason"),
    [
        ("%DLQ%billing", 17, "dead", "failed 17 times, no try was left"),
        ("%DLQ%billing", 2, "dead", "given up after 2 failures"),
        ("%DLQ%billing", None, "dead", "given up after 0 failures"),
        ("%RETRY%billing", 3, "waiting", "failed 3 times, is tried again"),
    ],
)
def test_the_number_of_tries_is_the_reason(
    topic: str, tries: int | None, state: str, reason: str
) -> None:
    [row] = letters({"topic": topic, "reconsume_times": tries}).to_pylist()
    assert (row["state"], row["reason"], row["tries"]) == (state, reason, tries or 0)


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "other"}, "orders"),
        ({"RETRY_TOPIC": "orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%billing"}, None),
        ({"DLQ_ORIGIN_TOPIC": ""}, None),
        ({}, None),
    ],
)
def test_a_letter_has_the_topic_of_the_original(
    properties: dict[str, str], topic: str | None
) -> None:
    assert letters(letter_row(**properties))["origin_topic"].to_pylist() == [topic]


def test_a_letter_has_the_id_of_the_original() -> None:
    rows = letters(
        letter_row(DLQ_ORIGIN_MESSAGE_ID="A", UNIQ_KEY="B"),
        letter_row(UNIQ_KEY="B"),
        letter_row(CONSUMER="c@1"),
    )
    assert rows.schema == SCHEMA
    assert rows["origin_id"].to_pylist() == ["A", "B", None]
    assert rows["consumer"].to_pylist() == [None, None, "c@1"]
    assert rows["letter_id"].to_pylist() == [f"%DLQ%billing/a/0/{at}" for at in range(3)]
    assert [str(day) for day in rows["day"].to_pylist()] == ["1970-01-02"] * 3


def test_letters_are_counted() -> None:
    new = {**letter_row(DLQ_ORIGIN_TOPIC="orders"), "tag": "new"}
    rows = letters(new, new, {**new, "tag": "paid"}, {**new, "stored_at": 0})
    counts = count_by_reason(rows, ["%DLQ%billing/a/0/1", "foreign"]).to_pylist()
    assert [(row["tag"], str(row["day"]), row["letters"], row["sent"]) for row in counts] == [
        ("new", "1970-01-01", 1, 0),
        ("new", "1970-01-02", 2, 1),
        ("paid", "1970-01-02", 1, 0),
    ]


def test_letters_are_picked_by_any_of_their_ids() -> None:
    rows = letters(letter_row(UNIQ_KEY="A"), letter_row(), letter_row())
    ids = ["A", "ID1", "%DLQ%billing/a/0/2", "ID77"]
    assert select_by_id(rows, ids).num_rows == 3
    assert unknown_ids(rows, ids) == ["ID77"]


def test_only_dead_letters_with_an_original_topic_can_be_sent_again() -> None:
    origin = letter_row(DLQ_ORIGIN_TOPIC="orders")
    waiting = {**letter_row(RETRY_TOPIC="orders"), "topic": "%RETRY%billing"}
    rows = letters(
        origin, waiting, letter_row(), {**origin, "queue_offset": 9}, {**origin, "broker": "B"}
    )
    selected = select_sendable(rows, ["%DLQ%billing/a/0/9"])
    assert selected["letter_id"].to_pylist() == ["%DLQ%billing/B/0/4", "%DLQ%billing/a/0/0"]
