"""A producer's transactions against a real broker, and against one that fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest
from tests.client.conftest import FakeBroker, FakeCluster, config_of, fake_cluster

from roquet.client import (
    Message,
    ProducerConfig,
    StoredMessage,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from roquet.client.connection import session
from roquet.client.metrics import SENT, ClientMetrics
from roquet.model.errors import (
    CallError,
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    MessageIllegal,
    RecordError,
    UsageError,
)
from roquet.net.channel import Security
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.net.router import Peer, Router
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import decode_many

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
Fault = Exception | None


class FaultyPool:
    """Records what a producer sends; calls of one type may fail."""

    def __init__(self, pool: ChannelPool) -> None:
        self.calls: list[Any] = []
        self.faults: dict[type, list[Fault]] = {}
        self.change: Callable[[Any], Any] = lambda reply: reply
        self._call, self._oneway = pool.call, pool.oneway
        pool.call, pool.oneway = self.call, self.oneway  # type: ignore[method-assign]

    def _note(self, call: Any) -> None:
        self.calls.append(call)
        if (faults := self.faults.get(type(call))) and (fault := faults.pop(0)) is not None:
            raise fault

    async def call(self, address: str, call: Any, timeout_ms: int = 3_000) -> Any:
        self._note(call)
        reply = await self._call(address, call, timeout_ms)
        return self.change(reply) if isinstance(call, Send) else reply

    async def oneway(self, address: str, call: Any) -> None:
        self._note(call)
        await self._oneway(address, call)

    def sent(self, kind: type) -> list[Any]:
        return [call for call in self.calls if type(call) is kind]


async def check(message: StoredMessage) -> TransactionState:
    return TransactionState.ROLLBACK


@asynccontextmanager
async def producing(
    brokers: int = 1, **settings: Any
) -> AsyncIterator[tuple[Cluster, TransactionProducer, FaultyPool]]:
    async with cluster(brokers=brokers, clock=this_loop().clock) as running:
        config = ProducerConfig(
            clock=this_loop().clock, rng=Random(2), client_ip="127.0.0.1", **settings
        )
        producer = TransactionProducer(running.namesrv_addr, group="pg", check=check, config=config)
        pools: list[ChannelPool] = []

        def make_pool(router: Router, *, clock: Clock, security: Security) -> ChannelPool:
            pools.append(ChannelPool(router, clock=clock, security=security))
            return pools[-1]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(session, "ChannelPool", make_pool)
            await producer.start()
        try:
            yield running, producer, FaultyPool(pools[0])
        finally:
            await producer.close()


def bodies(running: Cluster, topic: str = "t") -> list[bytes]:
    halves = []
    for broker in running.brokers:
        store = broker.broker.log.store
        for queue_id in store.queue_ids(topic):
            parts = store.read(topic, queue_id, 0, count_max=100).parts
            halves += [record.body for part in parts for record in decode_many(part)]
    return sorted(halves)


async def test_what_is_sent_names_transaction_and_group() -> None:
    async with producing() as (running, producer, pool_calls):
        async with producer.transaction("t", b"m", keys=("a", "b"), order_key="o") as tx:
            assert tx.topic == "t"
            assert tx.receipt.message_id == tx.message_id
        (half,), (end,) = pool_calls.sent(Send), pool_calls.sent(EndTransaction)
        properties = decode_properties(half.properties)
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "pg")
        assert properties["KEYS"] == "a b"
        assert (end.commit_or_rollback, end.msg_id, end.topic) == (8, tx.message_id, "t")
        assert (end.half_offset, end.from_transaction_check) == (0, False)
        assert tx.state is TransactionState.COMMIT
        assert bodies(running) == [b"m"]
        (broker,) = running.brokers
        assert broker.broker.tables.clients.producers("pg"), "it is known before it can be asked"


async def test_a_block_that_is_cancelled_rolls_back() -> None:
    async with producing() as (running, producer, pool_calls):

        async def work() -> None:
            async with producer.transaction("t", b"m"):
                await asyncio.sleep(1_000)

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [call.commit_or_rollback for call in pool_calls.sent(EndTransaction)] == [12]
        assert bodies(running) == []


async def test_a_block_may_say_that_it_does_not_know_and_raise() -> None:
    async with producing() as (_, producer, pool_calls):
        tx = producer.transaction("t", b"m")
        with pytest.raises(TimeoutError):
            async with tx:
                await _unsure(tx)
        assert tx.state is TransactionState.UNKNOWN
        assert pool_calls.sent(EndTransaction) == []


async def _unsure(tx: Transaction) -> None:
    tx.unknown()
    raise TimeoutError


async def test_a_half_message_that_may_be_stored_is_not_sent_again() -> None:
    """The broker would ask about each, and could deliver both."""
    async with producing() as (running, producer, pool_calls):
        for fault in (ConnectionLost("gone"), CallTimeout("late")):
            pool_calls.faults[Send] = [fault]
            with pytest.raises(type(fault)):
                async with producer.transaction("t", b"m"):
                    raise AssertionError("the block must not run")
        assert len(pool_calls.sent(Send)) == 2
        assert pool_calls.sent(EndTransaction) == []
        assert bodies(running) == []


async def test_a_half_message_certainly_not_stored_is_retried_within_the_timeout() -> None:
    async with producing(brokers=2) as (running, producer, pool_calls):
        await producer.send("t", b"plain")
        busy = CallRefused(ResponseCode.SYSTEM_BUSY, "busy")
        pool_calls.faults[Send] = [busy, ConnectFailed("away")]
        async with producer.transaction("t", b"m"):
            pass
        assert bodies(running) == [b"m", b"plain"]
        pool_calls.faults[Send] = [busy] * 9
        with pytest.raises(CallRefused):
            async with producer.transaction("t", b"never"):
                pass
        assert len(pool_calls.faults[Send]) == 6, "three tries"
        with pytest.raises(CallRefused):
            async with producer.transaction("t", b"never", timeout_ms=50):
                pass
        assert len(pool_calls.faults[Send]) == 4, "the time was over"


async def test_retries_of_a_half_message_pause_as_the_backoff_says_and_count_as_one_send() -> None:
    metrics, chosen = ClientMetrics(), list[Any]()

    def backoff(attempt: int, error: BaseException | None) -> float:
        chosen.append((attempt, type(error)))
        return 0.7

    async with producing(backoff=backoff, metrics=metrics) as (_, producer, pool_calls):
        pool_calls.faults[Send] = [CallRefused(ResponseCode.SYSTEM_BUSY, "busy")] * 2
        began_ms = this_loop().clock.monotonic_ms()
        async with producer.transaction("t", b"m"):
            assert this_loop().clock.monotonic_ms() - began_ms == pytest.approx(1_400, abs=20)
    assert chosen == [(1, CallRefused), (2, CallRefused)]
    sent = [(n, v) for n, v in metrics.snapshot().items() if n.startswith(SENT.name)]
    assert [(n.partition('result="')[2][:2], v) for n, v in sent] == [("ok", 1)]


async def test_a_half_message_that_would_be_refused_again_is_sent_once() -> None:
    async with producing() as (_, producer, pool_calls):
        pool_calls.faults[Send] = [CallRefused(ResponseCode.MESSAGE_ILLEGAL, "no")] * 9
        with pytest.raises(CallRefused):
            async with producer.transaction("t", b"m"):
                raise AssertionError("the block must not run")
        assert len(pool_calls.sent(Send)) == 1


async def test_the_time_of_a_transaction_begins_with_its_block() -> None:
    async with producing() as (running, producer, pool_calls):
        tx = producer.transaction("t", b"m", timeout_ms=500)
        await asyncio.sleep(2)
        pool_calls.faults[Send] = [CallRefused(ResponseCode.SYSTEM_BUSY, "busy")]
        async with tx:
            pass
        assert bodies(running) == [b"m"]


async def test_a_half_message_that_is_less_durable_than_promised_is_rolled_back() -> None:
    async with producing() as (running, producer, pool_calls):
        pool_calls.change = lambda reply: msgspec.structs.replace(
            reply, code=ResponseCode.FLUSH_DISK_TIMEOUT
        )
        with pytest.raises(CallError, match="FLUSH_DISK_TIMEOUT") as error:
            async with producer.transaction("t", b"m"):
                raise AssertionError("the block must not run")
        assert error.value.definite
        assert [call.commit_or_rollback for call in pool_calls.sent(EndTransaction)] == [12]
        await asyncio.sleep(0.1)
        assert bodies(running) == []


async def test_a_broker_with_unreadable_ids_takes_no_transactions() -> None:
    async with producing() as (_, producer, pool_calls):
        pool_calls.change = lambda reply: msgspec.structs.replace(reply, msg_id="somewhere")
        with pytest.raises(RecordError):
            async with producer.transaction("t", b"m"):
                raise AssertionError("the block must not run")


@pytest.mark.parametrize(
    "fault",
    [
        ConnectionLost("gone"),
        CallTimeout("late"),
        ConnectFailed("away"),
        CallRefused(ResponseCode.SYSTEM_BUSY, "busy"),
        CallRefused(ResponseCode.ILLEGAL_OPERATION, "too late"),
    ],
)
async def test_a_commit_that_does_not_arrive_is_left_to_the_check(
    fault: CallError, caplog: pytest.LogCaptureFixture
) -> None:
    async with producing() as (running, producer, pool_calls):
        pool_calls.faults[EndTransaction] = [fault]
        async with producer.transaction("t", b"m") as tx:
            pass
        assert f"COMMIT of message {tx.message_id}" in caplog.text
        assert bodies(running) == []


async def test_a_commit_that_can_never_be_is_an_error() -> None:
    async with producing() as (_, producer, pool_calls):
        pool_calls.faults[EndTransaction] = [
            CallRefused(1, "Find prepared transaction message failed")
        ]
        with pytest.raises(CallRefused, match="Find prepared"):
            async with producer.transaction("t", b"m"):
                pass


async def test_a_roll_back_that_is_not_sent_hides_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with producing() as (_, producer, pool_calls):
        pool_calls.faults[EndTransaction] = [ConnectFailed("away")]
        with pytest.raises(ValueError, match="mine"):
            async with producer.transaction("t", b"m"):
                raise ValueError("mine")
        assert "ROLLBACK of message" in caplog.text


async def test_a_transaction_may_be_one_call_with_a_function() -> None:
    async with producing() as (running, producer, _):

        async def commit(tx: Transaction) -> TransactionState:
            assert tx.receipt.ok
            return TransactionState.COMMIT

        done = await producer.send_in_transaction("t", b"1", local=commit)
        assert (done.state, done.receipt.ok) == (TransactionState.COMMIT, True)
        done = await producer.send_in_transaction(
            Message("t", b"2"), local=lambda _: TransactionState.ROLLBACK
        )
        assert done.state is TransactionState.ROLLBACK
        done = await producer.send_in_transaction("t", b"3", local=lambda _: None)
        assert done.state is TransactionState.UNKNOWN
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction("t", b"4", local=lambda _: 1 // 0)  # type: ignore[arg-type,return-value]
        with pytest.raises(UsageError, match="local is a function, not NoneType"):
            await producer.send_in_transaction("t", b"5", local=None)  # type: ignore[call-overload]
        with pytest.raises(UsageError, match="local is called with one argument, the transaction"):
            await producer.send_in_transaction("t", b"5", local=lambda: None)  # type: ignore[arg-type,misc]
        assert bodies(running) == [b"1"]


async def test_a_producer_that_has_sent_nothing_sends_heartbeats() -> None:
    async with cluster(clock=this_loop().clock) as running:
        config = ProducerConfig(clock=this_loop().clock, client_ip="127.0.0.1")
        async with TransactionProducer(
            running.namesrv_addr, group="pg", check=check, topics=["t"], config=config
        ):
            await asyncio.sleep(3)
            assert len(running.brokers[0].broker.tables.clients.producers("pg")) == 1
        await asyncio.sleep(1)
        assert running.brokers[0].broker.tables.clients.producers("pg") == []


async def test_a_new_broker_learns_of_an_older_producer() -> None:
    clock = this_loop().clock
    async with cluster(brokers=0, clock=clock) as running:
        config = ProducerConfig(clock=clock, client_ip="127.0.0.1")
        async with TransactionProducer(
            running.namesrv_addr, group="pg", check=check, config=config
        ):
            await asyncio.sleep(10)
            broker = await running.add_broker()
            await asyncio.sleep(40)
            assert len(broker.broker.tables.clients.producers("pg")) == 1


async def test_a_name_server_that_is_away_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    config = ProducerConfig(clock=this_loop().clock, client_ip="127.0.0.1")
    async with TransactionProducer("127.0.0.1:9", group="pg", check=check, config=config):
        await asyncio.sleep(10)
    assert "no name server answered at 127.0.0.1:9" in caplog.text
    assert "ended with an error" not in caplog.text


async def test_an_invalid_transaction_is_refused() -> None:
    async with producing() as (_, producer, pool_calls):
        with pytest.raises(UsageError, match="one message"):
            producer.transaction([Message("t", b"1"), Message("t", b"2")])  # type: ignore[call-overload]
        later = datetime(2040, 1, 1, tzinfo=UTC)
        for wish in ({"delay_level": 3}, {"delay": timedelta(seconds=5)}, {"deliver_at": later}):
            with pytest.raises(UsageError, match="cannot be delayed"):
                producer.transaction("t", b"m", **wish)
        with pytest.raises(UsageError, match="has no priority"):
            producer.transaction("t", b"m", priority=3)
        with pytest.raises(MessageIllegal):
            producer.transaction("t", b"")
        with pytest.raises(MessageIllegal):
            producer.transaction("t", b"m", properties={"TRAN_MSG": "false"})
        tx = producer.transaction("t", b"m")
        with pytest.raises(UsageError, match="not begun"):
            _ = tx.receipt
        async with tx:
            pass
        with pytest.raises(UsageError, match="used once"):
            await tx.__aenter__()
        assert len(pool_calls.sent(Send)) == 1


def test_wrong_transaction_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="function"):
        TransactionProducer("h:1", group="pg", check=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"\('orders',\)"):
        TransactionProducer("h:1", group="pg", check=check, topics="orders")
    with pytest.raises(UsageError):
        TransactionProducer("h:1", group="pg", check=check, topics=["no spaces"])


async def test_a_half_message_waits_for_the_next_master_within_the_timeout() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        replica = await cluster.add_replica("a")
        for broker in (cluster.a, replica):
            broker.handlers[Send] = partial(send_with_position, broker)
        config = config_of(ProducerConfig)
        async with TransactionProducer(
            cluster.address, group="pg", check=check, config=config
        ) as producer:
            async with producer.transaction("t", b"first") as transaction:
                transaction.unknown()
            assert not replica.sends
            await cluster.lose_master("a")
            async with asyncio.TaskGroup() as group:
                group.create_task(promoted(cluster, 2))
                async with producer.transaction("t", b"second") as transaction:
                    transaction.unknown()
            assert [call.body for call in replica.sends] == [b"second"]
            await replica.server.stop(0)
            with pytest.raises(ConnectFailed):
                async with producer.transaction("t", b"third"):
                    pass


async def send_with_position(broker: FakeBroker, call: Send, peer: Peer) -> SendReply:
    """Store a message; the reply has a message id as real brokers make it."""
    reply = await broker.send(call, peer)
    return msgspec.structs.replace(reply, msg_id="7F00000100002A9F" + "0" * 16)


async def promoted(cluster: FakeCluster, seconds: float) -> None:
    await asyncio.sleep(seconds)
    cluster.promote("a")
