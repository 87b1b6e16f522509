"""Topic and group configuration."""

from collections.abc import Callable
from typing import Any

import pytest

from roquet.wire.calls.topic import CreateTopic, DeleteGroup, DeleteTopic, GetGroup, GetTopic

Agree = Callable[[str, type[Any]], None]


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("CreateTopicRequestHeader", CreateTopic),
        ("DeleteTopicRequestHeader", DeleteTopic),
        ("GetTopicConfigRequestHeader", GetTopic),
        ("DeleteSubscriptionGroupRequestHeader", DeleteGroup),
        ("GetSubscriptionGroupConfigRequestHeader", GetGroup),
    ],
)
def test_headers_agree_with_javas(agree: Agree, java: str, ours: type[Any]) -> None:
    agree(java, ours)
