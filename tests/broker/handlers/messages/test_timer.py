import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, LocalBroker, failing, local

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import StoreFull
from roquet.store.timer.layout import unpack_checkpoint
from roquet.wire.calls.send import SendReply
from roquet.wire.calls.timer import GetTimerCheckpoint, GetTimerMetrics, Recall, RecallReply
from roquet.wire.codes import ResponseCode
from roquet.wire.receipt_handle import RecallHandle
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode_many

TIMER = "rmq_sys_wheel_timer"
Later = Callable[..., SendReply]
ILLEGAL = ResponseCode.ILLEGAL_OPERATION
HOUR_MS = 3_600_000


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"recall_message": True, "broker_name": "broker-a"}


@pytest.fixture
def later(broker: LocalBroker) -> Later:
    """Sends a message that waits."""

    def send_it(body: bytes = b"one", delay_ms: int = HOUR_MS, **fields: Any) -> SendReply:
        text = f"TIMER_DELAY_MS\x01{delay_ms}\x02UNIQ_KEY\x01{body.decode()}\x02"
        reply = broker.send(body, properties=text, **fields)
        assert isinstance(reply, SendReply)
        return reply

    return send_it


def answer(
    broker: LocalBroker, peer: FakePeer, handle: str | None, topic: str = "orders"
) -> RecallReply:
    reply = broker.ask(Recall(producer_group="pg", topic=topic, recall_handle=handle or ""), peer)
    assert isinstance(reply, RecallReply)
    return reply


def records(broker: LocalBroker, topic: str = TIMER) -> list[Record]:
    messages = broker.log.store.read(topic, 0, 0)
    return [record for part in messages.parts for record in decode_many(part)]


def test_the_answer_to_a_timed_message_has_its_handle(broker: LocalBroker, later: Later) -> None:
    reply = later(queue_id=2)
    assert reply.queue_id == 2
    (record,) = records(broker)
    out = int(decode_properties(record.properties)["TIMER_OUT_MS"])
    assert reply.recall_handle == RecallHandle("orders", "broker-a", out + 1, "one").text()


def test_other_replies_have_no_recall_handle(broker: LocalBroker, later: Later) -> None:
    plain = broker.send()
    assert isinstance(plain, SendReply)
    assert plain.recall_handle is None
    assert later(delay_ms=0).recall_handle is None
    broker.tables.topics.create_for_group("%RETRY%g", 1, 0)
    assert later(topic="%RETRY%g").recall_handle is None
    level = broker.send(properties="DELAY\x013\x02TIMER_DELAY_MS\x019999\x02")
    assert isinstance(level, SendReply)
    assert level.recall_handle is None


def test_a_message_is_recalled_by_a_record_in_its_second(broker: LocalBroker, later: Later) -> None:
    handle = later().recall_handle
    reply = answer(broker, broker.peer, handle)
    assert (reply.code, reply.msg_id, reply.region) == (0, "one", "DefaultRegion")
    waiting, note = records(broker)
    properties, asked = map(decode_properties, (note.properties, waiting.properties))
    assert properties["TIMER_OUT_MS"] == asked["TIMER_OUT_MS"]
    assert (properties["TIMER_DEL_UNIQKEY"], properties["UNIQ_KEY"]) == ("one", "one")
    assert (properties["TAGS"], properties["PGROUP"], note.body) == ("_RECALL_TAG_", "pg", b"0")
    assert note.born_host == broker.peer.host_bytes


def test_a_recall_names_its_topic_if_configured(broker: LocalBroker, later: Later) -> None:
    broker.configure(appendTopicForTimerDeleteKey="true")
    assert answer(broker, broker.peer, later().recall_handle).code == 0
    properties = decode_properties(records(broker)[1].properties)
    assert (properties["TIMER_DEL_UNIQKEY"], properties["UNIQ_KEY"]) == ("orders+one", "one")


