"""What each request needs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each

from roquet.access.required_access import REQUIRED, UNCHECKED_BY_APACHE
from roquet.access.requirement import RequestFacts
from roquet.broker.handlers import HANDLERS
from roquet.controller.handlers import HANDLERS as CONTROLLERS
from roquet.namesrv.handlers import HANDLERS as NAME_SERVERS
from roquet.wire.codes import RequestCode as Code

VECTORS = Path(__file__).parents[1] / "vectors" / "auth" / "resources.jsonl"

STORED = {7: "secret", 8: "%RETRY%g"}
"""Topics of the messages at some positions."""

ID = "0A000007" + "00002A9F" + f"{7:016X}"
"""The id of the message at position 7."""


def needed(code: int, body: object = None, /, **fields: str) -> list[str]:
    """What a request needs, as texts: `Topic:a Pub|Sub`."""
    raw = b"" if body is None else json.dumps(body).encode()
    facts = RequestFacts(fields, raw, "c1", STORED.get)
    return [f"{one.resource} {'|'.join(one.actions)}" for one in REQUIRED[code].needs(facts)]


def test_every_code_that_is_served_has_its_line() -> None:
    served = {kind.code for kind in (*HANDLERS, *NAME_SERVERS, *CONTROLLERS)}
    assert served == REQUIRED.keys()
    assert REQUIRED.keys() > UNCHECKED_BY_APACHE


DECIDED_BY_CODE = {10, 11, 12, 14, 15, 34, 35, 36, 37, 38, 41, 42, 105, 310, 320, 370}
"""Codes whose annotations Apache's broker does not go by."""

OURS: Mapping[int, str] = {
    314: "the source group, too",
    **dict.fromkeys(
        (103, 104, 216, 322, 904, 1002, 1003, 1011, 1012, 1013), "the server's own cluster, too"
    ),
}
"""Codes that need more here."""

ANNOTATED = [
    (row["in"], row["out"])
    for row in map(json.loads, VECTORS.read_text("utf-8").splitlines())
    if row["out"] is not None
]


@for_each(
    [
        (code, annotation)
        for code, annotation in ANNOTATED
        if code in REQUIRED and code not in DECIDED_BY_CODE | UNCHECKED_BY_APACHE | OURS.keys()
    ]
)
def test_the_genuine_annotations_are_kept(code: int, annotation: dict[str, Any]) -> None:
    kinds = {name: kind.partition("/")[0] for name, kind in annotation["fields"].items()}
    named = {name: f"{name}-x" for name in kinds}
    actions = "|".join(annotation["actions"])
    expected = {f"{kind}:{name}-x {actions}" for name, kind in kinds.items()}
    if annotation["resource"] == "Cluster" and not kinds:
        expected = {f"Cluster:c1 {actions}"}
    assert set(needed(code, **named)) == expected


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE])
def test_a_send_needs_its_topic_or_the_group_of_a_retry_topic(code: int) -> None:
    assert needed(code, a="pg", b="orders") == ["Topic:orders Pub"]
    assert needed(code, a="pg", b="%RETRY%g") == ["Group:g Sub"]
    assert needed(Code.SEND_MESSAGE, topic="orders") == ["Topic:orders Pub"]


@pytest.mark.parametrize("code", [Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE])
def test_a_read_needs_group_and_topic(code: int) -> None:
    asked = needed(code, consumerGroup="g", topic="a")
    assert set(asked) == {"Group:g Sub", "Topic:a Sub"}


@pytest.mark.parametrize(
    ("code", "actions"),
    [
        (Code.PULL_MESSAGE, "Sub"),
        (Code.QUERY_CONSUMER_OFFSET, "Sub|Get"),
        (Code.UPDATE_CONSUMER_OFFSET, "Sub|Update"),
    ],
)
def test_a_refusal_names_the_topic_first_as_apaches_broker_does(code: int, actions: str) -> None:
    asked = needed(code, consumerGroup="g", topic="a")
    assert asked == [f"Topic:a {actions}", f"Group:g {actions}"]


def test_the_retry_topic_of_another_group_needs_that_group() -> None:
    asked = needed(Code.PULL_MESSAGE, consumerGroup="mine", topic="%RETRY%theirs")
    assert asked == ["Group:theirs Sub", "Group:mine Sub"]


