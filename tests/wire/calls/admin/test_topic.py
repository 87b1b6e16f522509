from typing import Any

import pytest
from tests.vector_lines import vector_lines

from roquet.wire.calls.admin.topic import (
    CreateGroups,
    CreateTopics,
)
from roquet.wire.calls.bodies import GroupForbidden, SubscriptionGroups, TopicConfigs
from roquet.wire.fastjson import codec

LINES = vector_lines("bodies.jsonl")


@pytest.mark.parametrize(
    ("java", "ours"),
    [("CreateTopicListRequestBody", TopicConfigs), ("SubscriptionGroupList", SubscriptionGroups)],
)
def test_lists_are_written_as_java_writes_them(java: str, ours: type[Any]) -> None:
    texts = [x["out"]["text"] for x in LINES if x["in"]["class"] == java and "text" in x["out"]]
    assert texts
    for text in texts:
        assert codec.dumps(codec.loads(text, ours)).decode() == text


def test_a_list_of_topics_is_read_with_signed_attributes() -> None:
    text = '{"topicConfigList":[{"topicName":"t","perm":6,"attributes":{"+message.type":"FIFO"}}]}'
    (config,) = codec.loads(text, TopicConfigs).topic_config_list
    assert (config.topic_name, config.attributes) == ("t", {"+message.type": "FIFO"})
    assert int(CreateTopics.code) == 18
    assert int(CreateGroups.code) == 225


def test_a_body_is_written_as_java_writes_it() -> None:
    text = '{"group":"group_5","readable":true,"topic":"Topic7"}'
    assert codec.dumps(codec.loads(text, GroupForbidden)).decode() == text
