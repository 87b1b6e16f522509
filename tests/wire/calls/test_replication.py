"""Calls between brokers that replicate, their name server and their controller."""

from collections.abc import Callable
from typing import Any

import pytest

from roquet.wire.calls import replication as calls

Agree = Callable[[str, type[Any]], None]


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("NotifyBrokerRoleChangedRequestHeader", calls.NotifyRoleChanged),
        ("NotifyMinBrokerIdChangeRequestHeader", calls.NotifyMinBrokerId),
        ("ExchangeHAInfoRequestHeader", calls.ExchangeHaInfo),
        ("ExchangeHAInfoResponseHeader", calls.ExchangeHaInfoReply),
        ("ResetMasterFlushOffsetHeader", calls.ResetMasterFlushOffset),
    ],
)
def test_headers_agree_with_javas(agree: Agree, java: str, ours: type[Any]) -> None:
    agree(java, ours)
