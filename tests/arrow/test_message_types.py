"""Message types, by topic or by flags and properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow.message_types import message_type_of_topic
from roquet.arrow.records import RecordColumns
from roquet.model import names
from roquet.model.flags import SysFlag
from roquet.wire.records import record

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
COLUMNS = ("message_type", "real_topic", "real_queue_id")


def packed(topic: str, sys_flag: int = 0, **properties: Any) -> bytes:
    text = record.encode_properties(properties)
    return record.pack(
        3, 0, 0, 0, sys_flag, 1_700_000_000_000, HOST, 1_700_000_000_500, HOST, 0, 0, b"",
        topic.encode(), text,
    )  # fmt: skip


def seen(*records: bytes) -> list[tuple[Any, ...]]:
    batch = RecordColumns.of(b"".join(records)).batch(COLUMNS)
    return [tuple(row.values()) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("properties", "sys_flag", "kind"),
    [
        ({}, 0, "normal"),
        ({"TAGS": "a"}, SysFlag.COMPRESSED, "normal"),
        ({"__SHARDINGKEY": "k"}, 0, "ordered"),
        ({"DELAY": "3"}, 0, "delay"),
        ({"DELAY": "0"}, 0, "normal"),
        ({"TIMER_DELIVER_MS": "1"}, 0, "timer"),
        ({"TIMER_DELAY_SEC": "1", "__SHARDINGKEY": "k"}, 0, "timer"),
        ({"__SHARDINGKEY": "k"}, SysFlag.TRANSACTION_COMMIT, "transaction"),
        ({}, SysFlag.TRANSACTION_PREPARED, "half"),
        ({}, SysFlag.TRANSACTION_ROLLBACK, "normal"),
    ],
)
def test_a_message_of_a_users_topic_has_its_own_topic_and_queue(
    properties: dict[str, Any], sys_flag: int, kind: str
) -> None:
    assert seen(packed("orders", int(sys_flag), **properties)) == [(kind, "orders", 3)]


def test_a_waiting_message_has_its_destination() -> None:
    real: dict[str, Any] = {"REAL_TOPIC": "orders", "REAL_QID": "7"}
    assert seen(
        packed(names.SCHEDULE_TOPIC, **real),
        packed(names.TIMER_TOPIC, **real),
        packed(names.HALF_TOPIC, **real),
        packed(names.CHECK_MAX_TIME_TOPIC, **real),
    ) == [
        ("delay", "orders", 7),
        ("timer", "orders", 7),
        ("half", "orders", 7),
        ("half", "orders", 7),
    ]


def test_a_failed_message_has_its_original_topic_but_no_queue() -> None:
    assert seen(
        packed(names.retry_topic("g"), RETRY_TOPIC="orders"),
        packed(names.dlq_topic("g"), RETRY_TOPIC="orders"),
        packed(names.dlq_topic("g"), RETRY_TOPIC="x", DLQ_ORIGIN_TOPIC="paid"),
        packed(names.retry_topic("g")),
    ) == [
        ("retry", "orders", None),
        ("dead", "orders", None),
        ("dead", "paid", None),
        ("retry", "%RETRY%g", None),
    ]


def test_system_topics_have_a_type_of_their_own() -> None:
    assert seen(packed(names.OP_HALF_TOPIC)) == [("op", names.OP_HALF_TOPIC, None)]
    assert seen(packed("rmq_sys_REVIVE_LOG_c"))[0][0] == "system"
    assert seen(packed(names.TRACE_TOPIC))[0][0] == "system"


def test_a_queue_id_that_is_no_number_is_null() -> None:
    (row,) = seen(packed(names.SCHEDULE_TOPIC, REAL_TOPIC="orders", REAL_QID="99999999999"))
    assert row == ("delay", "orders", None)


TOPICS = st.sampled_from(["orders", "paid", "%RETRY%g", "%DLQ%g", names.SCHEDULE_TOPIC])
SAYS: Any = st.dictionaries(
    st.sampled_from(["REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "REAL_QID", "DELAY"]),
    st.sampled_from(["1", "22", "x"]),
)


@given(st.lists(st.tuples(TOPICS, SAYS), min_size=1, max_size=8))
def test_mixed_topics_are_distinguished_row_by_row(
    columns: list[tuple[str, dict[str, Any]]],
) -> None:
    assert seen(*(packed(topic, **says) for topic, says in columns)) == [
        expected(topic, says) for topic, says in columns
    ]


def expected(topic: str, says: dict[str, str]) -> tuple[Any, ...]:
    kind = message_type_of_topic(topic)
    match kind:
        case None:
            return ("delay" if "DELAY" in says else "normal", topic, 3)
        case "retry":
            return kind, says.get("RETRY_TOPIC", topic), None
        case "dead":
            return kind, says.get("DLQ_ORIGIN_TOPIC", says.get("RETRY_TOPIC", topic)), None
        case _:
            number = says.get("REAL_QID", "x")
            return kind, says.get("REAL_TOPIC", topic), int(number) if number != "x" else None
