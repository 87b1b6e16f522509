from tests.wire.calls.conftest import agree

from roquet.wire.calls.reply import PushReply, SendReplyLongNames, SendReplyMessage
from roquet.wire.calls.send import SendReply
from roquet.wire.command import decode
from roquet.wire.fields import decode_call, encode_call
from roquet.wire.frame import FrameReader


def test_the_pushed_header_is_javas() -> None:
    agree("ReplyMessageRequestHeader", PushReply)


def test_replies_travel_like_messages_under_codes_of_their_own() -> None:
    assert int(SendReplyMessage.code) == 325
    assert int(SendReplyLongNames.code) == 324
    assert SendReplyMessage.reply is SendReplyLongNames.reply is SendReply
    call = SendReplyMessage(
        body=b"b", producer_group="g", topic="c_REPLY_TOPIC", queue_id=0, born_timestamp=1
    )
    (frame,) = FrameReader().feed(encode_call(call, opaque=1))
    assert decode(frame).ext["b"] == "c_REPLY_TOPIC"
    assert decode_call(decode(frame), SendReplyMessage) == call
