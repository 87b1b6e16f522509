from roquet.wire.calls.pull import LitePull, Pull
from roquet.wire.codes import ResponseCode


def test_an_empty_pull_is_an_answer_and_no_refusal() -> None:
    answers = {"SUCCESS", "PULL_NOT_FOUND", "PULL_RETRY_IMMEDIATELY", "PULL_OFFSET_MOVED"}
    assert {ResponseCode(code).name for code in Pull.accepts} == answers
    assert LitePull.accepts is Pull.accepts
