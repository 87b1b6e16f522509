"""Who waits for answers, and for how long."""

import asyncio

import pytest
from tests.raising import raises

from roquet.model.errors import CallRefused, CallTimeout, ConnectionLost, FieldError
from roquet.net.connection.pending_calls import PendingCalls, parse_reply
from roquet.testing.clock import VirtualClock, this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.offset import MaxOffset, QueryOffset
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send
from roquet.wire.command import Command, decode
from roquet.wire.connection import Connection, ReplyReceived
from roquet.wire.fields import encode_reply

pytestmark = pytest.mark.virtual_time

CALL = GetRoute(topic="t")


def new_questions() -> tuple[PendingCalls, Connection, VirtualClock]:
    connection, clock = Connection(), this_loop().clock
    return PendingCalls(connection, clock), connection, clock


def deliver(questions: PendingCalls, connection: Connection, frame: bytes) -> None:
    reply = encode_reply(Reply(body=frame), decode(frame[4:]))
    for event in connection.receive_data(reply):
        assert isinstance(event, ReplyReceived)
        questions.answer(event.command)


async def test_replies_are_matched_to_calls_in_any_order() -> None:
    questions, connection, _ = new_questions()
    asked = [questions.ask(CALL, 1_000) for _ in range(3)]
    for frame, _ in reversed(asked):
        deliver(questions, connection, frame)
    assert [(await answer).body for _, answer in asked] == [frame for frame, _ in asked]
    assert len(questions) == 0


async def test_each_call_has_its_own_deadline() -> None:
    questions, _, clock = new_questions()
    ends: dict[int, int] = {}

    async def ask(timeout_ms: int) -> None:
        with pytest.raises(CallTimeout, match=f"GetRoute: no answer within {timeout_ms} ms"):
            await questions.ask(CALL, timeout_ms)[1]
        ends[timeout_ms] = clock.monotonic_ms()

    await asyncio.gather(ask(3_000), ask(1_000), ask(30_000), ask(2_000))
    assert ends == {1_000: 1_000, 2_000: 2_000, 3_000: 3_000, 30_000: 30_000}
    assert len(questions) == 0


async def test_an_answer_in_time_is_not_late_afterwards() -> None:
    questions, connection, clock = new_questions()
    frame, answer = questions.ask(CALL, 1_000)
    await clock.sleep(999)
    deliver(questions, connection, frame)
    later = questions.ask(CALL, 1_000)[1]
    await clock.sleep(500)
    assert answer.done()
    assert not later.done()
    questions.lose("over")
    with pytest.raises(ConnectionLost, match="over"):
        await later


async def test_a_late_answer_is_passed_over() -> None:
    questions, connection, _ = new_questions()
    frame, answer = questions.ask(CALL, 1_000)
    with pytest.raises(CallTimeout):
        await answer
    deliver(questions, connection, frame)
    assert len(questions) == 0


async def test_a_cancelled_call_ignores_its_reply() -> None:
    questions, connection, clock = new_questions()
    asked = [questions.ask(CALL, 1_000) for _ in range(3)]
    for _, answer in asked:
        answer.cancel()
    deliver(questions, connection, asked[0][0])
    await clock.sleep(2_000)
    questions.lose("over")
    assert len(questions) == 0


@pytest.mark.parametrize(("code", "definite"), [(1, False), (2, True), (17, True), (1500, True)])
def test_a_refusal_is_definite_unless_something_broke(code: int, definite: bool) -> None:
    with pytest.raises(CallRefused, match="no luck") as caught:
        parse_reply(CALL, Command(code, remark="no luck"))
    assert (caught.value.code, caught.value.definite) == (code, definite)


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_a_stored_message_is_no_refusal(code: int) -> None:
    call = Send(producer_group="g", topic="t", queue_id=0, born_timestamp=0)
    reply = parse_reply(call, Command(code, fields={"queueOffset": "5"}, body=b"x"))
    assert (reply.code, reply.queue_offset, reply.body) == (code, 5, b"x")


def test_nothing_new_is_an_answer_to_a_pull() -> None:
    call = Pull(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    fields = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5"}
    assert parse_reply(call, Command(19, fields=fields)).next_begin_offset == 5


def test_a_refusal_needs_no_fields() -> None:
    call = QueryOffset(consumer_group="g", topic="t", queue_id=0)
    with raises(CallRefused, code=22):
        parse_reply(call, Command(22))


def test_an_answer_without_its_fields_is_the_peers_fault() -> None:
    with pytest.raises(FieldError, match="offset"):
        parse_reply(MaxOffset(topic="t", queue_id=0), Command(0))
