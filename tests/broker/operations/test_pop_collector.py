from typing import Any

import msgspec
import pytest
from tests.broker.conftest import LocalBroker, not_none

from roquet.broker.operations.pop_collector import PopCollector, PopRequest
from roquet.model.topic import SubscriptionGroup
from roquet.store.store import Draft
from roquet.wire.receipt_handle import decode_receipt_handle
from roquet.wire.records.record import decode_many, to_message


def begun(broker: LocalBroker, **fields: Any) -> PopCollector:
    """A collector of all messages of topic t, for group g."""
    arguments: dict[str, Any] = {
        "group": "g", "topic": "t", "queue_id": -1, "queue_count": 4, "count": 32,
        "invisible_ms": 60_000, "init_mode": 0, "wanted": None, **fields,
    }  # fmt: skip
    request = PopRequest(**arguments)
    return PopCollector(broker.log, broker.delivery, broker.tables, broker.control, request)


def look(broker: LocalBroker, **fields: Any) -> PopCollector:
    collector = begun(broker, **fields)
    collector.collect()
    return collector


@pytest.fixture
def stored(broker: LocalBroker) -> None:
    for n in range(8):
        broker.send(b"%d" % n, topic="t", queue_id=n % 4, default_topic_queue_nums=4)


def put_again(broker: LocalBroker, body: bytes, properties: bytes = b"KEYS\x01k\x02") -> None:
    """A message waits in the group's retry topic."""
    broker.put_topic("%RETRY%g_t", 1)
    broker.log.store.append(Draft("%RETRY%g_t", 0, body, properties, reconsume_times=2), 5)


@pytest.mark.usefixtures("stored")
async def test_no_more_is_taken_than_asked_for_and_the_rest_is_counted(broker: LocalBroker) -> None:
    collector = look(broker, count=3)
    assert (collector.count, collector.rest) == (3, 5)
    assert len(broker.delivery.revive.in_flight) == 2, "one checkpoint for each queue"
    assert len(broker.delivery.revive.unconfirmed) == 0, "all is confirmed without replicas"
    assert look(broker).count == 5


@pytest.mark.usefixtures("stored")
async def test_the_retry_topic_fills_up_under_the_name_of_the_topic(broker: LocalBroker) -> None:
    put_again(broker, b"again")
    collector = look(broker)
    messages = [to_message(record) for part in collector.parts for record in decode_many(part)]
    (again,) = [message for message in messages if message.reconsume_times]
    assert (again.topic, again.body, len(messages)) == ("t", b"again", 9)
    handle = decode_receipt_handle(again.properties["POP_CK"])
    assert (handle.retry, handle.queue_id, handle.offset) == ("1", 0, 0)
    assert "1 0 0" in collector.offsets
    assert again.properties["KEYS"] == "k"


def bodies(collector: PopCollector) -> list[bytes]:
    return [to_message(r).body for part in collector.parts for r in decode_many(part)]


def put_failed(broker: LocalBroker, topic: str, body: bytes, origin: str | None) -> None:
    broker.put_topic(topic, 1)
    named = f"RETRY_TOPIC\x01{origin}\x02" if origin else ""
    properties = f"{named}1ST_POP_TIME\x011\x02".encode()
    broker.log.store.append(Draft(topic, 0, body, properties, reconsume_times=1), 5)


@pytest.mark.parametrize("peek", [True, False])
async def test_messages_of_both_retry_topics_are_popped(broker: LocalBroker, peek: bool) -> None:
    put_failed(broker, "%RETRY%g_t", b"older", "t")
    put_failed(broker, "%RETRY%g+t", b"newer", "t")
    assert begun(broker).has_any()
    collector = look(broker, peek=peek)
    assert (bodies(collector), collector.offsets) == ([b"older", b"newer"], ["1 0 0", "2 0 0"])
    assert look(broker).count == (2 if peek else 0)


