"""What retention deletes unread is kept by default, and counted and logged where it goes."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.conftest import LocalBroker, failing

from roquet.model import names
from roquet.model.errors import StoreError, StoreFull
from roquet.rules.consumption.pop import PopCheckpoint
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.rules.retention import HOUR_MS, DiskUsage

FULL = DiskUsage(100, 12)
"""A disk at 88 %: files go at any age."""

FILE = 8192
"""Bytes of one file of the log: seven messages of a thousand bytes."""

Fill = Callable[..., None]


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"log_file_size": FILE, "queue_file_entries": 100}


def fill(broker: LocalBroker, count: int, topic: str = "orders", **fields: Any) -> None:
    """Sends messages of a topic, some files of the log for each seven."""
    for _ in range(count):
        assert broker.send(b"x" * 1000, topic=topic, **fields).code == 0


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING)
    return lambda: [r.getMessage() for r in caplog.records if "unread_messages" in r.name]


def expire(
    broker: LocalBroker, usage: DiskUsage = FULL, *, hours: int = 0, force_unread: bool = False
) -> int:
    """Let retention work; returns how many files of the log go."""
    store, before = broker.log.store, broker.log.store.begin_position
    now_ms = broker.control.clock.now_ms()
    store.flush_all(now_ms)
    store.set_retention(replace(store.retention, force_unread=force_unread))
    store.expire(now_ms + hours * HOUR_MS, usage, at_once=True)
    return (store.begin_position - before) // FILE


def taken(broker: LocalBroker) -> dict[tuple[str, ...], float]:
    """Messages that retention took unread, by group and topic."""
    return {labels: tally.value for labels, tally in broker.log.counts.retention_unread.items()}


def test_a_full_disk_takes_only_what_all_groups_have_read(
    broker: LocalBroker, warnings: Callable[[], list[str]]
) -> None:
    fill(broker, 50)
    broker.tables.offsets.commit("quick", "orders", 0, 50)
    broker.tables.offsets.commit("slow", "orders", 0, 20)
    assert expire(broker)
    assert broker.log.store.bounds("orders", 0)[0] <= 20
    assert warnings() == []
    assert expire(broker) == 0
    (line,) = warnings()
    assert "the disk is 88 % full, and nothing younger than retention is deleted" in line
    assert "because of messages of topic orders that group slow has not read (from" in line
    assert expire(broker) == 0
    assert len(warnings()) == 1
    broker.tables.offsets.commit("slow", "orders", 0, 50)
    assert expire(broker)
    assert taken(broker) == {}


def test_a_full_disk_keeps_what_no_group_reads_and_refuses_sends_in_the_end(
    broker: LocalBroker, warnings: Callable[[], list[str]]
) -> None:
    fill(broker, 50)
    assert expire(broker, DiskUsage(100, 7)) == 0
    assert "messages of topic orders, which no group reads" in warnings()[0]
    assert isinstance(broker.log.store.refusal, StoreFull)


def test_where_the_setting_lets_unread_messages_go_the_log_and_a_metric_name_them(
    broker: LocalBroker, warnings: Callable[[], list[str]]
) -> None:
    fill(broker, 14, "nobodys")
    fill(broker, 36)
    broker.tables.offsets.commit("slow", "orders", 0, 10)
    broker.tables.offsets.commit("quick", "orders", 0, 36)
    assert expire(broker, force_unread=True)
    first = broker.log.store.bounds("orders", 0)[0]
    assert taken(broker) == {("", "nobodys"): 14, ("slow", "orders"): first - 10}
    assert warnings() == [
        f"retention deletes {first + 4} unread messages, since the disk is 88 % full:"
        f" {first - 10} messages of topic orders that group slow has not read;"
        " 14 messages of topic nobodys, which no group reads"
    ]


def test_messages_that_grow_old_unread_are_counted_for_their_groups_alone(
    broker: LocalBroker, warnings: Callable[[], list[str]]
) -> None:
    fill(broker, 14, "nobodys")
    fill(broker, 36)
    broker.tables.offsets.commit("slow", "orders", 3, 0)
    assert expire(broker, DiskUsage(100, 60), hours=100)
    first = broker.log.store.bounds("orders", 0)[0]
    assert taken(broker) == {("slow", "orders"): first}
    assert warnings() == [
        f"retention deletes {first} unread messages:"
        f" {first} messages of topic orders that group slow has not read"
    ]


def test_dead_letters_and_retries_are_unread_by_the_group_they_name(broker: LocalBroker) -> None:
    for topic in ("%DLQ%billing", "%RETRY%billing_orders", "%RETRY%billing+orders", "%RETRY%other"):
        broker.tables.topics.create_for_group(topic, 1, 0)
        fill(broker, 7, topic)
    fill(broker, 14, "nobodys")
    broker.tables.offsets.commit("other", "%RETRY%other", 0, 7)
    assert expire(broker, DiskUsage(100, 60), hours=100)
    assert taken(broker) == {
        ("billing", "%DLQ%billing"): 7, ("billing_orders", "%RETRY%billing_orders"): 7,
        ("billing", "%RETRY%billing+orders"): 7,
    }  # fmt: skip


WAITING = {
    names.SCHEDULE_TOPIC: "DELAY\x015\x02",
    names.TIMER_TOPIC: "TIMER_DELAY_MS\x0160000\x02",
    names.HALF_TOPIC: "TRAN_MSG\x01true\x02",
}


@pytest.mark.parametrize("topic", WAITING)
def test_messages_that_wait_are_kept_and_counted_where_they_go(
    broker: LocalBroker, topic: str, warnings: Callable[[], list[str]]
) -> None:
    fill(broker, 7, properties=WAITING[topic])
    broker.delivery.timer.step(broker.control.clock.now_ms())  # onto the wheel
    fill(broker, 14)
    broker.tables.offsets.commit("g", "orders", 0, 14)
    assert expire(broker) == 0
    assert "(from position 0 of the log on)" in warnings()[0]
    assert expire(broker, force_unread=True)
    assert taken(broker) == {("", topic): 7}


def test_ended_half_messages_are_not_unread(broker: LocalBroker) -> None:
    fill(broker, 7, properties=WAITING[names.HALF_TOPIC])
    fill(broker, 14)
    broker.tables.offsets.commit("g", "orders", 0, 14)
    for offset in (0, 1, 2, 4):
        broker.delivery.transactions.halves.end(offset)
    assert expire(broker, force_unread=True)
    assert taken(broker) == {("", names.HALF_TOPIC): 3}


def test_popped_messages_count_until_they_are_acknowledged(broker: LocalBroker) -> None:
    fill(broker, 30)
    broker.tables.offsets.commit("g", "orders", 0, 30)
    pop = PopCheckpoint(
        group="g", topic="orders", queue_id=0, start=2, pop_ms=0, invisible_ms=60_000,
        delivered=0b111, left=0b101, revive_queue_id=0, revive_offset=0,
    )  # fmt: skip
    broker.delivery.revive.in_flight.add(pop)
    assert expire(broker) == 0
    assert expire(broker, force_unread=True)
    assert taken(broker) == {("g", "orders"): 2}


def test_a_search_that_fails_lets_files_go_by_their_age_alone(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 50)

    monkeypatch.setattr(
        type(broker.tables.offsets), "by_place", failing(StoreError("the queue cannot be read"))
    )
    assert expire(broker) == 0
    assert expire(broker, hours=100)


def test_a_count_that_fails_does_not_hold_up_retention(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 30)
    monkeypatch.setattr(broker.tables.offsets, "by_place", None)
    assert expire(broker, force_unread=True)
    assert "messages that retention deletes unread are not counted" in caplog.text


def test_a_replica_knows_ended_half_messages_by_its_masters_progress(broker: LocalBroker) -> None:
    fill(broker, 7, properties=WAITING[names.HALF_TOPIC])
    fill(broker, 14)
    broker.tables.offsets.commit("g", "orders", 0, 14)
    assert expire(broker) == 0
    broker.tables.offsets.commit("CID_RMQ_SYS_TRANS", names.HALF_TOPIC, 0, 7)
    assert expire(broker)


def test_a_queue_that_its_topic_has_no_more_keeps_nothing(broker: LocalBroker) -> None:
    fill(broker, 7, queue_id=1)
    fill(broker, 14)
    broker.tables.offsets.commit("g", "orders", 0, 14)
    assert expire(broker) == 0
    broker.put_topic("orders", 1)
    assert expire(broker)
    assert taken(broker) == {("g", "orders"): 7}


def test_traces_that_no_group_reads_keep_nothing(broker: LocalBroker) -> None:
    fill(broker, 30, names.TRACE_TOPIC)
    assert expire(broker)
    assert taken(broker) == {}


def test_a_replica_counts_nothing_since_its_master_does(broker: LocalBroker) -> None:
    fill(broker, 30)
    role = broker.replication.role
    role.change(replace(role.current, role=BrokerRole.SLAVE, broker_id=1))
    assert expire(broker, force_unread=True)
    assert taken(broker) == {}


def test_messages_lost_already_keep_nothing(broker: LocalBroker) -> None:
    assert expire(broker) == 0
    assert taken(broker) == {}
