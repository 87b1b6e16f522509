"""Lock and unlock queues."""

from collections.abc import Callable
from typing import Any

import pytest

from roquet.wire.calls.lock import LockQueues, UnlockQueues

Agree = Callable[[str, type[Any]], None]


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("LockBatchMqRequestHeader", LockQueues),
        ("UnlockBatchMqRequestHeader", UnlockQueues),
    ],
)
def test_headers_agree_with_javas(agree: Agree, java: str, ours: type[Any]) -> None:
    agree(java, ours)
