from collections.abc import Awaitable
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, LocalBroker

from roquet.broker.handlers.messages.reply import PUSH_TIMEOUT_MS
from roquet.model.errors import CallRefused, CallTimeout
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.wire.call import Reply
from roquet.wire.calls.heartbeat import Unregister
from roquet.wire.calls.reply import PushReply, SendReplyLongNames, SendReplyMessage
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "MSG_TYPE\x01reply\x02CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01me\x02TTL\x013000\x02"


ReplyMessage = SendReplyMessage | SendReplyLongNames


class Requester:
    """A client that waits, as the broker sees it."""

    def __init__(self, peer: FakePeer, error: Exception | None = None) -> None:
        self.pushed: list[tuple[PushReply, int]] = []
        self.error = error
        peer.reply_to = self.reply_to

    async def reply_to(self, call: PushReply, timeout_ms: int) -> Reply:
        self.pushed.append((call, timeout_ms))
        if self.error is not None:
            raise self.error
        return Reply()


def beat(broker: LocalBroker, peer: FakePeer, group: str = "p") -> None:
    data = HeartbeatData(client_id="me", producer_data_set=[ProducerData(group_name=group)])
    broker.beat(data, peer)


def answer(kind: type[ReplyMessage] = SendReplyMessage, **fields: Any) -> ReplyMessage:
    arguments = {
        "body": b"answer", "producer_group": "g", "topic": TOPIC, "queue_id": 0,
        "born_timestamp": 5, "properties": PROPERTIES, "flag": 3,
    }  # fmt: skip
    return kind(**{**arguments, **fields})


async def answered(broker: LocalBroker, call: ReplyMessage, peer: FakePeer) -> SendReply:
    outcome = broker.ask(call, peer)
    sent = await outcome if isinstance(outcome, Awaitable) else outcome
    assert isinstance(sent, SendReply)
    return sent


def kept(broker: LocalBroker) -> list[Record]:
    return [decode(part) for part in broker.log.store.read(TOPIC, 0, 0, count_max=9).parts]


@pytest.mark.parametrize("kind", [SendReplyMessage, SendReplyLongNames])
async def test_a_reply_is_pushed_and_stored(broker: LocalBroker, kind: type[ReplyMessage]) -> None:
    asker = FakePeer()
    requester = Requester(asker)
    beat(broker, asker)
    sent = await answered(broker, answer(kind), FakePeer())
    assert sent.code == ResponseCode.SUCCESS
    ((pushed, timeout_ms),) = requester.pushed
    assert timeout_ms == PUSH_TIMEOUT_MS
    assert (pushed.body, pushed.topic, pushed.flag) == (b"answer", TOPIC, 3)
    assert (pushed.born_timestamp, pushed.born_host) == (5, "10.0.0.7:5000")
    properties = decode_properties(pushed.properties.encode())
    assert properties.pop("PUSH_REPLY_TIME").isdecimal()
    assert properties == {
        "MSG_TYPE": "reply", "CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "TTL": "3000",
    }  # fmt: skip
    (record,) = kept(broker)
    assert record.body == b"answer"
    assert (sent.queue_offset, sent.msg_id) == (0, broker.log.ingest.message_id(record.position))


async def test_a_missing_requester_is_reported_in_apaches_words(broker: LocalBroker) -> None:
    sent = await answered(broker, answer(), FakePeer())
    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert sent.remark == "push reply message fail, channel of <me> not found."
    assert sent.region == "DefaultRegion"
    assert len(kept(broker)) == 1


async def test_a_reply_without_a_requester_is_refused(broker: LocalBroker) -> None:
    sent = await answered(broker, answer(properties="A\x01b\x02"), FakePeer())
    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert sent.remark == "reply message properties[REPLY_TO_CLIENT] is null"


@pytest.mark.parametrize("error", [CallTimeout("late"), CallRefused(1, "no")])
async def test_a_requester_that_refuses_is_reported(broker: LocalBroker, error: Exception) -> None:
    asker = FakePeer()
    Requester(asker, error)
    beat(broker, asker)
    sent = await answered(broker, answer(), FakePeer())
    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert (sent.remark or "").startswith("push reply message to me")


async def test_the_reply_goes_to_the_latest_open_connection(broker: LocalBroker) -> None:
    old, new = FakePeer(), FakePeer()
    first, second = Requester(old), Requester(new)
    beat(broker, old)
    beat(broker, new)
    beat(broker, new, "other")
    old.hang_up()
    await answered(broker, answer(), FakePeer())
    broker.ask(Unregister(client_id="me", producer_group="p"), new)
    assert (await answered(broker, answer(), FakePeer())).code == ResponseCode.SUCCESS
    assert (len(first.pushed), len(second.pushed)) == (0, 2)
    broker.ask(Unregister(client_id="me", producer_group="other"), new)
    assert (await answered(broker, answer(), FakePeer())).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"x" * (4 * 1024 * 1024 + 1)])
async def test_a_body_over_the_limits_is_not_forwarded(broker: LocalBroker, body: bytes) -> None:
    asker = FakePeer()
    requester = Requester(asker)
    beat(broker, asker)
    sent = await answered(broker, answer(body=body), FakePeer())
    assert sent.code == ResponseCode.MESSAGE_ILLEGAL
    assert not requester.pushed
    assert not kept(broker)


async def test_topics_of_the_system_take_no_answers(broker: LocalBroker) -> None:
    sent = await answered(broker, answer(topic="SCHEDULE_TOPIC_XXXX"), FakePeer())
    assert sent.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("settings", [{"store_reply_messages": False}])
async def test_answers_are_only_pushed(broker: LocalBroker) -> None:
    asker = FakePeer()
    requester = Requester(asker)
    beat(broker, asker)
    sent = await answered(broker, answer(), FakePeer())
    assert (sent.code, sent.msg_id, sent.queue_offset) == (ResponseCode.SUCCESS, "0", 0)
    assert len(requester.pushed) == 1
    assert kept(broker) == []
