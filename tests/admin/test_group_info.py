import json

import msgspec

from roquet.admin.group_info import (
    BrokerDecision,
    GroupInfo,
    GroupMemberInfo,
    GroupQueueInfo,
    GroupSummary,
)


def test_a_group_converts_to_json() -> None:
    member = GroupMemberInfo(
        client_id="c1",
        address="10.0.0.7:5000",
        language="JAVA",
        version=513,
        subscriptions={"orders": "*"},
        strategy=None,
    )
    queue = GroupQueueInfo(
        topic="orders",
        broker="broker-a",
        queue_id=0,
        owners=None,
        committed=1,
        end=3,
        lag=2,
        fault=None,
    )
    group = GroupInfo(
        name="billing",
        message_model="CLUSTERING",
        consume_type=None,
        lag=2,
        members=[member],
        queues=[queue],
        assignments=[BrokerDecision(topic="orders", strategy="STICKY", number=4)],
        problems=[],
    )
    told = json.loads(msgspec.json.encode(group))
    assert told["members"][0]["subscriptions"] == {"orders": "*"}
    assert told["queues"][0]["owners"] is None
    assert told["assignments"] == [{"topic": "orders", "strategy": "STICKY", "number": 4}]
    assert msgspec.json.decode(msgspec.json.encode(group), type=GroupInfo) == group


def test_a_group_in_one_line() -> None:
    one = GroupSummary(name="billing", members=2, lag=7, dead_letters=4)
    assert json.loads(msgspec.json.encode(one)) == {
        "name": "billing", "members": 2, "lag": 7, "disabled_on": [],
        "dead_letters": 4, "dead_letters_not_resent": 0, "faults": [],
    }  # fmt: skip
