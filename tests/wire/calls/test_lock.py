"""Lock and unlock queues."""

from typing import Any

import pytest
from tests.wire.calls.conftest import agree

from roquet.wire.calls.lock import LockQueues, UnlockQueues


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("LockBatchMqRequestHeader", LockQueues),
        ("UnlockBatchMqRequestHeader", UnlockQueues),
    ],
)
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)
