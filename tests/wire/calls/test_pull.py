"""Pull."""

from typing import Any

import pytest
from tests.wire.calls.conftest import agree

from roquet.wire.calls.pull import LitePull, Pull, PullReply
from roquet.wire.codes import ResponseCode


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("PullMessageRequestHeader", Pull),
        ("PullMessageRequestHeader", LitePull),
        ("PullMessageResponseHeader", PullReply),
    ],
)
def test_headers_agree_with_javas(java: str, ours: type[Any]) -> None:
    agree(java, ours)


def test_an_empty_pull_is_an_answer_and_no_refusal() -> None:
    answers = {"SUCCESS", "PULL_NOT_FOUND", "PULL_RETRY_IMMEDIATELY", "PULL_OFFSET_MOVED"}
    assert {ResponseCode(code).name for code in Pull.accepts} == answers
    assert LitePull.accepts is Pull.accepts