@pytest.mark.parametrize("code", [Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME])
@pytest.mark.parametrize("retry_topic", ["%RETRY%pay_eu_orders", "%RETRY%pay+eu_orders"])
def test_settling_a_message_that_failed_before_needs_its_group_and_topic(
    code: int, retry_topic: str
) -> None:
    asked = needed(code, consumerGroup="pay", topic=retry_topic)
    assert sorted(set(asked)) == ["Group:pay Sub", "Topic:eu_orders Sub"]
    assert needed(code, consumerGroup="h", topic="%RETRY%pay_x") == [
        "Group:h Sub",
        "Group:pay_x Sub",
    ]


def test_reading_a_retry_topic_that_others_may_share_needs_all_of_its_name_as_a_group() -> None:
    for code in (Code.PULL_MESSAGE, Code.POP_MESSAGE, Code.LITE_PULL_MESSAGE):
        asked = needed(code, consumerGroup="pay", topic="%RETRY%pay_eu_orders")
        assert set(asked) == {"Group:pay Sub", "Group:pay_eu_orders Sub"}
        asked = needed(code, consumerGroup="spy", topic="%RETRY%pay+eu_orders")
        assert set(asked) == {"Group:spy Sub", "Group:pay Sub", "Topic:eu_orders Sub"}


def test_acting_on_a_stored_message_needs_the_topic_that_it_was_sent_to() -> None:
    assert needed(Code.VIEW_MESSAGE_BY_ID, topic="mine", offset="7") == [
        "Topic:mine Get",
        "Topic:secret Get",
    ]
    assert needed(Code.VIEW_MESSAGE_BY_ID, offset="8") == ["Group:g Sub"]
    assert needed(Code.VIEW_MESSAGE_BY_ID, offset="9") == []
    back = needed(Code.CONSUMER_SEND_MSG_BACK, group="g", offset="7")
    assert back == ["Group:g Sub", "Topic:secret Sub"]
    assert needed(Code.END_TRANSACTION, commitLogOffset="7") == ["Topic:secret Pub"]
    given = needed(Code.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g", topic="mine", msgId=ID)
    assert given == ["Group:g Sub", "Topic:mine Sub", "Topic:secret Sub"]
    assert needed(Code.RESUME_CHECK_HALF_MESSAGE, msgId=ID) == ["Topic:secret Update"]
    assert needed(Code.RESUME_CHECK_HALF_MESSAGE, msgId="odd") == []


def test_a_position_that_is_no_number_needs_the_cluster() -> None:
    assert needed(Code.VIEW_MESSAGE_BY_ID, offset="7.0x") == ["Cluster:c1 Update"]


def test_routes_need_any_use_of_the_topic() -> None:
    assert needed(Code.GET_ROUTEINFO_BY_TOPIC, topic="a") == ["Topic:a Pub|Sub|Get"]
    assert needed(Code.GET_ROUTEINFO_BY_TOPIC, topic="%RETRY%g") == ["Group:g Sub|Get"]
    assert needed(Code.GET_ROUTEINFO_BY_TOPIC, topic="TBW102") == []


def test_requests_on_a_cluster_need_the_one_that_they_name() -> None:
    assert needed(Code.GET_TOPICS_BY_CLUSTER, cluster="c2") == ["Cluster:c2 Get"]
    assert needed(Code.UPDATE_BROKER_CONFIG) == ["Cluster:c1 Update"]
    assert needed(Code.AUTH_LIST_USER) == ["Cluster:c1 Get"]


def test_routes_are_common_to_all_clusters_so_a_broker_needs_the_name_servers_own() -> None:
    for code in (Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT):
        assert needed(code, clusterName="c2") == ["Cluster:c2 Update", "Cluster:c1 Update"]


def test_topics_in_one_field_are_checked_as_the_handler_divides_them() -> None:
    needs = needed(Code.GET_CONSUME_STATS, consumerGroup="g", topic="mine;secret;mine")
    assert needs == ["Group:g Get", "Topic:mine Get", "Topic:secret Get"]


def test_a_position_that_only_looks_like_a_message_needs_the_cluster() -> None:
    facts = RequestFacts({"offset": "7"}, b"", "c1", lambda _: "")
    needs = REQUIRED[Code.VIEW_MESSAGE_BY_ID].needs(facts)
    assert [f"{one.resource} {'|'.join(one.actions)}" for one in needs] == ["Cluster:c1 Update"]


def test_a_list_of_topics_needs_each() -> None:
    asked = needed(Code.GET_CONSUME_STATS, consumerGroup="g", topicList="a;b")
    assert asked == ["Group:g Get", "Topic:a Get", "Topic:b Get"]
