"""Transactions from a producer through a broker: ended, asked about, given up; through kills."""

import asyncio
import logging
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conversation.conftest import SMALL, config_of, started, virtual_cluster
from tests.unpacking import unpack

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client import (
    ConsumerConfig,
    Message,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from roquet.model.errors import CallRefused
from roquet.model.flags import SysFlag
from roquet.model.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from roquet.model.subscription import HeartbeatData, ProducerData
from roquet.net.channel import Channel
from roquet.net.router import Peer, Router
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction, ResumeCheck
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode, decode_many

STORES = Path(__file__).parent.parent / "vectors" / "store"
HELD = Path("/held")
COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0

Check = Callable[[StoredMessage], Any]


def records(store: Store, topic: str, queue_id: int = 0) -> list[Record]:
    found = store.read(topic, queue_id, 0, count_max=10_000, bytes_max=1 << 30)
    return [record for part in found.parts for record in decode_many(part)]


def everywhere(store: Store, topic: str) -> list[Record]:
    return [one for queue_id in store.queue_ids(topic) for one in records(store, topic, queue_id)]


def bodies(broker: BrokerServer, topic: str = "t") -> list[bytes]:
    return sorted(record.body for record in everywhere(broker.broker.log.store, topic))


@asynccontextmanager
async def producing(
    check: Check, **of_broker: Any
) -> AsyncIterator[tuple[Cluster, TransactionProducer]]:
    async with virtual_cluster(**of_broker) as running:
        config = config_of(ProducerConfig, rng=Random(2))
        async with TransactionProducer(
            running.namesrv_addr, group="pg", check=check, config=config
        ) as producer:
            yield running, producer


def no_check(message: StoredMessage) -> TransactionState:
    raise AssertionError(f"nobody should ask about {message}")


# -- with our client -----------------------------------------------------------------------------


async def test_a_block_that_ends_commits_and_one_that_raises_rolls_back() -> None:
    async with producing(no_check) as (running, producer):
        broker = running.brokers[0]
        async with producer.transaction("t", b"kept", keys="k1", tag="red") as tx:
            assert bodies(broker) == [], "nobody gets it yet"
            assert tx.receipt.queue.topic == "t"
        with pytest.raises(ValueError, match="no such order"):
            async with producer.transaction("t", b"dropped"):
                raise ValueError("no such order")
        async with producer.transaction(Message("t", b"not wanted")) as tx:
            tx.rollback()
        await asyncio.sleep(120)
        assert bodies(broker) == [b"kept"]
        (found,) = everywhere(broker.broker.log.store, "t")
        properties = decode_properties(found.properties)
        assert (properties["TAGS"], properties["KEYS"], properties["PGROUP"]) == ("red", "k1", "pg")
        assert "REAL_TOPIC" not in properties
        assert found.sys_flag & 12 == SysFlag.TRANSACTION_COMMIT
        assert len(broker.broker.delivery.transactions.halves) == 0


async def test_a_consumer_gets_what_was_committed_and_nothing_else() -> None:
    async with producing(no_check) as (running, producer):
        got: list[bytes] = []
        config = config_of(ConsumerConfig, rng=Random(3))

        async def handle(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with PushConsumer(
            running.namesrv_addr, group="g", topic="t", tags="red", config=config
        ) as consumer:
            task = asyncio.create_task(consumer.run(handle))
            for number in range(8):
                async with producer.transaction("t", b"%d" % number, tag="red") as tx:
                    if number % 2:
                        tx.rollback()
            await asyncio.sleep(30)
            consumer.stop()
            await task
        assert sorted(got) == [b"0", b"2", b"4", b"6"]


async def test_an_undecided_producer_is_checked_after_a_while_and_again() -> None:
    asked: list[tuple[int, str]] = []
    began = this_loop().clock.now_ms()

    async def check(message: StoredMessage) -> TransactionState:
        asked.append(((this_loop().clock.now_ms() - began) // 1_000, message.message_id))
        assert (message.topic, message.body) == ("t", b"later")
        assert int(message.properties["TRANSACTION_CHECK_TIMES"]) == len(asked)
        return TransactionState.COMMIT if len(asked) == 3 else TransactionState.UNKNOWN

    async with producing(check) as (running, producer):
        async with producer.transaction("t", b"later") as tx:
            tx.unknown()
        await asyncio.sleep(200)
        assert [key for _, key in asked] == [tx.message_id] * 3
        times = [at for at, _ in asked]
        assert times[0] <= 36
        assert [b - a for a, b in pairwise(times)] == [30, 30]
        assert bodies(running.brokers[0]) == [b"later"]


@pytest.mark.parametrize("answer", ["raises", "nonsense", "plain", "roll back"])
async def test_checks_without_a_decision_repeat(
    caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    asked: list[StoredMessage] = []

    def check(message: StoredMessage) -> Any:
        asked.append(message)
        if answer == "raises" and len(asked) < 3:
            raise RuntimeError("the database is away")
        if answer == "nonsense" and len(asked) < 3:
            return "yes"
        return TransactionState.ROLLBACK if answer == "roll back" else TransactionState.COMMIT

    async with producing(check) as (running, producer):
        async with producer.transaction("t", b"m") as tx:
            tx.unknown()
        await asyncio.sleep(130)
        assert len(asked) == (3 if answer in ("raises", "nonsense") else 1)
        assert bodies(running.brokers[0]) == ([] if answer == "roll back" else [b"m"])
    told = {"raises": "the check of message", "nonsense": "no TransactionState"}
    assert told.get(answer, "") in caplog.text


async def test_a_half_message_is_given_up_after_fifteen_checks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[StoredMessage] = []

    async def check(message: StoredMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.UNKNOWN

    async with producing(check, transaction_check_interval=5_000) as (running, producer):
        async with producer.transaction("t", b"lost cause") as tx:
            tx.unknown()
        await asyncio.sleep(120)
        broker = running.brokers[0]
        assert len(asked) == 15
        assert bodies(broker) == []
        (given_up,) = records(broker.broker.log.store, CHECK_MAX_TIME_TOPIC)
        assert given_up.body == b"lost cause"
        properties = decode_properties(given_up.properties)
        assert (properties["REAL_TOPIC"], properties["TRANSACTION_CHECK_TIMES"]) == ("t", "15")
        assert any(tx.message_id in r.message for r in caplog.records if r.levelno >= logging.ERROR)
        assert len(broker.broker.delivery.transactions.halves) == 0


async def test_a_half_message_given_up_can_be_put_back_and_is_checked_again() -> None:
    asked: list[StoredMessage] = []

    async def check(message: StoredMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT if len(asked) > 2 else TransactionState.UNKNOWN

    async with producing(check, transaction_check_max=2) as (running, producer):
        async with producer.transaction("t", b"m") as tx:
            tx.unknown()
        await asyncio.sleep(200)
        broker = running.brokers[0]
        (given_up,) = records(broker.broker.log.store, CHECK_MAX_TIME_TOPIC)
        channel = await Channel.connect("127.0.0.1", broker.port, clock=this_loop().clock)
        message_id = broker.broker.log.ingest.message_id(given_up.position)
        await channel.call(ResumeCheck(topic=CHECK_MAX_TIME_TOPIC, msg_id=message_id))
        await asyncio.sleep(60)
        await channel.close()
        assert len(asked) == 3
        assert bodies(broker) == [b"m"]


async def test_another_producer_of_the_group_answers_for_one_that_has_gone() -> None:
    async with virtual_cluster() as running:
        asked: list[str] = []

        async def check(message: StoredMessage) -> TransactionState:
            asked.append(message.message_id)
            return TransactionState.COMMIT

        config = config_of(ProducerConfig, rng=Random(1))
        async with (
            TransactionProducer(
                running.namesrv_addr, group="pg", check=no_check, config=config
            ) as first,
            first.transaction("t", b"orphan") as tx,
        ):
            tx.unknown()
        await asyncio.sleep(100)
        async with TransactionProducer(
            running.namesrv_addr,
            group="pg",
            check=check,
            config=config_of(ProducerConfig, rng=Random(2)),
        ):
            await asyncio.sleep(40)
        assert asked == [tx.message_id], "it has sent nothing, and is asked nevertheless"
        assert bodies(running.brokers[0]) == [b"orphan"]


async def test_a_late_commit_ends_the_message_where_it_stands_now() -> None:
    """The block outlasts the first checks; the message comes once, and is not asked about again."""
    asked: list[str] = []

    async def check(message: StoredMessage) -> TransactionState:
        asked.append(message.message_id)
        return TransactionState.UNKNOWN

    async with producing(check) as (running, producer):
        async with producer.transaction("t", b"slow"):
            await asyncio.sleep(100)
        assert bodies(running.brokers[0]) == [b"slow"]
        assert len(asked) == 3
        await asyncio.sleep(100)
        assert (bodies(running.brokers[0]), len(asked)) == ([b"slow"], 3)


async def test_a_committed_message_may_wait_for_its_delivery_time() -> None:
    async with virtual_cluster() as running:
        broker = running.brokers[0]
        async with raw(broker) as client:
            reply = await client.half(b"in 10 s", extra="DELAY\x013\x02")
            await client.end(reply, COMMIT)
            await asyncio.sleep(9)
            assert bodies(broker) == []
            await asyncio.sleep(2)
            assert bodies(broker) == [b"in 10 s"]


# -- with a client of our own making: bad input --------------------------------------------------


class RawProducer:
    """A producer whose requests a test makes itself."""

    def __init__(self, channel: Channel, asked: list[tuple[CheckTransactionState, Record]]) -> None:
        self.channel = channel
        self.asked = asked

    async def half(self, body: bytes, extra: str = "", key: str = "", **fields: Any) -> SendReply:
        key = f"UNIQ_KEY\x01{key}\x02" if key else ""
        call = Send(
            producer_group="pg",
            topic="t",
            queue_id=0,
            sys_flag=4,
            born_timestamp=this_loop().clock.now_ms(),
            properties=f"{key}TRAN_MSG\x01true\x02PGROUP\x01pg\x02{extra}",
            body=body,
            **fields,
        )
        reply: SendReply = await self.channel.call(call)
        return reply

    async def end(self, half: SendReply, how: int, **fields: Any) -> None:
        given = {
            "producer_group": "pg",
            "half_offset": half.queue_offset,
            "position": parse_offset_message_id(half.msg_id)[1],
            "msg_id": half.transaction_id or "",
            **fields,
        }
        await self.channel.call(EndTransaction(commit_or_rollback=how, **given))

    async def answer(self, how: int) -> None:
        """End what was asked about last."""
        call, _ = self.asked[-1]
        await self.channel.call(
            EndTransaction(
                producer_group="pg",
                half_offset=call.half_offset,
                position=call.position,
                commit_or_rollback=how,
                from_transaction_check=True,
            )
        )

    async def beat(self) -> None:
        data = HeartbeatData(client_id="raw", producer_data_set=[ProducerData(group_name="pg")])
        await self.channel.call(Heartbeat(body=codec.dumps(data)))


@asynccontextmanager
async def raw(broker: BrokerServer) -> AsyncIterator[RawProducer]:
    router, asked = Router(), list[tuple[CheckTransactionState, Record]]()

    def hear(call: CheckTransactionState, _peer: Peer) -> None:
        asked.append((call, decode(call.body)))

    router.add(CheckTransactionState, hear)
    channel = await Channel.connect(
        "127.0.0.1", broker.port, router=router, clock=this_loop().clock
    )
    client = RawProducer(channel, asked)
    await client.beat()
    beating = asyncio.create_task(_beating(client))
    try:
        yield client
    finally:
        beating.cancel()
        await channel.close()


async def _beating(client: RawProducer) -> None:
    while True:
        await asyncio.sleep(30)
        await client.beat()


@asynccontextmanager
async def serving(**given: Any) -> AsyncIterator[tuple[BrokerServer, RawProducer]]:
    async with started(**given) as broker, raw(broker) as client:
        yield broker, client


async def refused(work: Awaitable[object]) -> tuple[int, str]:
    with pytest.raises(CallRefused) as error:
        await work
    return error.value.code, error.value.remark or ""


async def test_an_end_that_agrees_with_no_half_message_is_refused() -> None:
    async with serving() as (broker, client):
        half = await client.half(b"m")
        plain: SendReply = await client.channel.call(
            Send(producer_group="pg", topic="t", queue_id=1, born_timestamp=1, body=b"plain")
        )
        ends: list[tuple[dict[str, Any], str]] = [
            ({"position": 10**9}, "Find prepared transaction message failed"),
            ({"position": -1}, "Find prepared transaction message failed"),
            ({"position": 2**63 - 1}, "Find prepared transaction message failed"),
            ({"position": parse_offset_message_id(plain.msg_id)[1]}, "Find prepared"),
            ({"producer_group": "foreign"}, "The producer group wrong"),
            ({"half_offset": 7}, "The transaction state table offset wrong"),
        ]
        for fields, remark in ends:
            for how in (COMMIT, ROLL_BACK):
                code, said = await refused(client.end(half, how, **fields))
                assert (code, remark in said) == (ResponseCode.SYSTEM_ERROR, True)
        code, said = await refused(client.end(half, 5))
        assert (code, "field wrong" in said) == (ResponseCode.SYSTEM_ERROR, True)
        await client.end(half, UNKNOWN)
        assert bodies(broker) == [b"plain"]
        await client.end(half, COMMIT)
        assert bodies(broker) == [b"m", b"plain"]


@pytest.mark.parametrize("first", [COMMIT, ROLL_BACK])
async def test_an_end_that_comes_twice_does_nothing(first: int) -> None:
    async with serving() as (broker, client):
        half = await client.half(b"m")
        await client.end(half, first)
        for how in (COMMIT, ROLL_BACK):
            code, said = await refused(client.end(half, how))
            assert (code, "ended before" in said) == (ResponseCode.SYSTEM_ERROR, True)
        await asyncio.sleep(120)
        for how in (COMMIT, ROLL_BACK):
            await refused(client.end(half, how, from_transaction_check=True))
        assert bodies(broker) == ([b"m"] if first == COMMIT else [])
        assert client.asked == []


async def test_an_end_after_the_last_check_does_nothing() -> None:
    async with serving(transaction_check_max=1) as (broker, client):
        half = await client.half(b"m")
        await asyncio.sleep(120)
        assert len(client.asked) == 1
        _, said = await refused(client.end(half, COMMIT))
        assert "ended before" in said
        _, said = await refused(client.answer(COMMIT))
        assert "ended before" in said
        assert bodies(broker) == []
        assert len(records(broker.broker.log.store, CHECK_MAX_TIME_TOPIC)) == 1


async def test_an_answer_to_an_earlier_check_counts() -> None:
    async with serving() as (broker, client):
        await client.half(b"m")
        await asyncio.sleep(100)
        assert len(client.asked) >= 3
        del client.asked[1:]
        await client.answer(COMMIT)
        assert bodies(broker) == [b"m"]
        await asyncio.sleep(100)
        assert len(client.asked) == 1


async def test_a_message_may_ask_to_be_left_alone_for_longer() -> None:
    async with serving() as (broker, client):
        began = this_loop().clock.now_ms()
        quiet = await client.half(b"quiet", extra="CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02")
        await client.half(b"other")
        await asyncio.sleep(70)
        assert {record.body for _, record in client.asked} == {b"other"}
        await client.end(quiet, COMMIT)
        assert bodies(broker) == [b"quiet"]
        slow = await client.half(b"slow", extra="CHECK_IMMUNITY_TIME_IN_SECONDS\x0120\x02")
        await asyncio.sleep(21)
        code, said = await refused(client.end(slow, COMMIT))
        assert (code, "wait for the check" in said) == (ResponseCode.ILLEGAL_OPERATION, True)
        await asyncio.sleep(30)
        assert client.asked[-1][1].body == b"slow"
        await client.answer(COMMIT)
        assert bodies(broker) == [b"quiet", b"slow"]
        assert this_loop().clock.now_ms() - began < 130_000


async def test_a_message_that_was_sent_twice_is_delivered_once() -> None:
    """The producer got no answer and sent it again; of the first one it will be asked."""
    async with serving() as (broker, client):
        await client.half(b"m", key="same")
        second = await client.half(b"m", key="same")
        await client.end(second, COMMIT)
        await asyncio.sleep(50)
        assert len(client.asked) == 1
        await client.answer(COMMIT)
        await asyncio.sleep(60)
        assert len(client.asked) == 1
        assert bodies(broker) == [b"m"]


async def test_a_check_shows_the_message_as_it_will_be_delivered() -> None:
    async with serving() as (broker, client):
        half = await client.half(b"m", key="k1", extra="TAGS\x01red\x02a\x01b\x02", flag=9)
        await asyncio.sleep(40)
        ((call, record),) = client.asked
        assert (record.topic, record.queue_id, record.body, record.flag) == ("t", 0, b"m", 9)
        assert (call.half_offset, call.position) == (record.queue_offset, record.position)
        assert call.half_offset != half.queue_offset, "it was put back before"
        assert (call.msg_id, call.transaction_id, call.broker_name) == ("k1", "k1", "broker-a")
        assert call.offset_msg_id == broker.broker.log.ingest.message_id(call.position)
        properties = decode_properties(record.properties)
        assert (properties["a"], properties["TRANSACTION_CHECK_TIMES"]) == ("b", "1")


async def test_only_given_up_messages_are_put_back() -> None:
    async with serving() as (_, client):
        half = await client.half(b"m")
        for message_id in (None, "", "x", "0" * 32, half.msg_id, "F" * 32):
            code, said = await refused(client.channel.call(ResumeCheck(msg_id=message_id)))
            assert (code, "message" in said) == (ResponseCode.SYSTEM_ERROR, True)


# -- through restarts and kills ------------------------------------------------------------------


async def settled(files: MemoryFiles, **settings: Any) -> tuple[int, int]:
    """Start on what a kill has left, commit all asked about; how often each is there in the end."""
    async with serving(**settings, store_dir=HELD, files=files) as (broker, client):
        for _ in range(4):
            await asyncio.sleep(2)
            for asked in client.asked.copy():
                client.asked.append(asked)
                with suppress(CallRefused):  # one that was put back is asked about twice
                    await client.answer(COMMIT)
            client.asked.clear()
        assert len(broker.broker.delivery.transactions.halves) == 0
        store = broker.broker.log.store
        return len(everywhere(store, "t")), len(records(store, CHECK_MAX_TIME_TOPIC))


KILLED = {
    "transaction_timeout": 1_000,
    "transaction_check_interval": 2_000,
    "save_interval": 1_500,
    "log_file_size": 1 << 17,
}


async def lived(kind: str, client: RawProducer) -> None:
    """What happens until the broker is killed."""
    extra = "CHECK_IMMUNITY_TIME_IN_SECONDS\x013\x02" if kind == "immune" else ""
    half = await client.half(b"m", key="k1", extra=extra)
    if kind == "twice":
        half = await client.half(b"m", key="k1")
    if kind in ("checked", "immune", "late", "given up"):
        await asyncio.sleep(6.5)
    if kind in ("checked", "immune"):
        await client.answer(COMMIT)
    elif kind != "given up":
        await client.end(half, COMMIT)
    await asyncio.sleep(2)


@pytest.mark.parametrize("kind", ["commit", "checked", "immune", "given up", "late", "twice"])
async def test_a_kill_between_any_two_steps_neither_loses_nor_doubles(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The broker is killed after each record that it stores, and after each table it saves."""
    files, left = MemoryFiles(), list[MemoryFiles]()
    quick = {**KILLED, "transaction_check_max": 1 if kind == "given up" else 15}

    def leaving(act: Callable[..., Any]) -> Callable[..., Any]:
        def then_killed(*args: Any, **named: Any) -> Any:
            done = act(*args, **named)
            left.append(files.copy())
            return done

        return then_killed

    async with serving(**quick, store_dir=HELD, files=files) as (broker, client):
        await client.end(await client.half(b"x", key="k0"), ROLL_BACK)
        await client.half(b"other")
        await asyncio.sleep(1)
        store = broker.broker.log.store
        monkeypatch.setattr(store, "append", leaving(store.append))
        monkeypatch.setattr(files, "replace", leaving(files.replace))
        await lived(kind, client)
        monkeypatch.undo()
    assert len(left) >= 5
    for number, copy in enumerate(left):
        found = await settled(copy, **quick)
        # Of "other" and "m"; "x" was rolled back. What of "m" was not stored was not promised.
        assert sum(found) == 2, f"{found} after step {number} of {len(left)}"


async def test_a_clean_restart_knows_what_is_open() -> None:
    files = MemoryFiles()
    async with serving(store_dir=HELD, files=files) as (broker, client):
        halves = [await client.half(b"%d" % number) for number in range(10)]
        for half in halves[1::2]:
            await client.end(half, COMMIT)
        assert broker.broker.delivery.transactions.halves.start == 0
    async with serving(store_dir=HELD, files=files) as (broker, client):
        for half in halves[1::2]:
            await refused(client.end(half, COMMIT))
        await client.end(halves[0], COMMIT)
        await client.end(halves[2], ROLL_BACK)
        assert bodies(broker) == [b"0", b"1", b"3", b"5", b"7", b"9"]
        await asyncio.sleep(40)
        assert {record.body for _, record in client.asked} == {b"4", b"6", b"8"}


async def test_op_messages_name_all_that_has_ended() -> None:
    async with serving(transaction_op_size=64) as (broker, client):
        halves = [await client.half(b"%d" % number) for number in range(40)]
        for number, half in enumerate(halves):
            await client.end(half, ROLL_BACK if number % 3 else COMMIT)
        await asyncio.sleep(1)
        found = records(broker.broker.log.store, OP_HALF_TOPIC)
        assert len(found) == 2
        assert b"".join(record.body for record in found) == b"".join(
            b"%d," % number for number in range(40)
        )
        assert {record.sys_flag for record in found} == {0}
        assert decode_properties(found[0].properties) == {"TAGS": "d", "WAIT": "true"}
        offsets = broker.broker.tables.offsets
        assert offsets.get("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 40
        assert offsets.get("CID_RMQ_SYS_TRANS", OP_HALF_TOPIC, 0) == 2


# -- directories of the genuine broker -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["5.5.0-clean", "5.5.0-killed", "4.9.7-killed"])
async def test_half_messages_of_an_apache_directory_are_checked(tmp_path: Path, kind: str) -> None:
    with tarfile.open(STORES / f"{kind}.tar.xz") as archive:
        large = ("timerlog", "timerwheel")
        wanted = [member for member in archive if not any(name in member.name for name in large)]
        unpack(archive, tmp_path, wanted)
    clock = this_loop().clock
    clock.jump(1_795_247_700_000 - clock.now_ms())  # soon after the directory was written
    config = BrokerConfig(**{**SMALL, "store_dir": tmp_path, "retention": 10**12})
    async with BrokerServer(config, clock) as broker, raw_of(broker, "PG_tx") as client:
        store = broker.broker.log.store
        committed = {record.prepared_position for record in everywhere(store, "TopicC")} - {0}
        await asyncio.sleep(40)
        keys = [decode_properties(record.properties)["KEYS"] for _, record in client.asked]
        # Who killed it had begun anew, and left the third message open again.
        again = ["tk2"] if kind.endswith("killed") else []
        assert sorted(keys) == sorted(["tk2", "tk8", "tk14", "tk20", "tk26", *again])
        asked = {call.msg_id: call for call, _ in client.asked}
        before = len(everywhere(store, "TopicC"))
        for call in asked.values():
            await client.channel.call(
                EndTransaction(
                    producer_group="PG_tx",
                    half_offset=call.half_offset,
                    position=call.position,
                    commit_or_rollback=COMMIT,
                    from_transaction_check=True,
                )
            )
        assert len(everywhere(store, "TopicC")) == before + len(asked)
        await asyncio.sleep(100)
        assert len(client.asked) == len(asked), "nothing is open any more"
        assert committed


@asynccontextmanager
async def raw_of(broker: BrokerServer, group: str) -> AsyncIterator[RawProducer]:
    async with raw(broker) as client:
        data = HeartbeatData(client_id="raw2", producer_data_set=[ProducerData(group_name=group)])
        await client.channel.call(Heartbeat(body=codec.dumps(data)))
        yield client
