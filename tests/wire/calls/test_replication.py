from typing import Any

import pytest
from tests.wire.calls.conftest import agree

from roquet.wire.calls import replication as calls


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
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)
