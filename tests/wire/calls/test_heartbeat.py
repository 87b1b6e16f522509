"""Heartbeats, group membership and its notices."""

from typing import Any

import pytest
from tests.wire.calls.conftest import agree

from roquet.wire.calls.heartbeat import (
    ConsumersChanged,
    GetConsumers,
    Heartbeat,
    HeartbeatReply,
    Unregister,
)
from roquet.wire.fields import to_ext


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("HeartbeatRequestHeader", Heartbeat),
        ("UnregisterClientRequestHeader", Unregister),
        ("UnregisterClientResponseHeader", Unregister.reply),
        ("GetConsumerListByGroupRequestHeader", GetConsumers),
        ("GetConsumerListByGroupResponseHeader", GetConsumers.reply),
        ("NotifyConsumerIdsChangedRequestHeader", ConsumersChanged),
    ],
)
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)


def test_the_answer_to_a_heartbeat_uses_the_names_of_java() -> None:
    reply = HeartbeatReply(supports_v2=True)
    assert to_ext(reply) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
