"""A batch is one request, and its reply is a receipt for each message."""

from collections.abc import Sequence
from random import Random

import pytest

from roquet.client.config import ProducerConfig
from roquet.client.sending.outgoing import OutgoingBatch, build_receipts, send_call
from roquet.client.sending.prepare import PreparedMessage
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.wire.calls.send import SendBatch, SendReply
from roquet.wire.codes import ResponseCode

QUEUE = MessageQueue("t", "a", 1)


def prepared(body: bytes, order_hash: int | None = None) -> PreparedMessage:
    return PreparedMessage("t", body, "", "ID", order_hash, 0, 0, 99)


def test_the_first_message_with_a_fixed_queue_decides_on_the_queue() -> None:
    plain, bound, other = prepared(b"1"), prepared(b"2", 5), prepared(b"3", 6)
    assert OutgoingBatch.of([plain, bound, other]).lead is bound
    assert OutgoingBatch.of([plain, plain]).lead is plain
    assert OutgoingBatch.of([bound]).topic == "t"


def test_one_message_is_a_send_and_several_are_a_batch() -> None:
    config = ProducerConfig(rng=Random(1))
    one = send_call(OutgoingBatch.of([prepared(b"1")]), QUEUE, "g", config)
    assert (one.body, one.queue_id, one.producer_group) == (b"1", 1, "g")
    many = send_call(OutgoingBatch.of([prepared(b"1"), prepared(b"2")]), QUEUE, "g", config)
    assert isinstance(many, SendBatch)
    assert (many.queue_id, many.producer_group) == (1, "g")


def receipts_of(reply: SendReply, *bodies: bytes) -> Sequence[SendReceipt]:
    return build_receipts(OutgoingBatch.of([prepared(body) for body in bodies]), QUEUE, reply)


def test_each_message_of_a_batch_has_its_own_receipt() -> None:
    receipts = receipts_of(SendReply(msg_id="A,B,C", queue_id=1, queue_offset=7), b"1", b"2", b"3")
    assert [(r.offset_message_id, r.queue_offset) for r in receipts] == [
        ("A", 7),
        ("B", 8),
        ("C", 9),
    ]
    assert {r.queue for r in receipts} == {QUEUE}
    assert all(r.ok for r in receipts)


def test_a_batch_that_is_stored_as_one_has_one_id() -> None:
    receipts = receipts_of(SendReply(msg_id="A", queue_id=1, queue_offset=7), b"1", b"2")
    assert [(r.offset_message_id, r.queue_offset) for r in receipts] == [("A", 7), ("A", 8)]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
    ids=lambda value: value.name,
)
def test_stored_but_less_durable_is_a_receipt(code: ResponseCode, status: SendStatus) -> None:
    (receipt,) = receipts_of(SendReply(code=code, msg_id="A"), b"1")
    assert (receipt.status, receipt.ok) == (status, False)
