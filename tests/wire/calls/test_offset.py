"""Offsets: query, update, bounds, by time."""

from typing import Any

import pytest
from tests.wire.calls.conftest import agree

from roquet.wire.calls.offset import (
    EarliestTime,
    MaxOffset,
    MinOffset,
    OffsetByTime,
    OffsetReply,
    QueryOffset,
    TimeReply,
    UpdateOffset,
)
from roquet.wire.command import Command
from roquet.wire.fields import decode_call


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("QueryConsumerOffsetRequestHeader", QueryOffset),
        ("QueryConsumerOffsetResponseHeader", OffsetReply),
        ("UpdateConsumerOffsetRequestHeader", UpdateOffset),
        ("UpdateConsumerOffsetResponseHeader", UpdateOffset.reply),
        ("GetMaxOffsetRequestHeader", MaxOffset),
        ("GetMaxOffsetResponseHeader", OffsetReply),
        ("GetMinOffsetRequestHeader", MinOffset),
        ("GetMinOffsetResponseHeader", OffsetReply),
        ("SearchOffsetRequestHeader", OffsetByTime),
        ("SearchOffsetResponseHeader", OffsetReply),
        ("GetEarliestMsgStoretimeRequestHeader", EarliestTime),
        ("GetEarliestMsgStoretimeResponseHeader", TimeReply),
    ],
)
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)


def test_the_end_of_a_queue_means_the_committed_one_unless_said_otherwise() -> None:
    ext = {"topic": "t", "queueId": "0"}
    assert decode_call(Command(30, fields=ext), MaxOffset).committed
    assert not decode_call(Command(30, fields=ext | {"committed": "false"}), MaxOffset).committed
