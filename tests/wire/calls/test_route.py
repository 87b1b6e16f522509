from typing import Any

import pytest
from tests.wire.calls.conftest import agree

from roquet.wire.calls import route


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("GetRouteInfoRequestHeader", route.GetRoute),
        ("RegisterBrokerRequestHeader", route.RegisterBroker),
        ("RegisterBrokerResponseHeader", route.RegisterBrokerReply),
        ("UnRegisterBrokerRequestHeader", route.UnregisterBroker),
        ("BrokerHeartbeatRequestHeader", route.BrokerHeartbeat),
        ("QueryDataVersionRequestHeader", route.QueryDataVersion),
        ("QueryDataVersionResponseHeader", route.DataVersionReply),
        ("PutKVConfigRequestHeader", route.PutKV),
        ("GetKVConfigRequestHeader", route.GetKV),
        ("GetKVConfigResponseHeader", route.ValueReply),
        ("DeleteKVConfigRequestHeader", route.DeleteKV),
        ("GetKVListByNamespaceRequestHeader", route.ListKV),
    ],
)
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)
