"""A connection without a socket: numbers, replies, deadlines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import RemoteProtocolError
from roquet.wire import connection
from roquet.wire import connection as wire
from roquet.wire.call import Reply
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.calls.offset import MinOffset, OffsetReply
from roquet.wire.calls.send import Send
from roquet.wire.codes import Language, SerializeType
from roquet.wire.command import Command, decode
from roquet.wire.fields import decode_call, decode_reply, encode_reply
from roquet.wire.frame import LARGE_FRAME_MIN, FrameReader

ASK = MinOffset(topic="t", queue_id=0)


def served(stream: bytes, step: int = 0) -> list[wire.ConnectionEvent]:
    """Events of a server for these bytes, in chunks if asked to."""
    server, step = wire.Connection(), step or max(len(stream), 1)
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    return [event for piece in pieces for event in server.receive_data(piece)]


def answered(stream: bytes, offset: int = 5) -> list[bytes]:
    """One reply for each request."""
    requests = [event for event in served(stream) if isinstance(event, Command)]
    return [encode_reply(OffsetReply(offset=offset), request) for request in requests]


def test_a_request_and_its_answer_find_each_other() -> None:
    client = wire.Connection()
    opaque, stream = client.send_call(ASK, deadline_ms=100)
    (asked,) = served(stream)
    assert isinstance(asked, Command)
    assert decode_call(asked, MinOffset) == ASK
    (answer,) = client.receive_data(answered(stream)[0])
    assert isinstance(answer, wire.ReplyReceived)
    assert (answer.entry.opaque, answer.entry.call) == (opaque, ASK)
    assert decode_reply(answer.command, OffsetReply) == OffsetReply(offset=5)
    assert client.pending == 0


@given(st.permutations(range(6)), st.integers(1, 40))
def test_answers_may_come_in_any_order_and_in_any_pieces(order: list[int], step: int) -> None:
    client = wire.Connection()
    streams = [client.send_call(ASK, 100)[1] for _ in order]
    answers = [answered(stream, offset=n)[0] for n, stream in enumerate(streams)]
    stream = b"".join(answers[n] for n in order)
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    events = [event for piece in pieces for event in client.receive_data(piece)]
    offsets = {
        event.entry.opaque: int(event.command.ext["offset"])
        for event in events
        if isinstance(event, wire.ReplyReceived)
    }
    assert offsets == {n: n for n in order}


@given(st.integers(1, 60))
def test_any_split_gives_the_same_requests(step: int) -> None:
    client = wire.Connection()
    stream = b"".join(client.send_call(ASK)[1] for _ in range(4))
    requests = [event for event in served(stream, step) if isinstance(event, Command)]
    assert [request.opaque for request in requests] == [0, 1, 2, 3]


@given(st.integers(1, 300))
def test_a_large_request_is_the_same_in_any_split(step: int) -> None:
    client = wire.Connection()
    sends = [
        Send(
            producer_group="g", topic="t", queue_id=0, born_timestamp=1, properties="",
            body=bytes([number]) * LARGE_FRAME_MIN,
        )
        for number in range(3)
    ]  # fmt: skip
    stream = b"".join(client.send_call(call)[1] for call in (sends[0], ASK, *sends[1:]))
    events = served(stream, step * 1024 + step)
    requests = [event for event in events if isinstance(event, Command)]
    calls = [decode_call(requests[at], Send) for at in (0, 2, 3)]
    assert calls == sends
    assert decode_call(requests[1], MinOffset) == ASK
    assert [request.opaque for request in requests] == [0, 1, 2, 3]


def test_both_ends_may_ask() -> None:
    client, server = wire.Connection(), wire.Connection()
    _, notice = server.send_call(ConsumersChanged(consumer_group="g"), oneway=True)
    (event,) = client.receive_data(notice)
    assert isinstance(event, Command)
    assert event.is_oneway
    assert server.pending == 0, "nobody waits for the answer to a one-way call"


def test_a_reply_without_a_pending_call_is_ignored() -> None:
    client = wire.Connection()
    opaque, stream = client.send_call(ASK, 100)
    (answer,) = answered(stream)
    client.forget(opaque)
    client.forget(opaque)
    assert client.receive_data(answer) == []
    assert client.receive_data(encode_reply(Reply(), Command(10, opaque=99))) == []


def test_an_answer_counts_once() -> None:
    client = wire.Connection()
    (answer,) = answered(client.send_call(ASK, 100)[1])
    assert len(client.receive_data(answer + answer)) == 1


def test_calls_expire_at_their_deadline_and_not_before() -> None:
    client = wire.Connection()
    first, _ = client.send_call(ASK, deadline_ms=100)
    second, stream = client.send_call(ASK, deadline_ms=101)
    assert client.expire(99) == []
    assert client.expire(100) == [first]
    assert client.expire(200) == [second]
    assert client.expire(200) == []
    assert client.receive_data(answered(stream)[0]) == [], "too late"


def test_the_next_deadline_is_the_earliest() -> None:
    client = wire.Connection()
    assert client.next_deadline() is None
    client.send_call(ASK, deadline_ms=200)
    client.send_call(ASK, deadline_ms=100)
    assert client.next_deadline() == 100
    client.expire(100)
    assert client.next_deadline() == 200


def test_closing_names_the_calls_that_get_no_answer() -> None:
    client = wire.Connection()
    opaque, _ = client.send_call(ASK, deadline_ms=7)
    (left,) = client.close()
    assert (left.opaque, left.call, left.deadline_ms) == (opaque, ASK, 7)
    assert client.close() == []


def test_numbers_begin_again_after_the_last() -> None:
    client = wire.Connection(first_opaque=wire.OPAQUE_MAX - 1)
    taken = [client.send_call(ASK, 100)[0] for _ in range(3)]
    assert taken == [wire.OPAQUE_MAX - 1, wire.OPAQUE_MAX, 0]


def test_a_number_that_still_waits_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OPAQUE_MAX", 2)
    client = wire.Connection()
    for _ in range(3):
        client.send_call(ASK, 100)
    client.forget(1)
    assert client.send_call(ASK, 100)[0] == 1


def test_a_connection_uses_its_language_version_and_format() -> None:
    client = wire.Connection(
        language=Language.JAVA, version=401, serialize_type=SerializeType.ROCKETMQ
    )
    (frame,) = FrameReader().feed(client.send_call(ASK)[1])
    command = decode(frame)
    assert (command.language, command.version) == (Language.JAVA, 401)
    assert command.serialize_type == SerializeType.ROCKETMQ


@pytest.mark.parametrize("size", [0, LARGE_FRAME_MIN])
def test_a_call_stays_pending_whose_reply_comes_with_foreign_bytes(size: int) -> None:
    client = wire.Connection()
    _, stream = client.send_call(ASK, 100)
    (request,) = served(stream)
    assert isinstance(request, Command)
    answer = encode_reply(OffsetReply(offset=5, body=bytes(size)), request)
    client.receive_data(answer[:-3])
    with pytest.raises(RemoteProtocolError, match="header of unknown kind 9"):
        client.receive_data(answer[-3:] + b"\x00\x00\x00\x05\x09\x00\x00\x01{")
    assert client.expire(100) != [], "its caller waits no longer"


def test_foreign_bytes_end_the_connection() -> None:
    with pytest.raises(RemoteProtocolError, match="limit 16"):
        wire.Connection(size_max=16).receive_data(b"\x00\x00\x00\x11")
    with pytest.raises(RemoteProtocolError, match="JSON"):
        wire.Connection().receive_data(b"\x00\x00\x00\x06\x00\x00\x00\x02ab")
