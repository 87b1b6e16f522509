from collections.abc import Callable
from typing import Any

import pytest

from roquet.broker.broker import Broker
from roquet.broker.handlers.heartbeat import heartbeat, unregister
from roquet.broker.handlers.reply import PUSH_TIMEOUT_MS, reply
from roquet.model.errors import CallRefused, CallTimeout
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.wire.call import Reply
from roquet.wire.calls.heartbeat import Heartbeat, Unregister
from roquet.wire.calls.reply import PushReply, SendReplyLongNames, SendReplyMessage
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "MSG_TYPE\x01reply\x02CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01me\x02TTL\x013000\x02"


class Requester:
    """A client that waits, as the broker sees it."""

    def __init__(self, peer: Any, error: Exception | None = None) -> None:
        self.pushed: list[tuple[PushReply, int]] = []
        self.error = error
        peer.call = self.call

    async def call(self, call: PushReply, timeout_ms: int) -> Reply:
        self.pushed.append((call, timeout_ms))
        if self.error is not None:
            raise self.error
        return Reply()


def beat(broker: Broker, peer: Any, group: str = "p") -> None:
    data = HeartbeatData(client_id="me", producer_data_set=[ProducerData(group_name=group)])
    broker.bind(heartbeat)(Heartbeat(body=codec.dumps(data)), peer)


def answer(kind: Any = SendReplyMessage, **fields: Any) -> Any:
    arguments = {
        "body": b"answer", "producer_group": "g", "topic": TOPIC, "queue_id": 0,
        "born_timestamp": 5, "properties": PROPERTIES, "flag": 3,
    }  # fmt: skip
    return kind(**{**arguments, **fields})


async def answered(broker: Broker, call: Any, peer: Any) -> Any:
    outcome: Any = broker.bind(reply)(call, peer)
    return outcome if isinstance(outcome, Reply) else await outcome


def kept(broker: Broker) -> list[Record]:
    return [decode(part) for part in broker.log.store.read(TOPIC, 0, 0, count_max=9).parts]


@pytest.mark.parametrize("kind", [SendReplyMessage, SendReplyLongNames])
async def test_the_requester_is_handed_the_answer_and_it_is_kept(
    broker: Broker, new_peer: Callable[..., Any], kind: Any
) -> None:
    asker = new_peer()
    requester = Requester(asker)
    beat(broker, asker)
    sent = await answered(broker, answer(kind), new_peer())
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


async def test_one_that_is_not_there_is_told_in_genuine_words(
    broker: Broker, new_peer: Callable[..., Any]
) -> None:
    sent = await answered(broker, answer(), new_peer())
    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert sent.remark == "push reply message fail, channel of <me> not found."
    assert sent.region == "DefaultRegion"
    assert len(kept(broker)) == 1


async def test_an_answer_to_nobody_is_refused(broker: Broker, new_peer: Callable[..., Any]) -> None:
    sent = await answered(broker, answer(properties="A\x01b\x02"), new_peer())
    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert sent.remark == "reply message properties[REPLY_TO_CLIENT] is null"


@pytest.mark.parametrize("error", [CallTimeout("late"), CallRefused(1, "no")])
async def test_a_requester_that_does_not_take_it_is_told_of(
    broker: Broker, new_peer: Callable[..., Any], error: Exception
) -> None:
    asker = new_peer()
    Requester(asker, error)
    beat(broker, asker)
    sent = await answered(broker, answer(), new_peer())
    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert sent.remark.startswith("push reply message to me")


async def test_the_latest_connection_counts_and_one_that_left_is_nobody(
    broker: Broker, new_peer: Callable[..., Any]
) -> None:
    old, new = new_peer(), new_peer()
    first, second = Requester(old), Requester(new)
    beat(broker, old)
    beat(broker, new)
    beat(broker, new, "other")
    old.hang_up()
    await answered(broker, answer(), new_peer())
    broker.bind(unregister)(Unregister(client_id="me", producer_group="p"), new)
    assert (await answered(broker, answer(), new_peer())).code == ResponseCode.SUCCESS
    assert (len(first.pushed), len(second.pushed)) == (0, 2)
    broker.bind(unregister)(Unregister(client_id="me", producer_group="other"), new)
    assert (await answered(broker, answer(), new_peer())).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"x" * (4 * 1024 * 1024 + 1)])
async def test_a_body_over_the_limits_goes_nowhere(
    broker: Broker, new_peer: Callable[..., Any], body: bytes
) -> None:
    asker = new_peer()
    requester = Requester(asker)
    beat(broker, asker)
    sent = await answered(broker, answer(body=body), new_peer())
    assert sent.code == ResponseCode.MESSAGE_ILLEGAL
    assert not requester.pushed
    assert not kept(broker)


async def test_topics_of_the_system_take_no_answers(
    broker: Broker, new_peer: Callable[..., Any]
) -> None:
    sent = await answered(broker, answer(topic="SCHEDULE_TOPIC_XXXX"), new_peer())
    assert sent.code == ResponseCode.NO_PERMISSION


class TestWithoutKeeping:
    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"store_reply_messages": False}

    async def test_answers_are_only_pushed(
        self, broker: Broker, new_peer: Callable[..., Any]
    ) -> None:
        asker = new_peer()
        requester = Requester(asker)
        beat(broker, asker)
        sent = await answered(broker, answer(), new_peer())
        assert (sent.code, sent.msg_id, sent.queue_offset) == (ResponseCode.SUCCESS, "0", 0)
        assert len(requester.pushed) == 1
        assert kept(broker) == []
