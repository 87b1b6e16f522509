"""What operators learn of topics and messages, and test messages that they send."""

import json

import pytest
from tests.proxy.admin.conftest import Operator, resource
from tests.proxy.conftest import User, stored

from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.proxy import Proxy
from roquet.testing.cluster import Cluster


@pytest.mark.parametrize(("topic", "kind"), [("NORM", pb.NORMAL), ("TXT", pb.TRANSACTION)])
async def test_a_topic_is_described_by_its_attributes(
    operator: Operator, topic: str, kind: int
) -> None:
    request = admin.DescribeTopicStatusRequest(topic=resource(topic))
    answer = await operator.ok("DescribeTopicStatus", request)
    assert answer.topic_message_type == kind
    assert ("message.type" in answer.tags) is (topic == "TXT")


async def test_a_route_is_the_name_servers(operator: Operator) -> None:
    answer = await operator.ok("GetTopicRoute", admin.GetTopicRouteRequest(topic=resource("NORM")))
    route = json.loads(answer.topic_route_data)
    assert route["queueDatas"][0]["brokerName"] == "broker-a"
    request = admin.GetTopicRouteRequest(topic=resource("nowhere"))
    assert (await operator("GetTopicRoute", request)).status.code == pb.NOT_FOUND


async def test_messages_are_found_by_id_and_by_key(
    running: Cluster, proxy: Proxy, operator: Operator
) -> None:
    user = User(proxy)
    for number in range(3):
        await user.send("NORM", b"%d" % number, keys=["k"], message_id=f"ID-{number}")
    (first, *_) = await stored(running, "NORM")
    for message_id in ("ID-0", first.offset_message_id):
        request = admin.ListMessageRequest(topic=resource("NORM"), message_id=message_id)
        (found,) = (await operator.ok("QueryMessage", request)).messages
        assert found.system_properties.message_id in ("ID-0", first.message_id)
    request = admin.ListMessageRequest(topic=resource("NORM"), message_key="k", max_message_nums=2)
    answer = await operator.ok("QueryMessage", request)
    assert [message.body for message in answer.messages] == [b"1", b"2"]
    request.broker_name = "another"
    assert not (await operator.ok("QueryMessage", request)).messages
    request = admin.ListMessageRequest(topic=resource("NORM"), message_id="unknown")
    assert not (await operator.ok("QueryMessage", request)).messages


async def test_a_look_up_without_id_and_key_is_refused(operator: Operator) -> None:
    request = admin.ListMessageRequest(topic=resource("NORM"), lite_topic="l")
    assert (await operator("QueryMessage", request)).status.code == pb.BAD_REQUEST


async def test_an_operator_sends_a_message(running: Cluster, operator: Operator) -> None:
    request = admin.AdminSendMessageRequest(
        topic=resource("NORM"), tag="red", key="k", body=b"test", user_properties={"a": "b"}
    )
    answer = await operator.ok("AdminSendMessage", request)
    (message,) = await stored(running, "NORM")
    assert (message.body, message.tag, message.keys) == (b"test", "red", ("k",))
    assert message.message_id == answer.message_id
    assert message.properties["a"] == "b"


async def test_a_message_of_a_wrong_type_is_refused_as_a_producers(operator: Operator) -> None:
    request = admin.AdminSendMessageRequest(topic=resource("FIFOT"), body=b"test")
    answer = await operator("AdminSendMessage", request)
    assert answer.status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert not answer.message_id
