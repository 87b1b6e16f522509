from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.handlers.messages.send_back import SendBackHandler
from roquet.model.errors import CallRefused, StoreError
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from roquet.wire.calls.send import SendBack
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def stored(broker: Broker, peer: FakePeer, message: MakeSend, **fields: Any) -> Record:
    text = "TAGS\x01red\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01k\x02mine\x01yes\x02"
    reply: Any = broker.bind(SendHandler.send)(
        message(b"body", flag=7, properties=text, **fields), peer
    )
    assert reply.code == 0
    return record(broker, "orders", 0, reply.queue_offset)


def record(broker: Broker, topic: str, queue_id: int, offset: int = 0) -> Record:
    return decode(broker.log.store.read(topic, queue_id, offset, count_max=1).parts[0])


def back(broker: Broker, peer: FakePeer, failed: Record, level: int = 0, **fields: Any) -> Any:
    call = SendBack(offset=failed.position, group="g", delay_level=level, **fields)
    return broker.bind(SendBackHandler.send_back)(call, peer)


async def test_a_failed_message_waits_ten_seconds_for_its_second_try(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    first = stored(broker, peer, message)
    assert back(broker, peer, first).code == 0
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
    topic = broker.tables.topics.get("%RETRY%g")
    assert topic is not None
    assert topic.write_queue_nums == 1


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
    broker: Broker,
    peer: FakePeer,
    message: MakeSend,
    topic: str,
    queue_id: int,
    properties: str,
    level: int,
) -> None:
    broker.bind(SendHandler.send)(message(properties=properties), peer)
    end = broker.log.store.end_position
    with pytest.raises(CallRefused, match="was not given to anybody"):
        back(broker, peer, record(broker, topic, queue_id), level)
    assert broker.log.store.end_position == end


async def test_no_number_of_tries_is_too_large(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    most = 2**31 - 1
    back(broker, peer, stored(broker, peer, message, reconsume_times=most))
    assert record(broker, "%DLQ%g", 0).reconsume_times == most


@pytest.mark.parametrize(("times", "level"), [(0, 3), (3, 6), (15, 18)])
async def test_each_try_waits_longer(
    broker: Broker, peer: FakePeer, message: MakeSend, times: int, level: int
) -> None:
    back(broker, peer, stored(broker, peer, message, reconsume_times=times))
    assert record(broker, SCHEDULE, level - 1).reconsume_times == times + 1


@pytest.mark.parametrize(("level", "queue"), [(1, 0), (18, 17), (99, 17)])
async def test_a_member_may_choose_the_level(
    broker: Broker, peer: FakePeer, message: MakeSend, level: int, queue: int
) -> None:
    back(broker, peer, stored(broker, peer, message), level)
    assert broker.log.store.bounds(SCHEDULE, queue) == (0, 1)


@pytest.mark.parametrize(
    ("times", "level", "asked"), [(16, 0, None), (16, 5, None), (0, -1, None), (2, 0, 2), (0, 0, 0)]
)
async def test_a_message_without_another_try_is_a_dead_letter(
    broker: Broker, peer: FakePeer, message: MakeSend, times: int, level: int, asked: int | None
) -> None:
    failed = stored(broker, peer, message, reconsume_times=times)
    back(broker, peer, failed, level, max_reconsume_times=asked)
    dead = record(broker, "%DLQ%g", 0)
    properties = decode_properties(dead.properties)
    assert (dead.body, dead.reconsume_times) == (b"body", times + 1)
    assert (properties["DLQ_ORIGIN_TOPIC"], properties["DLQ_ORIGIN_MESSAGE_ID"]) == ("orders", "k")
    assert properties["DELAY"] == "0"
    topic = broker.tables.topics.get("%DLQ%g")
    assert topic is not None
    assert (topic.write_queue_nums, topic.perm) == (1, 6)


async def test_more_tries_may_be_asked_for_than_there_are_levels(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    failed = stored(broker, peer, message, reconsume_times=40)
    back(broker, peer, failed, max_reconsume_times=100)
    assert broker.log.store.bounds(SCHEDULE, len(DEFAULT_LEVELS) - 1) == (0, 1)


async def test_a_group_without_retries_gets_no_retry_message(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    failed = stored(broker, peer, message)
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_queue_nums=0), 0)
    end = broker.log.store.end_position
    assert back(broker, peer, failed).code == 0
    assert broker.log.store.end_position == end


async def test_retries_are_spread_over_the_groups_queues(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    failed = stored(broker, peer, message)
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_queue_nums=4), 0)
    for _ in range(40):
        back(broker, peer, failed)
    waiting = [record(broker, SCHEDULE, 2, offset) for offset in range(40)]
    assert {decode_properties(retry.properties)["REAL_QID"] for retry in waiting} == {
        "0",
        "1",
        "2",
        "3",
    }


