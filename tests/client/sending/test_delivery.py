"""A batch is sent to a queue, and retried on that or another one."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any, cast

import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster, session_of

from roquet.client.config import ProducerConfig
from roquet.client.connection.chosen_pauses import ChosenPauses
from roquet.client.sending.delivery import MessageDelivery, SendRetries
from roquet.client.sending.outgoing import OutgoingBatch
from roquet.client.sending.prepare import PreparedMessage
from roquet.client.sending.selectors import Chance, QueueSelection
from roquet.model.errors import CallError, CallRefused, CallTimeout, ConnectFailed, MessageIllegal
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.rules.send_retry import OTHER_BROKER, TRANSIENT
from roquet.testing.clock import this_loop
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode


def outgoing(*bodies: bytes, order_hash: int | None = None) -> OutgoingBatch:
    return OutgoingBatch.of(
        [PreparedMessage("t", body, "", "ID", order_hash, 0, 0, 99) for body in bodies]
    )


def busy(code: int = ResponseCode.SYSTEM_BUSY) -> CallRefused:
    return CallRefused(code, "try elsewhere")


@asynccontextmanager
async def delivering(
    queues: dict[str, int], **settings: Any
) -> AsyncIterator[tuple[FakeCluster, MessageDelivery]]:
    config: ProducerConfig = config_of(ProducerConfig, **settings)
    async with fake_cluster(t=queues) as cluster, session_of(cluster.address, config) as session:
        yield cluster, MessageDelivery(session, config, "g")


def held(cluster: FakeCluster) -> list[str]:
    """The broker of each stored message."""
    return sorted(n for n, b in cluster.brokers.items() for q in b.queues.values() for _ in q)


async def test_queues_take_turns() -> None:
    async with delivering({"a": 4, "b": 2}) as (cluster, delivery):
        for _ in range(60):
            await delivery.send(outgoing(b"x"))
        assert {
            (name, queue): len(records)
            for name, broker in cluster.brokers.items()
            for (_, queue), records in broker.queues.items()
        } == dict.fromkeys([("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)], 10)


async def test_a_refused_send_goes_to_another_broker_at_once() -> None:
    async with delivering({"a": 4, "b": 2}) as (cluster, delivery):
        for _ in range(20):
            cluster.a.faults[:] = [busy()]
            await delivery.send(outgoing(b"x"))
        assert held(cluster).count("b") >= 7  # those that met the fault
        assert this_loop().clock.monotonic_ms() < 100


@pytest.mark.parametrize("code", sorted(TRANSIENT | OTHER_BROKER))
async def test_codes_that_java_tries_again_are_tried_again(code: int) -> None:
    async with delivering({"a": 1}) as (cluster, delivery):
        cluster.a.faults += [busy(code), busy(code)]
        assert await delivery.send(outgoing(b"x"))
        assert len(cluster.a.sends) == 3


async def test_a_refusal_that_every_broker_would_give_is_raised() -> None:
    async with delivering({"a": 1, "b": 1}) as (cluster, delivery):
        for broker in cluster.brokers.values():
            broker.faults.append(MessageIllegal("too long"))
        with pytest.raises(CallRefused, match="too long") as caught:
            await delivery.send(outgoing(b"x"))
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert sum(len(b.sends) for b in cluster.brokers.values()) == 1


async def test_after_the_last_try_its_error_is_raised() -> None:
    async with delivering({"a": 1}) as (cluster, delivery):
        cluster.a.faults += [busy()] * 9
        with pytest.raises(CallRefused, match="try elsewhere"):
            await delivery.send(outgoing(b"x"))
        assert len(cluster.a.sends) == 3
        assert this_loop().clock.monotonic_ms() == 300  # the same broker: 100 ms, then 200 ms


async def test_a_dead_broker_is_passed_over() -> None:
    async with delivering({"a": 4, "b": 4}) as (cluster, delivery):
        await delivery.send(outgoing(b"x"))
        await cluster.a.server.stop(0)
        for _ in range(40):
            await delivery.send(outgoing(b"y"))
        assert held(cluster).count("b") >= 40


async def test_a_key_stays_with_its_queue_in_every_try() -> None:
    async with delivering({"a": 2, "b": 2}) as (cluster, delivery):
        cluster.a.faults += [busy(), busy()]
        await delivery.send(outgoing(b"x", order_hash=-5))
        assert [call.queue_id for call in cluster.a.sends] == [1, 1, 1]
        assert not cluster.brokers["b"].sends


async def test_a_key_whose_broker_is_dead_fails_and_goes_nowhere_else() -> None:
    async with delivering({"a": 2, "b": 2}) as (cluster, delivery):
        await delivery.queues("t", 1_000)
        await cluster.a.server.stop(0)
        with pytest.raises(ConnectFailed):
            await delivery.send(outgoing(b"x", order_hash=1))
        assert held(cluster) == []


async def test_time_is_counted_over_all_tries() -> None:
    async with delivering({"a": 1, "b": 1}, retry_times=9) as (cluster, delivery):
        for broker in cluster.brokers.values():
            broker.send_ms = 1_300
            broker.faults += [busy()] * 9
        with pytest.raises(CallTimeout):
            await delivery.send(outgoing(b"x"), 3_000)
        assert this_loop().clock.monotonic_ms() == 3_000


async def test_one_way_is_sent_once_and_not_waited_for() -> None:
    async with delivering({"a": 1}) as (cluster, delivery):
        cluster.a.send_ms = 10_000
        await delivery.send_oneway(outgoing(b"x"))
        assert this_loop().clock.monotonic_ms() < 100


async def test_every_try_carries_the_same_id() -> None:
    async with delivering({"a": 2, "b": 2}) as (cluster, delivery):
        for broker in cluster.brokers.values():
            broker.late_faults += [busy()]  # stored, and yet refused
        prepared = PreparedMessage("t", b"x", "UNIQ_KEY\x01ABC\x02", "ABC", None, 0, 0, 99)
        (receipt,) = await delivery.send(OutgoingBatch.of([prepared]))
        sent = [call.properties for b in cluster.brokers.values() for call in b.sends]
        assert sent == ["UNIQ_KEY\x01ABC\x02"] * 3
        assert (receipt.message_id, receipt.tries) == ("ABC", 3)


async def test_as_many_tries_as_the_settings_say() -> None:
    async with delivering({"a": 1}, retry_times=0) as (cluster, delivery):
        cluster.a.faults += [busy()]
        with pytest.raises(CallRefused) as caught:
            await delivery.send(outgoing(b"x"))
        assert caught.value.__notes__ == ["queue t@a:0, 1 try"]
        assert len(cluster.a.sends) == 1


async def test_one_try_may_have_less_than_the_whole_timeout() -> None:
    async with delivering({"a": 1, "b": 1}, try_timeout_ms=500) as (cluster, delivery):
        cluster.a.send_ms = 60_000
        receipts = [(await delivery.send(outgoing(b"x")))[0] for _ in range(2)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"b"}
        assert sorted(receipt.tries for receipt in receipts) == [1, 2]
        assert 500 <= this_loop().clock.monotonic_ms() < 600


async def test_an_error_of_a_bound_message_says_that_no_other_queue_was_tried() -> None:
    async with delivering({"a": 2, "b": 2}) as (cluster, delivery):
        cluster.a.faults += [busy()] * 3
        with pytest.raises(CallRefused) as caught:
            await delivery.send(outgoing(b"x", order_hash=1))
        assert "queue t@a:1, 3 tries; sent to no other queue" in caught.value.__notes__[0]


async def test_a_selectors_queue_is_kept_and_chance_is_asked_again() -> None:
    async with delivering({"a": 2, "b": 2}) as (cluster, delivery):
        message = Message("t", b"x")
        for selector, home in ((lambda queues, _: queues[1], "a"), (Chance(), "b")):
            cluster.a.faults[:] = [busy()]
            prepared = PreparedMessage(
                "t", b"x", "", "I", None, 0, 0, 9, selection=QueueSelection(selector, message)
            )
            receipt = None
            while receipt is None or receipt.tries == 1:
                (receipt,) = await delivery.send(OutgoingBatch.of([prepared]))
            assert receipt.queue.broker_name == home


def weak(broker: Any, code: ResponseCode = ResponseCode.SLAVE_NOT_AVAILABLE) -> None:
    """Make a broker store messages less durably than it promises."""
    strong = broker.take

    async def take(call: Any, items: Any) -> SendReply:
        reply = await strong(call, items)
        return SendReply(
            code=code, msg_id=reply.msg_id, queue_id=reply.queue_id, queue_offset=reply.queue_offset
        )

    broker.take = take


async def test_a_less_durable_status_is_returned_by_default() -> None:
    async with delivering({"a": 1}) as (cluster, delivery):
        weak(cluster.a)
        (receipt,) = await delivery.send(outgoing(b"x"))
        assert receipt.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert held(cluster) == ["a"]


async def test_a_less_durable_status_may_be_retried_at_another_broker() -> None:
    async with delivering({"a": 4, "b": 1}, retry_less_durable=True) as (cluster, delivery):
        weak(cluster.a)
        receipts = [(await delivery.send(outgoing(b"x")))[0] for _ in range(5)]
        assert all(receipt.ok for receipt in receipts)
        assert {receipt.queue.broker_name for receipt in receipts} == {"b"}


async def test_a_less_durable_receipt_is_returned_when_no_broker_does_better() -> None:
    async with delivering({"a": 1, "b": 1}, retry_less_durable=True) as (cluster, delivery):
        weak(cluster.a)
        cluster.brokers["b"].faults += [busy()] * 99
        receipts = [(await delivery.send(outgoing(b"x")))[0] for _ in range(4)]
        assert {receipt.status for receipt in receipts} == {SendStatus.SLAVE_NOT_AVAILABLE}
        bound = (await delivery.send(outgoing(b"y", order_hash=0)))[0]
        assert bound.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert cluster.a.bodies("t", 0).count(b"y") == 1


async def test_each_producer_begins_its_turns_somewhere() -> None:
    async with delivering({"a": 4}) as (_cluster, delivery):
        turns = [delivery.new_round_robin() for _ in range(200)]
        first = [(await delivery.send(outgoing(b"x"), None, None, turn))[0].queue for turn in turns]
        assert {queue.queue_id for queue in first} == {0, 1, 2, 3}
        ten = [
            (await delivery.send(outgoing(b"x"), None, None, turns[0]))[0].queue for _ in range(10)
        ]
        start = first[0].queue_id
        assert [queue.queue_id for queue in ten] == [(start + 1 + n) % 4 for n in range(10)]


async def promoted_after(cluster: FakeCluster, seconds: float) -> None:
    """Lose the master of "a" now; its replica becomes the master after a while."""
    await cluster.lose_master("a")
    await asyncio.sleep(seconds)
    cluster.promote("a")


@pytest.mark.parametrize("order_hash", [None, 1])
async def test_a_send_finds_the_new_master_while_its_time_lasts(order_hash: int | None) -> None:
    async with delivering({"a": 2}) as (cluster, delivery):
        replica = await cluster.add_replica("a")
        await delivery.send(outgoing(b"x", order_hash=order_hash))
        failover = asyncio.create_task(promoted_after(cluster, 2))
        await asyncio.sleep(0)
        await delivery.send(outgoing(b"y", order_hash=order_hash))
        assert len(replica.sends) == 1
        assert 2_000 <= this_loop().clock.monotonic_ms() <= 2_600
        await failover


async def test_a_send_that_a_former_master_refuses_asks_for_the_route_at_once() -> None:
    async with delivering({"a": 2}) as (cluster, delivery):
        await cluster.add_replica("a")
        await delivery.send(outgoing(b"x"))
        former = cluster.a
        former.faults += [busy()] * 100
        replica = cluster.promote("a")
        cluster.replicas["a"][2] = former
        await delivery.send(outgoing(b"y"))
        assert (len(former.sends), len(replica.sends)) == (2, 1)
        assert this_loop().clock.monotonic_ms() <= 200


async def test_a_new_master_may_refuse_sends_for_a_while() -> None:
    async with delivering({"a": 2}) as (cluster, delivery):
        replica = await cluster.add_replica("a")
        await delivery.send(outgoing(b"x"))
        await cluster.lose_master("a")
        cluster.promote("a")
        replica.faults += [busy(ResponseCode.SYSTEM_ERROR)] * 4
        (receipt,) = await delivery.send(outgoing(b"y"))
        assert receipt.tries == 6


async def test_a_send_fails_at_its_deadline_when_there_is_no_new_master() -> None:
    async with delivering({"a": 2}) as (cluster, delivery):
        await cluster.add_replica("a")
        await delivery.send(outgoing(b"x", order_hash=1))
        await cluster.lose_master("a")
        with pytest.raises(ConnectFailed):
            await delivery.send(outgoing(b"y", order_hash=1))
        assert this_loop().clock.monotonic_ms() == 3_000


async def test_without_retries_no_master_is_waited_for() -> None:
    async with delivering({"a": 2}, retry_times=0) as (cluster, delivery):
        await cluster.add_replica("a")
        await delivery.send(outgoing(b"x"))
        await cluster.a.server.stop(0)
        with pytest.raises(ConnectFailed):
            await delivery.send(outgoing(b"y"))
        assert this_loop().clock.monotonic_ms() < 100


async def test_brokers_that_all_wait_for_a_master_are_tried_with_pauses() -> None:
    async with delivering({"a": 1, "b": 1}) as (cluster, delivery):
        for name in "ab":
            await cluster.add_replica(name)
            cluster.brokers[name].faults += [busy()] * 100
        with pytest.raises(CallRefused):
            await delivery.send(outgoing(b"x"))
        assert this_loop().clock.monotonic_ms() == 3_000
        assert sum(len(broker.sends) for broker in cluster.brokers.values()) < 15


A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
BUSY = CallRefused(ResponseCode.SYSTEM_BUSY, "busy")
NEVER = CallRefused(ResponseCode.MESSAGE_ILLEGAL, "too long")


class Brokers:
    """Brokers that fail as often as a test says, and note what they are asked, with the time."""

    def __init__(self, failures: int, replicated: str = "") -> None:
        self.chosen_pauses = ChosenPauses(None)
        self.asked: list[tuple[int, str]] = []
        self.others: Iterator[MessageQueue] = cycle((A,))
        self.config = ProducerConfig(clock=this_loop().clock, retry_times=2)
        self._failures = failures
        self._replicated = replicated

    async def another_queue(self, *_arguments: object) -> MessageQueue:
        return next(self.others)

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
    brokers.others = cycle(others or (A,))
    batch = outgoing(b"x", order_hash=order_hash)
    return SendRetries(cast("Any", brokers), batch, limit_ms, None)


async def test_another_broker_is_tried_at_once() -> None:
    brokers = Brokers(0)
    (receipt,) = await retries(brokers, B).run(A, BUSY)
    assert (receipt.queue, receipt.tries, brokers.asked) == (B, 2, [(0, "b")])


async def test_the_same_broker_is_tried_after_pauses_that_grow() -> None:
    brokers = Brokers(9)
    with pytest.raises(CallRefused, match="busy") as caught:
        await retries(brokers).run(A, BUSY)
    assert brokers.asked == [(100, "a"), (300, "a")]
    assert "3 tries" in "".join(caught.value.__notes__)


async def test_an_error_that_every_broker_would_give_is_raised_at_once() -> None:
    brokers = Brokers(0)
    with pytest.raises(CallRefused, match="too long") as caught:
        await retries(brokers, order_hash=1).run(A, NEVER)
    assert brokers.asked == []
    assert "order or selector bind it" in "".join(caught.value.__notes__)


async def test_a_broker_that_gets_a_new_master_is_tried_until_the_deadline() -> None:
    brokers = Brokers(99, replicated="a")
    with pytest.raises(CallRefused):
        await retries(brokers, limit_ms=500).run(A, BUSY)
    route, tried = brokers.asked[::2], brokers.asked[1::2]
    assert [time for time, _ in route] == [time for time, _ in tried] == [0, 50, 150, 350, 500]
    assert {what for _, what in route} == {"route"}


async def test_from_a_broker_in_failover_a_batch_goes_to_another_and_back_after_a_pause() -> None:
    brokers = Brokers(1, replicated="a")
    await retries(brokers, B, A).run(A, BUSY)
    assert brokers.asked == [(0, "route"), (0, "b"), (100, "a")]
