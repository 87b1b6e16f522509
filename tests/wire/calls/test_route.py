"""Calls to the name server."""

from collections.abc import Callable
from typing import Any

import pytest

from roquet.wire.calls.route import (
    BrokerHeartbeat,
    DataVersionReply,
    DeleteKV,
    GetKV,
    GetRoute,
    ListKV,
    PutKV,
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
    ValueReply,
)

Agree = Callable[[str, type[Any]], None]


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("GetRouteInfoRequestHeader", GetRoute),
        ("RegisterBrokerRequestHeader", RegisterBroker),
        ("RegisterBrokerResponseHeader", RegisterBrokerReply),
        ("UnRegisterBrokerRequestHeader", UnregisterBroker),
        ("BrokerHeartbeatRequestHeader", BrokerHeartbeat),
        ("QueryDataVersionRequestHeader", QueryDataVersion),
        ("QueryDataVersionResponseHeader", DataVersionReply),
        ("PutKVConfigRequestHeader", PutKV),
        ("GetKVConfigRequestHeader", GetKV),
        ("GetKVConfigResponseHeader", ValueReply),
        ("DeleteKVConfigRequestHeader", DeleteKV),
        ("GetKVListByNamespaceRequestHeader", ListKV),
    ],
)
def test_headers_agree_with_javas(agree: Agree, java: str, ours: type[Any]) -> None:
    agree(java, ours)
