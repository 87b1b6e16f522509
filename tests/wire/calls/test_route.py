"""Calls to the name server."""

from typing import Any

import pytest
from tests.wire.calls.conftest import agree

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
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)
