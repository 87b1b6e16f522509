"""What peers are told."""

import pytest

from roquet.model.errors import CallRefused, FieldError, MessageIllegal, StoreFailed, StoreFull
from roquet.net import error_replies
from roquet.wire.codes import FLAG_ONEWAY, VERSION_GO_AWAY, ResponseCode
from roquet.wire.command import Command, decode


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (CallRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic"), 17, "no such topic"),
        (CallRefused(ResponseCode.QUERY_NOT_FOUND), 22, None),
        (FieldError("GetKV (101): field key is missing"), 1, "GetKV (101): field key is missing"),
        (MessageIllegal("body of 5 MiB"), 13, "body of 5 MiB"),
        (StoreFull("1 GiB left"), 14, "1 GiB left"),
        (StoreFailed("the disk fails"), 1, "the disk fails"),
    ],
)
def test_a_refusal_has_a_code_and_a_reason(error: Exception, code: int, remark: str) -> None:
    reply = error_replies.refusal(error)
    assert reply is not None
    assert (reply.code, reply.remark) == (code, remark)


def test_any_other_error_is_our_own_fault() -> None:
    error = KeyError("queue")
    assert error_replies.refusal(error) is None
    reply = error_replies.fault(error)
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "KeyError: 'queue'")


def test_an_unknown_request_is_answered_in_javas_words() -> None:
    assert error_replies.unknown(4711).remark == " request type 4711 not supported"
    told = error_replies.unknown(4711, "there are no such things here").remark
    assert told == " request type 4711 not supported: there are no such things here"


def test_a_peer_that_knows_how_is_sent_away() -> None:
    frame = error_replies.go_away(Command(11, version=VERSION_GO_AWAY + 1, opaque=5), None)
    assert frame is not None
    answer = decode(frame[4:])
    assert (answer.code, answer.opaque, answer.is_response) == (ResponseCode.GO_AWAY, 5, True)


@pytest.mark.parametrize(
    "command",
    [
        Command(11, version=VERSION_GO_AWAY),
        Command(11, version=VERSION_GO_AWAY + 1, flag=FLAG_ONEWAY),
    ],
)
def test_a_peer_that_does_not_know_go_away_is_not_sent_it(command: Command) -> None:
    assert error_replies.go_away(command, None) is None