def refusal(broker: Broker, peer: FakePeer, call: SendBack) -> int:
    end = broker.log.store.end_position
    with pytest.raises(CallRefused) as refused:
        broker.bind(SendBackHandler.send_back)(call, peer)
    assert broker.log.store.end_position == end
    return refused.value.code


@pytest.mark.parametrize("offset", [-1, 1, 10**12])
async def test_a_position_inside_a_record_is_no_message(
    broker: Broker, peer: FakePeer, message: MakeSend, offset: int
) -> None:
    stored(broker, peer, message)
    call = SendBack(offset=offset, group="g", delay_level=0)
    assert refusal(broker, peer, call) == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("settings", [{"auto_create_group": False}])
async def test_an_unknown_group_is_refused(broker: Broker, peer: FakePeer) -> None:
    call = SendBack(offset=0, group="g", delay_level=0)
    assert refusal(broker, peer, call) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("settings", [{"permission": 4}])
async def test_a_broker_that_is_only_read_takes_nothing_back(
    broker: Broker, peer: FakePeer
) -> None:
    call = SendBack(offset=0, group="g", delay_level=0)
    assert refusal(broker, peer, call) == ResponseCode.NO_PERMISSION


async def test_a_retry_topic_that_is_only_read_takes_nothing_back(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    failed = stored(broker, peer, message)
    broker.tables.topics.put(TopicConfig(topic_name="%RETRY%g", perm=4), 0)
    call = SendBack(offset=failed.position, group="g", delay_level=0)
    assert refusal(broker, peer, call) == ResponseCode.NO_PERMISSION


async def test_a_store_that_refuses_messages_is_reported(
    broker: Broker, peer: FakePeer, message: MakeSend, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = stored(broker, peer, message)

    def broken(*_: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(broker.log.store, "append", broken)
    call = SendBack(offset=failed.position, group="g", delay_level=0)
    assert refusal(broker, peer, call) == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("settings", [{"sync_flush": True}])
async def test_the_answer_comes_when_the_message_is_on_the_disk(
    broker: Broker, peer: FakePeer, message: MakeSend, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply: Any = await broker.bind(SendHandler.send)(message(properties="UNIQ_KEY\x01k\x02"), peer)  # type: ignore[misc]
    failed = record(broker, "orders", 0, reply.queue_offset)
    assert (await back(broker, peer, failed)).code == 0
    assert broker.log.store.flushed_position == broker.log.store.end_position

    async def never(*_: int) -> bool:
        return False

    monkeypatch.setattr(broker.log.flush, "durable", never)
    with pytest.raises(CallRefused, match="not yet on the disk"):
        await back(broker, peer, failed)


async def test_a_message_without_room_for_retry_properties_is_a_dead_letter_at_once(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    text = f"UNIQ_KEY\x01k\x02long\x01{'x' * 32_650}\x02"
    reply: Any = broker.bind(SendHandler.send)(message(b"body", properties=text), peer)
    assert reply.code == 0
    assert back(broker, peer, record(broker, "orders", 0)).code == 0
    dead = record(broker, "%DLQ%g", 0)
    assert (dead.body, dead.reconsume_times) == (b"body", 1)
    assert len(decode_properties(dead.properties)["long"]) == 32_650
