from functools import partial
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker

from roquet.broker.operations.reading_checks import ReadForbidden, ReadingChecks
from roquet.model.errors import CallRefused
from roquet.model.names import INTERNAL_TOPICS
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.pop import Pop
from roquet.wire.calls.pull import Pull


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_internal_topics_are_readable_if_allowed(broker: LocalBroker, topic: str) -> None:
    checks = broker.make(ReadingChecks)
    with pytest.raises(ReadForbidden, match="nobody reads it unless"):
        checks.check_delivered(topic)
    broker.configure(read_internal_topics="true")
    checks.check_delivered(topic)


async def test_other_topics_may_be_read(broker: LocalBroker) -> None:
    broker.make(ReadingChecks).check_delivered("orders")


PULL: dict[str, Any] = {
    "queue_offset": 0,
    "sys_flag": 4,
    "commit_offset": 0,
    "suspend_timeout_millis": 0,
}
POP: dict[str, Any] = {"invisible_time": 60_000, "poll_time": 0, "born_time": 0, "init_mode": 0}


def read(broker: LocalBroker, topic: str, queue_id: int) -> list[str | None]:
    """Remarks by which a pull and a pop of the group "billing" are refused."""
    checks = broker.make(ReadingChecks)
    fields: dict[str, Any] = {"consumer_group": "billing", "topic": topic, "queue_id": queue_id}
    calls: list[Any] = [
        partial(
            checks.check_pull,
            Pull(max_msg_nums=1, subscription="*", sub_version=0, **fields, **PULL),
        ),
        partial(checks.check_pop, Pop(max_msg_nums=1, **fields, **POP)),
    ]
    remarks = []
    for check in calls:
        with pytest.raises(CallRefused) as refused:
            check()
        remarks.append(refused.value.remark)
    return remarks


async def test_a_pull_names_its_group_first_and_a_pop_its_topic(broker: LocalBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup(group_name="billing", consume_enable=False), 0)
    broker.put_topic("orders")
    no_group = "subscription group no permission, billing"
    pulled, popped = read(broker, "unknown", 0)
    assert pulled == no_group
    assert popped is not None
    assert popped.startswith("topic[unknown] not exist")
    pulled, popped = read(broker, "orders", 99)
    assert pulled == no_group
    assert popped is not None
    assert popped.startswith("queueId[99] is illegal")
    assert read(broker, "orders", 0) == [no_group, no_group]
