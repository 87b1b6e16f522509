from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, failing, make_send, not_none

from roquet.model.errors import CallRefused, StoreError
from roquet.model.topic import SubscriptionGroup
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from roquet.wire.calls.send import SendBack
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def stored(broker: LocalBroker, **fields: Any) -> Record:
    text = "TAGS\x01red\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01k\x02mine\x01yes\x02"
    reply = broker.ask(make_send(b"body", flag=7, properties=text, **fields))
    assert reply.code == 0
    return record(broker, "orders", 0, reply.queue_offset)


def record(broker: LocalBroker, topic: str, queue_id: int, offset: int = 0) -> Record:
    return decode(broker.log.store.read(topic, queue_id, offset, count_max=1).parts[0])


def back(broker: LocalBroker, failed: Record, level: int = 0, **fields: Any) -> Any:
    return broker.ask(SendBack(offset=failed.position, group="g", delay_level=level, **fields))


async def test_a_failed_message_waits_ten_seconds_for_its_second_try(broker: LocalBroker) -> None:
    first = stored(broker)
    assert back(broker, first).code == 0
    waiting = record(broker, SCHEDULE, 2)
    assert (waiting.body, waiting.flag, waiting.reconsume_times) == (b"body", 7, 1)
    assert (waiting.born_ms, waiting.born_host) == (first.born_ms, first.born_host)
    own_id = broker.log.ingest.message_id(first.position)
    assert decode_properties(waiting.properties) == {
        "TAGS": "red", "KEYS": "k1 k2", "UNIQ_KEY": "k", "mine": "yes", "WAIT": "false",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": own_id,
        "DELAY": "3", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0",
    }  # fmt: skip
    assert not_none(broker.tables.topics.get("%RETRY%g")).write_queue_nums == 1


@pytest.mark.parametrize(
    ("topic", "queue_id", "properties"),
    [
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, "TRAN_MSG\x01true\x02PGROUP\x01g\x02"),
        ("rmq_sys_wheel_timer", 0, "TIMER_DELAY_SEC\x0160\x02"),
        (SCHEDULE, 4, "DELAY\x015\x02"),
    ],
)
@pytest.mark.parametrize("level", [0, -1])
async def test_an_undelivered_message_cannot_be_sent_back(
    broker: LocalBroker, topic: str, queue_id: int, properties: str, level: int
) -> None:
    broker.send(properties=properties)
    end = broker.log.store.end_position
    with pytest.raises(CallRefused, match="was not given to anybody"):
        back(broker, record(broker, topic, queue_id), level)
    assert broker.log.store.end_position == end


async def test_no_number_of_tries_is_too_large(broker: LocalBroker) -> None:
    most = 2**31 - 1
    back(broker, stored(broker, reconsume_times=most))
    assert record(broker, "%DLQ%g", 0).reconsume_times == most


@pytest.mark.parametrize(("times", "level"), [(0, 3), (3, 6), (15, 18)])
async def test_each_try_waits_longer(broker: LocalBroker, times: int, level: int) -> None:
    back(broker, stored(broker, reconsume_times=times))
    assert record(broker, SCHEDULE, level - 1).reconsume_times == times + 1


@pytest.mark.parametrize(("level", "queue"), [(1, 0), (18, 17), (99, 17)])
async def test_a_member_may_choose_the_level(broker: LocalBroker, level: int, queue: int) -> None:
    back(broker, stored(broker), level)
    assert broker.log.store.bounds(SCHEDULE, queue) == (0, 1)


@pytest.mark.parametrize(
    ("times", "level", "asked"), [(16, 0, None), (16, 5, None), (0, -1, None), (2, 0, 2), (0, 0, 0)]
)
async def test_a_message_without_another_try_is_a_dead_letter(
    broker: LocalBroker, times: int, level: int, asked: int | None
) -> None:
    failed = stored(broker, reconsume_times=times)
    back(broker, failed, level, max_reconsume_times=asked)
    dead = record(broker, "%DLQ%g", 0)
    properties = decode_properties(dead.properties)
    assert (dead.body, dead.reconsume_times) == (b"body", times + 1)
    assert (properties["DLQ_ORIGIN_TOPIC"], properties["DLQ_ORIGIN_MESSAGE_ID"]) == ("orders", "k")
    assert properties["DELAY"] == "0"
    topic = not_none(broker.tables.topics.get("%DLQ%g"))
    assert (topic.write_queue_nums, topic.perm) == (1, 6)