async def test_a_group_pops_no_message_of_another_group_from_a_retry_topic_that_they_share(
    broker: LocalBroker,
) -> None:
    shared = "%RETRY%pay_eu_orders"
    for n, origin in enumerate(["orders", "eu_orders", "orders", "eu_orders", "orders"]):
        put_failed(broker, shared, b"%d" % n, origin)
    first = look(broker, group="pay", topic="eu_orders")
    second = look(broker, group="pay_eu", topic="orders")
    assert (bodies(first), bodies(second)) == ([b"1", b"3"], [b"0", b"2", b"4"])
    assert (first.offsets, second.offsets) == (["1 0 1,3"], ["1 0 0,2,4"])
    delivered = {c.group: c.delivered for c in broker.delivery.revive.in_flight}
    assert delivered == {"pay": 0b01010, "pay_eu": 0b10101}
    put_failed(broker, shared, b"5", "orders")
    assert look(broker, group="pay", topic="eu_orders").count == 0
    assert broker.tables.offsets.get("pay", shared, 0) == 6, "what is another's is passed"


async def test_messages_that_an_older_version_or_apaches_broker_put_there_are_lost_to_nobody(
    broker: LocalBroker,
) -> None:
    shared = "%RETRY%pay_eu_orders"
    put_failed(broker, shared, b"says nothing", None)
    put_failed(broker, shared, b"was sent again from elsewhere", "invoices")
    broker.log.store.append(Draft(shared, 0, b"bad properties", b"\xff", reconsume_times=1), 5)
    for group, topic in (("pay", "eu_orders"), ("pay_eu", "orders")):
        assert look(broker, group=group, topic=topic).count == 3


async def test_a_group_pops_no_message_of_one_that_pulls_a_retry_topic(broker: LocalBroker) -> None:
    shared = "%RETRY%pay_eu_orders"
    put_failed(broker, shared, b"popped", "eu_orders")
    sent_back = b"RETRY_TOPIC\x01flights\x02"
    broker.log.store.append(Draft(shared, 0, b"pulled", sent_back, reconsume_times=1), 5)
    assert bodies(look(broker, group="pay", topic="eu_orders")) == [b"popped"]


@pytest.mark.usefixtures("stored")
async def test_some_pops_read_the_retry_topic_first(broker: LocalBroker) -> None:
    first = 0
    for _ in range(200):
        put_again(broker, b"again")
        collector = look(broker, count=1, peek=True)
        first += collector.offsets[0].startswith("1 ")
    assert 15 <= first <= 70


@pytest.mark.usefixtures("stored")
async def test_a_message_without_room_for_a_handle_keeps_its_own_topic(broker: LocalBroker) -> None:
    put_again(broker, b"again", b"KEYS\x01" + b"k" * 32_745 + b"\x02")
    collector = look(broker)
    topics = {record.topic for part in collector.parts for record in decode_many(part)}
    assert topics == {"t", "%RETRY%g_t"}


@pytest.mark.usefixtures("stored")
async def test_a_group_without_progress_begins_where_it_says(broker: LocalBroker) -> None:
    empty = msgspec.structs.replace(broker.log, memory=0)  # nothing is young
    broker = msgspec.structs.replace(broker, log=empty)
    assert look(broker, init_mode=1).count == 0
    assert broker.tables.offsets.get("g", "t", 0) == 2
    assert look(broker, group="h", init_mode=0).count == 8


@pytest.mark.usefixtures("stored")
async def test_progress_that_the_queue_does_not_hold_is_mended(broker: LocalBroker) -> None:
    for queue_id in range(4):
        broker.tables.offsets.commit("g", "t", queue_id, 99)
    assert look(broker).count == 8


@pytest.mark.usefixtures("stored")
async def test_an_ordered_pop_takes_nothing_from_a_queue_that_is_held(broker: LocalBroker) -> None:
    assert look(broker, order=True, attempt="a", queue_id=0, count=1).count == 1
    collector = look(broker, order=True, attempt="b", queue_id=0)
    assert (collector.count, collector.rest) == (0, 2)
    assert collector.blocked_until_ms is not None
    assert not begun(broker, order=True, attempt="b", queue_id=0).has_any()
    assert begun(broker, queue_id=1).has_any()


@pytest.mark.usefixtures("stored")
async def test_remaining_messages_are_reported_to_waiting_pops(broker: LocalBroker) -> None:
    put_again(broker, b"again")
    assert look(broker, queue_id=1, count=1, peek=True).others <= {1, -1}
    assert look(broker, queue_id=1, count=3, peek=True).others == set()
    put_again(broker, b"once more")  # of two, one is left whichever topic is read first
    assert look(broker, count=1, peek=True).others == {-1, 0, 1, 2, 3}
    watching = begun(broker, queue_id=1)
    assert watching.has_any()
    assert watching.others == {1, -1}
    assert not look(broker).moved


