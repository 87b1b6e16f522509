"""Operators' calls to name servers: headers and bodies against Apache's."""

from typing import Any

import pytest
from tests.vector_lines import vector_lines
from tests.wire.calls.conftest import agree

from roquet.wire.calls.admin import namesrv
from roquet.wire.calls.admin.namesrv import BrokerMembers, BrokerMembersBody
from roquet.wire.fastjson import codec

LINES = vector_lines("bodies.jsonl")

HEADERS = {
    "WipeWritePermOfBrokerRequestHeader": namesrv.WipeWritePermission,
    "WipeWritePermOfBrokerResponseHeader": namesrv.WipeWritePermissionReply,
    "AddWritePermOfBrokerRequestHeader": namesrv.AddWritePermission,
    "AddWritePermOfBrokerResponseHeader": namesrv.AddWritePermissionReply,
    "DeleteTopicFromNamesrvRequestHeader": namesrv.ForgetTopic,
    "RegisterTopicRequestHeader": namesrv.RegisterTopic,
    "GetTopicsByClusterRequestHeader": namesrv.TopicsOfCluster,
    "GetBrokerMemberGroupRequestHeader": namesrv.GetBrokerMembers,
}


@pytest.mark.parametrize("java", HEADERS)
def test_headers_agree_with_java(java: str) -> None:
    agree(java, HEADERS[java])


@pytest.mark.parametrize(
    ("java", "kind"),
    [("BrokerMemberGroup", BrokerMembers), ("GetBrokerMemberGroupResponseBody", BrokerMembersBody)],
)
def test_bodies_are_read_and_written_to_the_byte(java: str, kind: Any) -> None:
    bodies = [line["out"]["text"] for line in LINES if line["in"]["class"] == java]
    assert bodies
    for text in bodies:
        assert codec.dumps(codec.loads(text, kind)).decode() == text


def test_the_codes_are_the_genuine_ones() -> None:
    kinds = (
        namesrv.WipeWritePermission, namesrv.AddWritePermission, namesrv.ForgetTopic,
        namesrv.RegisterTopic, namesrv.TopicsOfCluster, namesrv.SystemTopics, namesrv.UnitTopics,
        namesrv.UnitSubscribedTopics, namesrv.OthersSubscribedTopics,
        namesrv.UpdateNameServerSettings, namesrv.GetNameServerSettings, namesrv.GetBrokerMembers,
    )  # fmt: skip
    codes = [int(kind.code) for kind in kinds]
    assert codes == [205, 327, 216, 217, 224, 304, 311, 312, 313, 318, 319, 901]
