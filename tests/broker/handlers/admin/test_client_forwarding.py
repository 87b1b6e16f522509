"""Relays: what operators ask of one member, handed on to it."""

from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, refuses

from roquet.model.errors import CallRefused, CallTimeout, ConnectionLost
from roquet.model.subscription import ConsumerData, HeartbeatData
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.client_forwarding import ConsumeDirectly, GetRunningInfo
from roquet.wire.codes import ResponseCode
from roquet.wire.records import record


class FakeMember:
    """A member's connection, with a fixed answer."""

    address = "10.0.0.9:1"
    language = 0
    closed = False

    def __init__(self, answer: Reply | Exception, version: int = 513) -> None:
        self.answer = answer
        self.version = version
        self.calls: list[tuple[Any, int]] = []

    async def call(self, call: Call[Any], timeout_ms: int = 0) -> Reply:
        self.calls.append((call, timeout_ms))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def joined(broker: LocalBroker, member: FakeMember, client_id: str = "c") -> FakeMember:
    data = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name="g")])
    broker.tables.clients.beat(member, data)  # type: ignore[arg-type]
    return member


async def outcome(broker: LocalBroker) -> tuple[int, str | None]:
    """The code and the remark that an operator sees."""
    try:
        reply = await broker.ask(INFO)
    except CallRefused as refusal:
        return refusal.code, refusal.remark
    assert isinstance(reply, Reply)
    return reply.code, reply.remark


ERROR, TIMEOUT = ResponseCode.SYSTEM_ERROR, ResponseCode.CONSUME_MSG_TIMEOUT
INFO = GetRunningInfo(consumer_group="g", client_id="c", jstack_enable=True)


async def test_a_members_reply_is_passed_on_unchanged(broker: LocalBroker) -> None:
    member = joined(broker, FakeMember(Reply(body=b"doing well")))
    assert (await broker.ask(INFO)).body == b"doing well"
    assert member.calls == [(INFO, 10_000)]


@pytest.mark.parametrize(
    ("answer", "code", "remark"),
    [
        (CallRefused(1, "not mine"), ERROR, "not mine"),
        (CallTimeout("no answer"), TIMEOUT, "consumer <g> <c> Timeout: no answer"),
        (ConnectionLost("it ended"), ERROR, "invoke consumer <g> <c> Exception: it ended"),
    ],
)
async def test_the_reason_of_a_missing_reply_is_named(
    broker: LocalBroker, answer: Exception, code: int, remark: str
) -> None:
    joined(broker, FakeMember(answer))
    assert await outcome(broker) == (code, remark)


@pytest.mark.parametrize("group", ["g", "other"])
async def test_a_request_to_an_unknown_member_is_refused(broker: LocalBroker, group: str) -> None:
    joined(broker, FakeMember(Reply()), "somebody else")
    call = GetRunningInfo(consumer_group=group, client_id="c")
    with refuses(ResponseCode.SYSTEM_ERROR) as refusal:
        await broker.ask(call)
    assert refusal.value.remark == f"The Consumer <{group}> <c> not online"


async def test_a_client_that_is_too_old_is_not_asked(broker: LocalBroker) -> None:
    member = joined(broker, FakeMember(Reply(), version=61))
    with refuses(ResponseCode.SYSTEM_ERROR, "please upgrade it to V3_1_8_SNAPSHOT"):
        await broker.ask(INFO)
    assert member.calls == []


async def test_the_latest_connection_of_a_member_is_asked(broker: LocalBroker) -> None:
    old = joined(broker, FakeMember(Reply(body=b"old")))
    joined(broker, FakeMember(Reply(body=b"new")))
    assert (await broker.ask(INFO)).body == b"new"
    assert old.calls == []


async def test_a_forwarded_message_has_what_only_the_broker_knows(broker: LocalBroker) -> None:
    stored = broker.send(b"the body")
    member = joined(broker, FakeMember(Reply(body=b"{}")))
    call = ConsumeDirectly(consumer_group="g", client_id="c", topic="orders", msg_id=stored.msg_id)
    await broker.ask(call)
    ((relayed, timeout_ms),) = member.calls
    assert timeout_ms == 10_000
    assert relayed.broker_name == broker.control.settings.config.broker_name
    assert relayed.topic_sys_flag == 0
    assert record.to_message(record.decode(relayed.body)).body == b"the body"


@pytest.mark.parametrize(
    ("message_id", "why"),
    [
        (None, "not 32 or 56"),
        ("7F", "not 32 or 56"),
        ("Z" * 32, "not hex"),
        ("7F00000100002A9F00000000000F4240", "can not find message by the offset, 1000000"),
        ("7F00000100002A9FFFFFFFFFFFFFFFFF", "can not find message by the offset, -1"),
    ],
)
async def test_a_message_that_is_not_there_is_refused(
    broker: LocalBroker, message_id: str | None, why: str
) -> None:
    joined(broker, FakeMember(Reply()))
    call = ConsumeDirectly(consumer_group="g", client_id="c", msg_id=message_id)
    with refuses(ResponseCode.SYSTEM_ERROR, why):
        broker.ask(call)


async def test_no_member_is_handed_a_message_that_is_not_delivered_yet(broker: LocalBroker) -> None:
    text = "UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02"
    stored = broker.send(b"half", properties=text, sys_flag=4)
    member = joined(broker, FakeMember(Reply()))
    call = ConsumeDirectly(consumer_group="g", client_id="c", msg_id=stored.msg_id)
    with pytest.raises(CallRefused, match="not delivered yet") as refusal:
        broker.ask(call)
    assert (refusal.value.code, member.calls) == (ResponseCode.NO_PERMISSION, [])