async def test_a_recall_is_flushed_like_an_acknowledged_message() -> None:
    config = BrokerConfig(
        host="127.0.0.1", port=0, sync_flush=True, recall_message=True, broker_name="broker-a"
    )
    async with BrokerServer(config) as server:
        broker = local(server.broker, FakePeer(b"\x00" * 15 + b"\x01\x00\x00\x00\x01"))
        text = f"TIMER_DELAY_MS\x01{HOUR_MS}\x02UNIQ_KEY\x01one\x02"
        sent = await broker.send(properties=text)
        assert sent.recall_handle
        call = Recall(topic="orders", recall_handle=sent.recall_handle)
        assert (await broker.ask(call)).msg_id == "one"
        assert broker.log.store.flushed_position == broker.log.store.end_position
        note = records(broker)[1]
        assert note.born_host == broker.peer.host_bytes
        assert "PGROUP" not in decode_properties(note.properties)


class TestRefused:
    """As the genuine broker refuses it, word by word."""

    @pytest.fixture(autouse=True)
    def sent(self, later: Later) -> str:
        handle = later().recall_handle
        assert handle
        return handle

    def check(
        self, broker: LocalBroker, handle: str, code: int, why: str, topic: str = "orders"
    ) -> None:
        before = broker.log.store.end_position
        reply = answer(broker, broker.peer, handle, topic)
        assert (reply.code, reply.remark, reply.region) == (code, why, "DefaultRegion")
        assert broker.log.store.end_position == before

    def test_a_malformed_recall_handle_is_refused(self, broker: LocalBroker) -> None:
        for handle in ("", "x", "djEgYQ=="):
            self.check(broker, handle, ILLEGAL, "recall handle is invalid")

    def test_a_topic_that_is_unknown_or_another(self, broker: LocalBroker, sent: str) -> None:
        why = "recall failed, the topic[none] not exist"
        self.check(broker, sent, ResponseCode.TOPIC_NOT_EXIST, why, "none")
        self.check(broker, sent, ILLEGAL, "recall failed, topic not match", "TBW102")

    def test_another_broker(self, broker: LocalBroker) -> None:
        at = broker.control.clock.now_ms() + HOUR_MS
        handle = RecallHandle("orders", "broker-b", at, "one").text()
        self.check(broker, handle, ILLEGAL, "recall failed, broker service not available")

    @pytest.mark.parametrize("left_ms", [0, -1, 3 * 24 * HOUR_MS + 1_000, 100 * 365 * 24 * HOUR_MS])
    def test_a_time_that_is_over_or_out_of_reach(self, broker: LocalBroker, left_ms: int) -> None:
        at = broker.control.clock.now_ms() + left_ms
        handle = RecallHandle("orders", "broker-a", at, "one").text()
        self.check(broker, handle, ILLEGAL, "recall failed, timestamp invalid")

    def test_a_disk_that_is_full(
        self, broker: LocalBroker, sent: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broker.log.ingest, "reappend", failing(StoreFull("no room")))
        self.check(broker, sent, ResponseCode.SYSTEM_ERROR, "recall failed, execute error: no room")


@pytest.mark.parametrize("settings", [{}])
def test_recalls_are_refused_by_default(broker: LocalBroker, later: Later) -> None:
    reply = answer(broker, broker.peer, later().recall_handle)
    assert (reply.code, reply.remark) == (
        ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden",
    )  # fmt: skip


def test_the_checkpoint_and_the_metrics_are_reported(broker: LocalBroker, later: Later) -> None:
    later()
    broker.delivery.timer.step(broker.control.clock.now_ms())
    body = broker.ask(GetTimerCheckpoint()).body
    assert len(body) == 56
    unpacked = unpack_checkpoint(body)
    assert (unpacked.offset, unpacked.master_offset, unpacked.log_end) == (1, 1, 52)
    table = json.loads(broker.ask(GetTimerMetrics()).body)
    assert table["timingCount"]["orders"]["count"] == 1
    assert set(table["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
