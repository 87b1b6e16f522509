from typing import Any

import msgspec
import pytest
from tests.broker.conftest import LocalBroker, make_send, not_none, refuses

from roquet.model.queue import MessageQueue
from roquet.model.topic import SubscriptionGroup
from roquet.wire.codes import ResponseCode

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)


def dead(broker: LocalBroker, times: int, **fields: Any) -> str | None:
    call = make_send(topic="%RETRY%g", reconsume_times=times, **fields)
    return broker.delivery.retry_topics.dead_letter_topic(call)


async def test_a_message_that_failed_again_counts_for_its_group(broker: LocalBroker) -> None:
    call = make_send(topic="%RETRY%g+t", reconsume_times=17)
    assert broker.delivery.retry_topics.dead_letter_topic(call) == "%DLQ%g"


@pytest.mark.parametrize(
    ("chosen", "has_adopted", "expected"),
    [
        (None, False, "%RETRY%pay+eu_orders"),
        (None, True, "%RETRY%pay_eu_orders"),
        (True, True, "%RETRY%pay+eu_orders"),
        (False, False, "%RETRY%pay_eu_orders"),
    ],
)
async def test_popped_messages_wait_under_the_older_name_where_apaches_broker_may_read_it(
    broker: LocalBroker, chosen: bool | None, has_adopted: bool, expected: str
) -> None:
    settings = broker.control.settings
    settings.config = msgspec.structs.replace(settings.config, retry_topic_v2=chosen)
    broker.tables.topics.has_adopted = has_adopted
    assert broker.delivery.retry_topics.pop_retry_topic("pay", "eu_orders") == expected


async def test_popped_messages_do_not_wait_where_a_group_pulls(broker: LocalBroker) -> None:
    broker.tables.topics.has_adopted = True
    broker.tables.groups.find("pay_eu_orders", 0)
    chosen = broker.delivery.retry_topics.pop_retry_topic
    assert chosen("pay", "eu_orders") == "%RETRY%pay+eu_orders"
    assert chosen("pay", "us_orders") == "%RETRY%pay_us_orders"


async def test_a_client_may_try_as_often_as_its_group_allows(broker: LocalBroker) -> None:
    assert [dead(broker, times) for times in (0, 16, 17)] == [None, None, "%DLQ%g"]
    topic = not_none(broker.tables.topics.get("%DLQ%g"))
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


async def test_a_groups_own_limit_counts(broker: LocalBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup(group_name="g", retry_max_times=2), 0)
    assert [dead(broker, times) for times in (2, 3)] == [None, "%DLQ%g"]


async def test_a_client_may_bring_its_own_limit(broker: LocalBroker) -> None:
    assert dead(broker, 2, max_reconsume_times=1) == "%DLQ%g"
    assert dead(broker, 30, max_reconsume_times=99) is None
    assert dead(broker, 1, max_reconsume_times=-1) is None


async def test_what_an_ordered_group_sends_back_is_a_dead_letter(broker: LocalBroker) -> None:
    now_ms = broker.control.clock.monotonic_ms()
    broker.tables.locks.lock("g", "c1", [QUEUE], now_ms)
    assert dead(broker, 1) == "%DLQ%g"
    broker.tables.locks.unlock("g", "c1", [QUEUE])
    assert dead(broker, 1) is None


@pytest.mark.parametrize("settings", [{"auto_create_group": False}])
async def test_a_group_that_is_unknown_and_may_not_be_made_is_refused(broker: LocalBroker) -> None:
    with refuses(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        dead(broker, 1)


async def test_a_retry_topic_has_the_queue_count_of_its_group(broker: LocalBroker) -> None:
    group = SubscriptionGroup(group_name="g", retry_queue_nums=3)
    made = broker.delivery.retry_topics.retry_topic(group, unit_mode=True)
    assert (made.topic_name, made.write_queue_nums, made.topic_sys_flag) == ("%RETRY%g", 3, 2)
    assert broker.delivery.retry_topics.retry_topic(group) == made