async def test_more_tries_may_be_asked_for_than_there_are_levels(broker: LocalBroker) -> None:
    failed = stored(broker, reconsume_times=40)
    back(broker, failed, max_reconsume_times=100)
    assert broker.log.store.bounds(SCHEDULE, len(DEFAULT_LEVELS) - 1) == (0, 1)


async def test_a_group_without_retries_gets_no_retry_message(broker: LocalBroker) -> None:
    failed = stored(broker)
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_queue_nums=0), 0)
    end = broker.log.store.end_position
    assert back(broker, failed).code == 0
    assert broker.log.store.end_position == end


async def test_retries_are_spread_over_the_groups_queues(broker: LocalBroker) -> None:
    failed = stored(broker)
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_queue_nums=4), 0)
    for _ in range(40):
        back(broker, failed)
    waiting = [record(broker, SCHEDULE, 2, offset) for offset in range(40)]
    assert {decode_properties(retry.properties)["REAL_QID"] for retry in waiting} == {*"0123"}


def refusal(broker: LocalBroker, call: SendBack) -> int:
    end = broker.log.store.end_position
    with pytest.raises(CallRefused) as refused:
        broker.ask(call)
    assert broker.log.store.end_position == end
    return refused.value.code


@pytest.mark.parametrize("offset", [-1, 1, 10**12])
async def test_a_position_inside_a_record_is_no_message(broker: LocalBroker, offset: int) -> None:
    stored(broker)
    call = SendBack(offset=offset, group="g", delay_level=0)
    assert refusal(broker, call) == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("settings", [{"auto_create_group": False}])
async def test_an_unknown_group_is_refused(broker: LocalBroker) -> None:
    call = SendBack(offset=0, group="g", delay_level=0)
    assert refusal(broker, call) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("settings", [{"permission": 4}])
async def test_a_broker_that_is_only_read_takes_nothing_back(broker: LocalBroker) -> None:
    call = SendBack(offset=0, group="g", delay_level=0)
    assert refusal(broker, call) == ResponseCode.NO_PERMISSION


async def test_a_retry_topic_that_is_only_read_takes_nothing_back(broker: LocalBroker) -> None:
    failed = stored(broker)
    broker.put_topic("%RETRY%g", perm=4)
    call = SendBack(offset=failed.position, group="g", delay_level=0)
    assert refusal(broker, call) == ResponseCode.NO_PERMISSION


async def test_a_store_that_refuses_messages_is_reported(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = stored(broker)

    monkeypatch.setattr(broker.log.store, "append", failing(StoreError("the disk is gone")))
    call = SendBack(offset=failed.position, group="g", delay_level=0)
    assert refusal(broker, call) == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("settings", [{"sync_flush": True}])
async def test_the_answer_comes_when_the_message_is_on_the_disk(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = await broker.send(properties="UNIQ_KEY\x01k\x02")
    failed = record(broker, "orders", 0, reply.queue_offset)
    assert (await back(broker, failed)).code == 0
    assert broker.log.store.flushed_position == broker.log.store.end_position

    async def never(*_: int) -> bool:
        return False

    monkeypatch.setattr(broker.log.flush, "durable", never)
    with pytest.raises(CallRefused, match="not yet on the disk"):
        await back(broker, failed)


async def test_a_message_without_room_for_properties_is_a_dead_letter(broker: LocalBroker) -> None:
    text = f"UNIQ_KEY\x01k\x02long\x01{'x' * 32_650}\x02"
    assert broker.send(b"body", properties=text).code == 0
    assert back(broker, record(broker, "orders", 0)).code == 0
    dead = record(broker, "%DLQ%g", 0)
    assert (dead.body, dead.reconsume_times) == (b"body", 1)
    assert len(decode_properties(dead.properties)["long"]) == 32_650
