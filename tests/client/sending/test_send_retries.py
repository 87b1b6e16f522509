"""A batch is tried again: which error, at which queue, after which pause."""

from collections.abc import Sequence
from itertools import cycle

import pytest

from roquet.client.config import ProducerConfig
from roquet.client.sending.outgoing import OutgoingBatch
from roquet.client.sending.prepare import PreparedMessage
from roquet.client.sending.send_retries import SendRetries
from roquet.model.errors import CallError, CallRefused
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.codes import ResponseCode

A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
BUSY = CallRefused(ResponseCode.SYSTEM_BUSY, "busy")
NEVER = CallRefused(ResponseCode.MESSAGE_ILLEGAL, "too long")


class Brokers:
    """Brokers that fail as often as a test says, and note what they are asked, with the time."""

    def __init__(self, failures: int, replicated: str = "") -> None:
        self.asked: list[tuple[int, str]] = []
        self._failures = failures
        self._replicated = replicated

    def note(self, what: str) -> None:
        self.asked.append((this_loop().clock.monotonic_ms(), what))

    async def attempt(
        self, outgoing: OutgoingBatch, queue: MessageQueue, deadline_ms: int, tries: int
    ) -> Sequence[SendReceipt]:
        self.note(queue.broker_name)
        if self._failures:
            self._failures -= 1
            raise BUSY
        return [
            SendReceipt(
                status=SendStatus.SEND_OK,
                message_id="ID",
                offset_message_id="A",
                queue=queue,
                queue_offset=0,
                tries=tries,
            )
        ]

    async def refresh_route(self, topic: str, left_ms: int) -> None:
        self.note("route")

    async def has_stale_queue(
        self, error: CallError, outgoing: OutgoingBatch, queue: MessageQueue
    ) -> bool:
        return False

    def is_failover(self, error: CallError, broker_name: str, *, is_known: bool) -> bool:
        return broker_name in self._replicated


def retries(
    brokers: Brokers, *others: MessageQueue, order_hash: int | None = None, limit_ms: int = 3_000
) -> SendRetries:
    """Retries that go to other queues in turn; without any they stay at the first broker."""
    queues = cycle(others or (A,))

    async def another(_failed: MessageQueue) -> MessageQueue:
        return next(queues)

    prepared = PreparedMessage("t", b"x", "", "ID", order_hash, 0, 0, 99)
    config = ProducerConfig(clock=this_loop().clock, retry_times=2)
    return SendRetries(brokers, config, OutgoingBatch.of([prepared]), limit_ms, another)


@in_virtual_time
async def test_another_broker_is_tried_at_once() -> None:
    brokers = Brokers(0)
    (receipt,) = await retries(brokers, B).run(A, BUSY)
    assert (receipt.queue, receipt.tries, brokers.asked) == (B, 2, [(0, "b")])


@in_virtual_time
async def test_the_same_broker_is_tried_after_pauses_that_grow() -> None:
    brokers = Brokers(9)
    with pytest.raises(CallRefused, match="busy") as caught:
        await retries(brokers).run(A, BUSY)
    assert brokers.asked == [(100, "a"), (300, "a")]
    assert "3 tries" in "".join(caught.value.__notes__)


@in_virtual_time
async def test_an_error_that_every_broker_would_give_is_raised_at_once() -> None:
    brokers = Brokers(0)
    with pytest.raises(CallRefused, match="too long") as caught:
        await retries(brokers, order_hash=1).run(A, NEVER)
    assert brokers.asked == []
    assert "order or selector bind it" in "".join(caught.value.__notes__)


@in_virtual_time
async def test_a_broker_that_gets_a_new_master_is_tried_until_the_deadline() -> None:
    brokers = Brokers(99, replicated="a")
    with pytest.raises(CallRefused):
        await retries(brokers, limit_ms=500).run(A, BUSY)
    route, tried = brokers.asked[::2], brokers.asked[1::2]
    assert [time for time, _ in route] == [time for time, _ in tried] == [0, 50, 150, 350, 500]
    assert {what for _, what in route} == {"route"}


@in_virtual_time
async def test_from_a_broker_in_failover_a_batch_goes_to_another_one_and_back_after_a_pause() -> (
    None
):
    brokers = Brokers(1, replicated="a")
    await retries(brokers, B, A).run(A, BUSY)
    assert brokers.asked == [(0, "route"), (0, "b"), (100, "a")]