def put_prioritized(broker: LocalBroker, **attributes: str) -> None:
    """A topic of priorities with a message of each, the lowest first; the group's attributes."""
    broker.put_topic("t", 4, attributes={"message.type": "PRIORITY"})
    group = SubscriptionGroup(
        group_name="g", attributes={k.replace("_", "."): v for k, v in attributes.items()}
    )
    broker.tables.groups.put(group, 1)
    for priority in range(4):
        broker.send(b"%d" % priority, topic="t", properties=f"_SYS_MSG_PRIORITY_\x01{priority}\x02")


def look_by_priority(broker: LocalBroker, **fields: Any) -> list[bytes]:
    return bodies(look(broker, by_priority=True, **fields))


async def test_a_pop_takes_the_highest_priority_first(broker: LocalBroker) -> None:
    put_prioritized(broker)
    assert look_by_priority(broker, count=1) == [b"3"]
    assert look_by_priority(broker) == [b"2", b"1", b"0"]


async def test_the_lowest_number_may_be_the_highest_priority(broker: LocalBroker) -> None:
    put_prioritized(broker, priority_ageing_ms="60000")
    broker.configure(priorityOrderAsc="false")
    assert look_by_priority(broker) == [b"0", b"1", b"2", b"3"]


async def test_a_factor_of_0_reads_the_queues_in_turn(broker: LocalBroker) -> None:
    put_prioritized(broker, priority_factor="0")
    firsts = {bodies(look(broker, by_priority=True, count=1, peek=True))[0] for _ in range(100)}
    assert firsts == {b"0", b"1", b"2", b"3"}


async def test_messages_that_have_failed_keep_their_priority(broker: LocalBroker) -> None:
    put_prioritized(broker)
    low, high = [look(broker, queue_id=queue_id, invisible_ms=1) for queue_id in (0, 3)]
    assert bodies(low) + bodies(high) == [b"0", b"3"]
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 5)
    assert not_none(broker.tables.topics.get("%RETRY%g+t")).read_queue_nums == 4
    assert begun(broker, by_priority=True).has_any()
    collector = look(broker, by_priority=True)
    assert bodies(collector) == [b"3", b"2", b"1", b"0"]
    assert collector.offsets == ["2 3 0", "0 2 0", "0 1 0", "2 0 0"]


async def test_messages_that_have_failed_come_from_all_queues_of_their_topic_to_any_pop(
    broker: LocalBroker,
) -> None:
    put_prioritized(broker)
    look(broker, invisible_ms=1)
    await broker.delivery.revive.step(broker.control.clock.now_ms() + 5)
    assert sorted(bodies(look(broker))) == [b"0", b"1", b"2", b"3"]


async def test_a_message_that_has_waited_for_long_goes_before_higher_ones(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_prioritized(broker, priority_ageing_ms="1000")
    late_ms = broker.control.clock.now_ms() + 2_500
    monkeypatch.setattr(broker.control.clock, "now_ms", lambda: late_ms)
    assert look_by_priority(broker, count=1) == [b"3"], "all have waited as long"
    broker.send(b"new", topic="t", properties="_SYS_MSG_PRIORITY_\x013\x02")
    assert look_by_priority(broker) == [b"2", b"new", b"1", b"0"]


@pytest.mark.parametrize(("ageing", "comes"), [({}, False), ({"priority_ageing_ms": "1000"}, True)])
async def test_a_low_priority_comes_in_its_time_while_there_are_always_higher_ones(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, ageing: dict[str, str], comes: bool
) -> None:
    put_prioritized(broker, **ageing)
    now_ms, seen = broker.control.clock.now_ms(), set[bytes]()
    for second in range(1, 9):
        later_ms = now_ms + 1_000 * second
        monkeypatch.setattr(broker.control.clock, "now_ms", lambda: later_ms)  # noqa: B023 - now
        for _ in range(2):
            broker.send(b"new", topic="t", properties="_SYS_MSG_PRIORITY_\x013\x02")
        seen |= {*look_by_priority(broker, count=1), *look_by_priority(broker, count=1)}
    assert (b"0" in seen) is comes
