"""Every reply that promises something waits for disk and replicas, by one operation."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.ack import AckHandler
from roquet.broker.handlers.messages.pop import PopHandler
from roquet.broker.handlers.messages.reply import ReplyHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.handlers.messages.send_back import SendBackHandler
from roquet.broker.handlers.messages.timer import TimerHandler
from roquet.broker.handlers.messages.transaction import TransactionHandler
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements
from roquet.model.errors import CallRefused
from roquet.model.names import retry_topic
from roquet.rules.replication.acknowledgement import BrokerRole, PutStatus
from roquet.rules.transaction import COMMIT
from roquet.wire.call import Reply
from roquet.wire.calls.pop import Ack, BatchAck, ChangeInvisible, Pop, encode_bits
from roquet.wire.calls.reply import SendReplyMessage
from roquet.wire.calls.send import SendBack, SendBatch
from roquet.wire.calls.timer import Recall
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import parse_offset_message_id

REPLICA = 1
"""A connection of a replica that reports what a test says."""

SYNC: dict[str, Any] = {
    "broker_role": BrokerRole.SYNC_MASTER,
    "in_sync_replicas": 2,
    "slave_timeout": 150,
    "recall_message": True,
}


@pytest.fixture
def settings() -> dict[str, Any]:
    return SYNC


def replicate(broker: Broker) -> None:
    """Let the replica have all that is stored."""
    acknowledgements = broker.replication.acknowledgements
    assert isinstance(acknowledgements, Acknowledgements)
    acknowledgements.report(REPLICA, "10.0.0.2", broker.log.store.end_position)


async def replicated(broker: Broker, answer: Any) -> Any:
    """The reply, which does not come before the replica has the message."""
    assert isinstance(answer, Awaitable)
    waiting = asyncio.ensure_future(answer)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    replicate(broker)
    return await waiting


async def test_who_waits_for_nobody_gets_the_reply_itself(broker: Broker) -> None:
    plain = Reply()
    acknowledgements = broker.replication.acknowledgements
    assert isinstance(acknowledgements, Acknowledgements)
    acknowledgements.is_needed = False
    assert broker.make(SafeReplies).when_safe(plain) is plain


async def test_a_reply_comes_after_the_timeout_all_the_same(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.log.ingest.append(message(), 0, peer)
    plain = Reply()
    position = broker.log.store.end_position
    assert await broker.make(SafeReplies).once_safe(plain, position) is plain
    assert await broker.make(SafeReplies).when_safe(plain) is plain  # type: ignore[misc]


class SlowReplicas:
    """Acknowledgements of an elected master whose replicas do not report in time."""

    may_lose_stored = True
    is_needed = True
    status_now = PutStatus.FLUSH_SLAVE_TIMEOUT

    async def status(self, _position: int) -> PutStatus:
        return self.status_now


async def test_a_master_that_may_be_replaced_refuses_what_is_at_it_alone(broker: Broker) -> None:
    slow: Any = SlowReplicas()
    replication = replace(broker.replication, acknowledgements=slow)
    replies = SafeReplies(broker.log, broker.tables, broker.control, replication)
    with pytest.raises(CallRefused, match="too few replicas have acknowledged it"):
        await replies.once_safe(Reply(), 0)
    slow.status_now = PutStatus.FLUSH_DISK_TIMEOUT
    plain = Reply()
    assert await replies.once_safe(plain, 0) is plain, "all of the set have it"


async def test_sends_wait_and_say_what_they_did_not_get(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    assert (await replicated(broker, broker.bind(SendHandler.send)(message(), peer))).code == 0
    items = encode_batch([BatchItem(0, b"one", b""), BatchItem(0, b"two", b"")])
    call = message(items)
    fields = {name: getattr(call, name) for name in call.__struct_fields__}
    batch = SendBatch(**{**fields, "batch": True})
    assert (await replicated(broker, broker.bind(SendHandler.send)(batch, peer))).code == 0
    assert (await replicated(broker, broker.bind(SendHandler.send)(batch, peer))).code == 0
    late: Any = await broker.bind(SendHandler.send)(message(), peer)  # type: ignore[misc]
    assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert "inSyncReplicas" in late.remark
    assert late.queue_offset == 5
    hasty: Any = broker.bind(SendHandler.send)(message(properties="WAIT\x01false\x02"), peer)
    assert hasty.code == 0


async def test_delayed_and_half_messages_and_dead_letters_wait(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    half = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01k\x02"
    for fields in (
        {"properties": "DELAY\x013\x02"},
        {"properties": half, "sys_flag": 4},
        {"topic": retry_topic("g"), "reconsume_times": 99, "max_reconsume_times": 2},
    ):
        answer = broker.bind(SendHandler.send)(message(**fields), peer)
        assert (await replicated(broker, answer)).code == 0


async def test_the_end_of_a_transaction_waits(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    half = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01k\x02"
    now_ms = broker.control.clock.now_ms()
    call = message(properties=half, sys_flag=4, born_timestamp=now_ms)
    sent = await replicated(broker, broker.bind(SendHandler.send)(call, peer))
    commit = EndTransaction(
        producer_group="pg",
        half_offset=sent.queue_offset,
        position=parse_offset_message_id(sent.msg_id)[1],
        commit_or_rollback=COMMIT,
        msg_id=sent.transaction_id,
    )
    assert (await replicated(broker, broker.bind(TransactionHandler.end)(commit, peer))).code == 0


async def test_a_message_sent_back_waits_and_is_refused_after_the_timeout(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    sent = await replicated(broker, broker.bind(SendHandler.send)(message(), peer))
    back = SendBack(
        offset=parse_offset_message_id(sent.msg_id)[1], group="g", delay_level=3,
        origin_msg_id=sent.msg_id, origin_topic="orders", max_reconsume_times=16,
    )  # fmt: skip
    assert (await replicated(broker, broker.bind(SendBackHandler.send_back)(back, peer))).code == 0
    with pytest.raises(CallRefused, match="too few replicas"):
        await broker.bind(SendBackHandler.send_back)(back, peer)  # type: ignore[misc]


async def test_a_recall_waits(broker: Broker, peer: FakePeer, message: MakeSend) -> None:
    at_ms = broker.control.clock.now_ms() + 60_000
    call = message(properties=f"TIMER_DELIVER_MS\x01{at_ms}\x02UNIQ_KEY\x01k\x02")
    sent = await replicated(broker, broker.bind(SendHandler.send)(call, peer))
    back = Recall(topic="orders", recall_handle=sent.recall_handle, producer_group="pg")
    assert (await replicated(broker, broker.bind(TimerHandler.recall)(back, peer))).code == 0


async def test_a_reply_to_a_request_waits(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    async def takes_it(_call: object, _timeout_ms: int) -> Reply:
        return Reply()

    peer.reply_to = takes_it
    broker.tables.clients.producer = lambda _: peer  # type: ignore[method-assign, assignment]
    call = message(topic="orders", properties="REPLY_TO_CLIENT\x01c\x02")
    fields = {name: getattr(call, name) for name in call.__struct_fields__}
    fields = {name: fields[name] for name in SendReplyMessage.__struct_fields__ if name in fields}
    answer = broker.bind(ReplyHandler.reply)(SendReplyMessage(**fields), peer)
    assert (await replicated(broker, answer)).code == 0


async def test_acknowledgements_of_popped_messages_wait(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    for _ in range(3):
        await replicated(broker, broker.bind(SendHandler.send)(message(), peer))
    call = Pop(
        consumer_group="g", topic="orders", queue_id=0, max_msg_nums=3, invisible_time=30_000,
        poll_time=0, born_time=broker.control.clock.now_ms(), init_mode=0, order=False,
    )  # fmt: skip
    popped: Any = broker.bind(PopHandler.pop)(call, peer)
    popped = await popped if isinstance(popped, Awaitable) else popped
    handles = broker.delivery.revive.in_flight
    (checkpoint,) = handles
    info = (
        f"{checkpoint.start} {checkpoint.pop_ms} {checkpoint.invisible_ms} "
        f"{checkpoint.revive_queue_id} 0 broker-a 0"
    )
    fields: dict[str, Any] = {"consumer_group": "g", "topic": "orders", "queue_id": 0}
    answer = broker.bind(AckHandler.ack)(Ack(**fields, extra_info=f"{info} 0", offset=0), peer)
    assert (await replicated(broker, answer)).code == 0
    change = ChangeInvisible(**fields, extra_info=f"{info} 1", offset=1, invisible_time=60_000)
    assert (
        await replicated(broker, broker.bind(AckHandler.change_invisible)(change, peer))
    ).code == 0
    acked = {
        "c": "g", "t": "orders", "r": "0", "so": checkpoint.start, "q": 0, "b": encode_bits(4),
        "rq": checkpoint.revive_queue_id, "pt": checkpoint.pop_ms, "it": checkpoint.invisible_ms,
    }  # fmt: skip
    many = BatchAck(body=json.dumps({"brokerName": "broker-a", "acks": [acked]}).encode())
    once: Any = broker.bind(AckHandler.batch_ack)(many, peer)
    again = broker.bind(AckHandler.ack)(Ack(**fields, extra_info=f"{info} 2", offset=2), peer)
    assert (await replicated(broker, again)).code == 0, "not before the first one is safe"
    assert (await once).code == 0
