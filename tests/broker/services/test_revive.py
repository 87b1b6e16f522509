"""What was popped and not acknowledged in time comes again, also after a restart."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import LocalBroker, failing

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.services import revive
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import MessageIllegal, StoreFull
from roquet.model.names import REVIVE_GROUP
from roquet.model.topic import SubscriptionGroup
from roquet.rules.consumption.pop import PopCheckpoint
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Draft
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.records.record import Record, decode_many, to_message
from roquet.wire.revive_records import AckBody, CheckpointBody, encode_body, revive_properties

NOTES = "rmq_sys_REVIVE_LOG_DefaultCluster"
RETRY, RETRY_V1 = "%RETRY%g+t", "%RETRY%g_t"


def config(**settings: Any) -> BrokerConfig:
    values: dict[str, Any] = {
        "host": "127.0.0.1", "port": 0, "store_dir": Path("/memory"), "log_file_size": 1 << 19,
        "queue_file_entries": 2_000, "index_slots": 500, "index_entries": 2_000, **settings,
    }  # fmt: skip
    return BrokerConfig(**values)


def give(broker: Broker, count: int = 3, topic: str = "t", **fields: Any) -> PopCheckpoint:
    """Store so many messages, and give them out."""
    broker.tables.groups.find("g", 1)
    start = broker.log.store.bounds(topic, 0)[1]
    for n in range(count):
        broker.log.store.append(Draft(topic, 0, b"%d" % n, b"KEYS\x01k\x02TAGS\x01a\x02", 97), 5)
    bits = (1 << count) - 1
    arguments: dict[str, Any] = {
        "group": "g", "topic": topic, "queue_id": 0, "start": start,
        "pop_ms": broker.control.clock.now_ms(), "invisible_ms": 1_000,
        "delivered": bits, "left": bits,
        "revive_queue_id": 0, "revive_offset": 0, **fields,
    }  # fmt: skip
    checkpoint = PopCheckpoint(**arguments)
    broker.delivery.revive.give(checkpoint)
    broker.tables.offsets.commit("g", topic, 0, start + count)
    return checkpoint


def stored(broker: Broker, topic: str) -> list[Any]:
    messages = broker.log.store.read(topic, 0, 0, count_max=1_000)
    return [to_message(record) for part in messages.parts for record in decode_many(part)]


async def later(broker: Broker, ms: int) -> None:
    await broker.delivery.revive.step(broker.control.clock.now_ms() + ms)


async def test_unacknowledged_messages_return_in_the_retry_topic(broker: LocalBroker) -> None:
    checkpoint = give(broker)
    broker.delivery.revive.settle(checkpoint, 0b010)
    await later(broker, 900)
    assert broker.tables.topics.get(RETRY) is None
    await later(broker, 1_000)
    first, last = stored(broker, RETRY)
    assert (first.body, last.body) == (b"0", b"2")
    assert first.reconsume_times == 1
    assert first.properties["1ST_POP_TIME"] == str(checkpoint.pop_ms)
    assert (first.tag, first.properties["KEYS"]) == ("a", "k")
    assert first.properties["RETRY_TOPIC"] == "t"
    assert len(broker.delivery.revive.in_flight) == 0
    await later(broker, 10_000)
    assert len(stored(broker, RETRY)) == 2


@pytest.mark.parametrize(("settings", "goal"), [
    ({}, RETRY), ({"retry_topic_v2": True}, RETRY), ({"retry_topic_v2": False}, RETRY_V1),
])  # fmt: skip
async def test_messages_move_from_the_older_name(broker: LocalBroker, goal: str) -> None:
    give(broker, 1, RETRY_V1)
    await later(broker, 1_000)
    assert stored(broker, goal)[-1].properties["RETRY_TOPIC"] == "t"
    assert len(stored(broker, RETRY_V1)) == (2 if goal == RETRY_V1 else 1)


async def test_what_is_popped_of_another_retry_topic_stays_there(broker: LocalBroker) -> None:
    give(broker, 1, "%RETRY%h")
    await later(broker, 1_000)
    assert [m.reconsume_times for m in stored(broker, "%RETRY%h")] == [0, 1]


@pytest.mark.parametrize("settings", [{"retry_topic_v2": False}])
async def test_a_property_of_the_sender_does_not_say_what_was_popped(broker: LocalBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_max_times=1), 1)
    checkpoint = give(broker, 1)
    start = checkpoint.start + 1
    broker.log.store.append(Draft("t", 0, b"x", b"RETRY_TOPIC\x01elsewhere\x02"), 5)
    broker.delivery.revive.give(msgspec.structs.replace(checkpoint, start=start))
    await later(broker, 1_000)
    assert [m.properties["RETRY_TOPIC"] for m in stored(broker, RETRY_V1)] == ["t", "t"]


async def test_the_time_of_the_first_pop_is_kept(broker: LocalBroker) -> None:
    first = give(broker, 1)
    await later(broker, 1_000)
    again = PopCheckpoint(
        group="g", topic=RETRY, queue_id=0, start=0, pop_ms=first.pop_ms + 5, invisible_ms=1,
        delivered=1, left=1, revive_queue_id=1, revive_offset=0,
    )  # fmt: skip
    broker.delivery.revive.give(again)
    await later(broker, 1_000)
    _, second = stored(broker, RETRY)
    assert second.reconsume_times == 2
    assert second.properties["1ST_POP_TIME"] == str(first.pop_ms)


async def test_a_message_becomes_a_dead_letter_after_its_last_try(broker: LocalBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_max_times=0), 1)
    give(broker, 1)
    await later(broker, 1_000)
    (dead,) = stored(broker, "%DLQ%g")
    assert dead.body == b"0"
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "t"
    assert "DELAY" not in dead.properties
    assert broker.tables.topics.get(RETRY) is None


async def test_a_full_disk_only_puts_it_off(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(broker, 2)

    with monkeypatch.context() as patch:
        patch.setattr(broker.log.ingest, "reappend", failing(StoreFull("no room")))
        await later(broker, 1_000)
    assert len(broker.delivery.revive.in_flight) == 1
    await later(broker, 3_000)
    assert [message.body for message in stored(broker, RETRY)] == [b"0", b"1"]


async def test_a_message_that_retention_deleted_holds_up_no_others(broker: LocalBroker) -> None:
    give(broker, 1)
    give(broker, 1, topic="u")
    broker.log.store.delete_topic("t")
    await later(broker, 1_000)
    assert len(stored(broker, "%RETRY%g+u")) == 1
    assert len(broker.delivery.revive.in_flight) == 0


async def test_a_message_without_room_for_a_property_comes_again(broker: LocalBroker) -> None:
    broker.tables.groups.find("g", 1)
    properties = b"RETRY_TOPIC\x01u\x02KEYS\x01" + b"k" * 32_740 + b"\x02"
    broker.log.store.append(Draft("t", 0, b"x", properties), 5)
    checkpoint = PopCheckpoint(
        group="g", topic="t", queue_id=0, start=0, pop_ms=1, invisible_ms=1, delivered=1, left=1,
        revive_queue_id=0, revive_offset=0,
    )  # fmt: skip
    broker.delivery.revive.give(checkpoint)
    await later(broker, 0)
    (again,) = stored(broker, RETRY)
    assert again.reconsume_times == 1
    assert "RETRY_TOPIC" not in again.properties, "what the sender wrote there is not true"


async def test_revive_messages_equal_those_of_apaches_broker(broker: LocalBroker) -> None:
    checkpoint = give(broker)
    broker.delivery.revive.settle(checkpoint, 0b001)
    broker.delivery.revive.settle(checkpoint, 0b110)
    notes = [(message.tag, json.loads(message.body)) for message in stored(broker, NOTES)]
    key = {"c": "g", "t": "t", "q": 0, "so": 0, "pt": checkpoint.pop_ms, "bn": "broker-a"}
    assert notes == [
        ("ck", {**key, "it": 1_000, "n": 3, "d": [0, 1, 2]}),
        ("ack", {**key, "ao": 0}),
        ("bAck", {**key, "aol": [1, 2]}),
    ]


async def test_progress_in_the_revive_topic_stops_at_the_oldest_open_checkpoint(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in genuine brokers: the last note that is done with, nothing while there is none.
    first, second = give(broker, 1), give(broker, 1, invisible_ms=90_000)
    broker.delivery.revive.commit()
    assert broker.tables.offsets.get(REVIVE_GROUP, NOTES, 0) is None
    broker.delivery.revive.settle(first, 1)
    broker.delivery.revive.commit()
    assert broker.tables.offsets.get(REVIVE_GROUP, NOTES, 0) == 0
    monkeypatch.setattr("roquet.rules.consumption.pop.REVIVE_LAG_MAX", 2)
    for _ in range(4):
        third = give(broker, 1)
        broker.delivery.revive.settle(third, 1)
    broker.delivery.revive.commit()
    assert second.revive_offset == 11, "it was noted anew"
    assert broker.tables.offsets.get(REVIVE_GROUP, NOTES, 0) == 10
    broker.delivery.revive.settle(second, 1)
    broker.delivery.revive.commit()
    assert broker.tables.offsets.get(REVIVE_GROUP, NOTES, 0) == 12


async def test_two_revive_messages_never_have_the_same_key(broker: LocalBroker) -> None:
    checkpoint = give(broker, 1)
    place = ("g", "t", 0, checkpoint.start)
    assert broker.delivery.revive.fresh_pop_ms(place, checkpoint.pop_ms) == checkpoint.pop_ms + 1
    assert (
        broker.delivery.revive.fresh_pop_ms(place, checkpoint.pop_ms + 9) == checkpoint.pop_ms + 9
    )


@in_virtual_time
async def test_popped_messages_stay_invisible_after_a_kill() -> None:
    clock, files = this_loop().clock, MemoryFiles()
    async with BrokerServer(config(), clock, files=files) as server:
        checkpoint = give(server.broker, invisible_ms=60_000, is_suspended=True)
        server.broker.delivery.revive.settle(checkpoint, 0b100)
        copy = files.copy()
    async with BrokerServer(config(), clock, files=copy) as server:
        broker = server.broker
        (again,) = broker.delivery.revive.in_flight
        assert (again.key, again.left, again.due_ms) == (checkpoint.key, 0b011, checkpoint.due_ms)
        assert broker.tables.offsets.get("g", "t", 0) == 3, (
            "progress that was not saved is made up for"
        )
        await clock.sleep(60_300)
        assert [message.reconsume_times for message in stored(broker, RETRY)] == [0, 0]


@in_virtual_time
async def test_progress_that_an_operator_set_back_stays_so() -> None:
    clock, files = this_loop().clock, MemoryFiles()
    async with BrokerServer(config(), clock, files=files) as server:
        give(server.broker, invisible_ms=60_000)
        server.broker.tables.offsets.commit("g", "t", 0, 0)
    async with BrokerServer(config(), clock, files=files) as server:
        assert server.broker.tables.offsets.get("g", "t", 0) == 0


@in_virtual_time
async def test_malformed_revive_messages_are_skipped() -> None:
    clock, files = this_loop().clock, MemoryFiles()
    async with BrokerServer(config(), clock, files=files) as server:
        broker = server.broker
        for body in (b"{", b"[]", b'{"so":-5}', b'{"so":1,"pt":1,"it":1,"n":99999999}', b"\xff"):
            for tag in ("ck", "ack", "bAck", "other"):
                broker.log.store.append(Draft(NOTES, 0, body, revive_properties(tag, 1), 1), 1)
        wild = b'{"ao":99,"aol":[-1,1000000000000],"c":"g","t":"t","q":0,"so":0,"pt":7,"bn":"b"}'
        give(broker, pop_ms=7, invisible_ms=10**12 * 10)
        broker.log.store.append(Draft(NOTES, 0, wild, revive_properties("bAck", 1), 1), 1)
        copy = files.copy()
    async with BrokerServer(config(), clock, files=copy) as server:
        (checkpoint,) = server.broker.delivery.revive.in_flight
        assert checkpoint.left == 0b111


async def test_checkpoints_in_flight_are_not_appended_again_for_ever(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.rules.consumption.pop.REVIVE_LAG_MAX", 4)
    for _ in range(12):
        give(broker, 1, invisible_ms=90_000)
    for _ in range(5):
        broker.delivery.revive.commit()
    assert broker.log.store.bounds(NOTES, 0) == (0, 12)


async def test_a_limited_number_of_checkpoints_is_appended_again_at_once(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.rules.consumption.pop.REVIVE_LAG_MAX", 4)
    monkeypatch.setattr(revive, "RENOTE_COUNT", 8 * 3)  # three in each of the eight queues
    first = [give(broker, 1, invisible_ms=90_000) for _ in range(5)]
    for _ in range(20):
        broker.delivery.revive.settle(checkpoint := give(broker, 1), checkpoint.left)
    assert broker.log.store.bounds(NOTES, 0)[1] == 45
    broker.delivery.revive.commit()
    assert broker.log.store.bounds(NOTES, 0)[1] == 48
    broker.delivery.revive.commit()
    assert [checkpoint.revive_offset for checkpoint in first] == [45, 46, 47, 48, 49]


async def test_a_message_with_the_most_tries_becomes_a_dead_letter(broker: LocalBroker) -> None:
    most = 2**31 - 1
    broker.tables.groups.find("g", 1)
    broker.log.store.append(Draft("t", 0, b"worn", b"", reconsume_times=most), 5)
    give(broker, 1)
    again = PopCheckpoint(
        group="g", topic="t", queue_id=0, start=0, pop_ms=1, invisible_ms=1, delivered=1, left=1,
        revive_queue_id=0, revive_offset=0,
    )  # fmt: skip
    broker.delivery.revive.give(again)
    await later(broker, 1_000)
    (dead,) = stored(broker, "%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"worn", most)
    assert len(stored(broker, RETRY)) == 1
    assert len(broker.delivery.revive.in_flight) == 0


async def test_a_message_that_fails_to_be_revived_becomes_a_dead_letter_and_others_return(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(broker, 1)
    give(broker, 1, topic="u")
    as_it_is = broker.log.ingest.reappend

    def stumble(record: Record, *, topic: str, **fields: Any) -> Any:
        if topic == RETRY:
            raise ZeroDivisionError("odd")
        return as_it_is(record, topic=topic, **fields)

    monkeypatch.setattr(broker.log.ingest, "reappend", stumble)
    await later(broker, 1_000)
    assert len(stored(broker, "%RETRY%g+u")) == 1
    assert len(stored(broker, "%DLQ%g")) == 1
    assert len(broker.delivery.revive.in_flight) == 0


async def test_a_message_too_large_to_be_revived_becomes_a_dead_letter_and_others_return(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    as_it_is = broker.log.ingest.reappend

    def refuse(record: Record, *, properties: dict[str, str], **fields: Any) -> Any:
        if properties and record.body == b"0":
            raise MessageIllegal("too much")
        return as_it_is(record, properties=properties, **fields)

    monkeypatch.setattr(broker.log.ingest, "reappend", refuse)
    give(broker, 2)
    await later(broker, 1_000)
    assert [message.body for message in stored(broker, RETRY)] == [b"1"]
    (dead,) = stored(broker, "%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"0", 1)
    assert len(broker.delivery.revive.in_flight) == 0
    assert "offset 0 of t queue 0 cannot come again" in caplog.text


async def test_a_message_that_can_be_stored_nowhere_is_logged_and_dropped_from_flight(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    give(broker, 2)

    monkeypatch.setattr(broker.log.ingest, "reappend", failing(MessageIllegal("too much")))
    await later(broker, 1_000)
    assert len(broker.delivery.revive.in_flight) == 0
    assert caplog.text.count("revive set a message aside: t/0/") == 2
    assert broker.delivery.set_aside.total == 2
    monkeypatch.undo()
    for part in broker.log.store.read("rmq_sys_roquet_set_aside", 0, 0).parts:
        for kept in decode_many(part):
            broker.delivery.set_aside.retry(kept)
    assert [message.body for message in stored(broker, RETRY)] == [b"0", b"1"]


@in_virtual_time
async def test_popped_messages_of_a_deleted_topic_do_not_return() -> None:
    clock, files = this_loop().clock, MemoryFiles()
    async with BrokerServer(config(), clock, files=files) as server:
        broker = server.broker
        checkpoint, other = give(broker), give(broker, topic="u")
        broker.delivery.revive.settle(checkpoint, 0b001)
        broker.delivery.revive.forget(["t"])
        assert list(broker.delivery.revive.in_flight) == [other]
        broker.log.store.delete_topic("t")
        broker.tables.offsets.remove_topics(["t"])
        copy = files.copy()
    async with BrokerServer(config(), clock, files=copy) as server:
        broker = server.broker
        assert [again.topic for again in broker.delivery.revive.in_flight] == ["u"]
        assert broker.tables.offsets.get("g", "t", 0) is None
        await clock.sleep(2_000)
        assert stored(broker, RETRY) == []


async def test_revive_messages_from_the_timer_of_apaches_are_taken(broker: LocalBroker) -> None:
    checkpoint = give(broker, 2)
    broker.delivery.revive.settle(checkpoint, 0b11)
    before = broker.control.clock.now_ms() - 60_000
    noted = CheckpointBody(
        group="g", topic="t", queue_id=0, start=0, pop_ms=before, invisible_ms=5_000, count=2,
        steps=[0, 1],
    )  # fmt: skip
    acked = AckBody(group="g", topic="t", queue_id=0, start=0, pop_ms=before, offset=0)
    for offset, (tag, body) in enumerate((("ck", noted), ("ack", acked), ("ck", None))):
        raw = b"spoilt" if body is None else encode_body(body)
        record = make_record(raw, revive_properties(tag, before))
        broker.delivery.revive.noted(record, 3, 70 + offset)
    assert broker.tables.offsets.get("CID_RMQ_SYS_REVIVE_NOTED", NOTES, 3) == 73
    await later(broker, 2_000)
    assert broker.tables.topics.get(RETRY) is None  # an acknowledgement may still be on its way
    await later(broker, 4_000)
    assert [message.body for message in stored(broker, RETRY)] == [b"1"]


def make_record(body: bytes, properties: bytes) -> Record:
    host = b"\x7f\x00\x00\x01\x00\x00\x00\x01"
    return Record(
        "rmq_sys_wheel_timer", 0, 0, 0, 0, body, properties, 0, 0, 5, host, 5, host, 0, 0, 0
    )
