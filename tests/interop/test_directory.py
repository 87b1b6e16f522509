"""One data directory, opened in turn by our broker and by Apache RocketMQ 5.5.0."""

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import genuine
from harness.java_client import until
from harness.servers import DevServer
from roquet import client
from roquet.admin.client import AdminClient
from roquet.client import ConsumeFrom, ConsumerConfig, StoredMessage, TransactionState
from roquet.client.blocking import Producer, PullConsumer
from roquet.model.errors import StoreError
from roquet.model.message import Message
from roquet.store.store import Store
from roquet.wire.calls.pop import Pop

pytestmark = pytest.mark.interop
TOPIC = "InTurn"


@contextlib.contextmanager
def ours_on(data: Path, tmp_path: Path, *, killed: bool) -> Iterator[str]:
    """Our broker on a directory, ended in good order or not."""
    with DevServer(tmp_path, "--data", str(data)) as server:
        yield server.address
        if killed:
            server.kill()


def send(namesrv: str, first: int, count: int) -> None:
    with Producer(namesrv, group="in-turn") as producer:
        for number in range(first, first + count):
            key = f"key{number}"
            assert producer.send(Message(TOPIC, b"body %d" % number, keys=(key,))).ok


def bodies(namesrv: str) -> list[str]:
    bodies: list[str] = []
    with PullConsumer(namesrv, group="in-turn") as consumer:
        for queue in consumer.queues(TOPIC):
            offset, end = 0, consumer.max_offset(queue)
            while offset < end:
                got = consumer.pull(queue, offset, 32)
                assert [m.queue_offset for m in got.messages] == list(
                    range(offset, offset + len(got.messages))
                )
                bodies += [m.body.decode() for m in got.messages]
                offset = got.next_offset
    return sorted(bodies, key=lambda body: int(body.split()[1]))


@pytest.mark.parametrize("killed", [False, True])
def test_each_broker_continues_where_the_other_stopped(
    java: None, tmp_path: Path, killed: bool
) -> None:
    data = tmp_path / "genuine" / "store"
    with ours_on(data, tmp_path, killed=killed) as namesrv:
        send(namesrv, 0, 100)
    with genuine.cluster(tmp_path / "genuine") as running:
        assert bodies(running.namesrv) == [f"body {n}" for n in range(100)]
        send(running.namesrv, 100, 100)
    with ours_on(data, tmp_path, killed=False) as namesrv:
        assert bodies(namesrv) == [f"body {n}" for n in range(200)]
        send(namesrv, 200, 10)
        assert bodies(namesrv) == [f"body {n}" for n in range(210)]


WAIT_MS = 15_000
"""What waits, waits so long: a broker stops and the other one starts in that time, or nearly."""
LEVELS = " ".join(["1s", *["15s"] * 17])
LATE_S = 45
"""On a busy machine of two cores, for brokers that look at some things every few seconds."""
FROM_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


Handler = Callable[[client.ReceivedMessage], Awaitable[None]]


class Delivered(NamedTuple):
    """A delivered message."""

    ms: int
    tries: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def leave_waiting(namesrv: str) -> Mapping[str, int]:
    """One message in each way of waiting; gives when each is due, by its topic."""
    due: dict[str, int] = {}
    async with client.Producer(namesrv, group="waiting") as producer:
        for topic in ("Popped", "Failed"):
            assert (await producer.send(topic, topic.encode())).ok
        due["Popped"] = now_ms() + WAIT_MS
        await pop(namesrv)
        due["Failed"] = await fail(namesrv) + WAIT_MS
        due["Level"] = due["Timer"] = now_ms() + WAIT_MS
        assert (await producer.send("Level", b"Level", delay_level=2)).ok
        later = timedelta(milliseconds=WAIT_MS)
        assert (await producer.send("Timer", b"Timer", delay=later)).ok
    async with (
        client.TransactionProducer(namesrv, group="halves", check=never) as halves,
        halves.transaction("Half", b"Half") as tx,
    ):
        tx.unknown()
    return due


async def never(message: StoredMessage) -> TransactionState:
    raise AssertionError("asked too early")


async def pop(namesrv: str) -> None:
    """Take a message, and never say how it went."""
    async with AdminClient(namesrv) as admin:
        (address,) = (await admin.brokers()).values()
        call = Pop(
            consumer_group="of_Popped", topic="Popped", queue_id=-1, max_msg_nums=1, init_mode=0,
            invisible_time=WAIT_MS, poll_time=5_000, born_time=now_ms(), exp_type="TAG", exp="*",
            order=False,
        )  # fmt: skip
        assert (await admin.ask(address, call)).body


async def fail(namesrv: str) -> int:
    """Handle a message badly, once; gives when that was."""
    failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def handle(message: client.ReceivedMessage) -> None:
        failed.set_result(now_ms())
        raise ValueError("on purpose")

    async with client.PushConsumer(
        namesrv, group="of_Failed", topic="Failed", config=FROM_FIRST
    ) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        failed_ms = await failed
        consumer.stop()
        await running
    return failed_ms


async def see_them_come(namesrv: str) -> tuple[dict[str, Delivered], list[str]]:
    """What comes, by topic, and what its producer was asked."""
    came: dict[str, Delivered] = {}
    checked: list[str] = []

    async def check(message: StoredMessage) -> TransactionState:
        checked.append(message.body.decode())
        return TransactionState.COMMIT

    async def handle(message: client.ReceivedMessage) -> None:
        came[message.body.decode()] = Delivered(now_ms(), message.tries)

    async with contextlib.AsyncExitStack() as stack:
        producer = client.TransactionProducer(namesrv, group="halves", check=check, topics=["Half"])
        await stack.enter_async_context(producer)
        for topic in ("Level", "Timer", "Half", "Failed", "Popped"):
            await stack.enter_async_context(handling(namesrv, topic, handle))
        with contextlib.suppress(TimeoutError):
            await until(lambda: len(came) == 5, LATE_S)
        await asyncio.sleep(1)
    return came, checked


@contextlib.asynccontextmanager
async def handling(namesrv: str, topic: str, handle: Handler) -> AsyncIterator[None]:
    """A consumer of the topic's group at work."""
    kind = client.PopConsumer if topic == "Popped" else client.PushConsumer
    async with kind(namesrv, group="of_" + topic, topic=topic, config=FROM_FIRST) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        yield
        consumer.stop()
        await running


def check_each(due: Mapping[str, int], came: Mapping[str, Delivered], checked: list[str]) -> None:
    assert set(came) == {"Level", "Timer", "Half", "Failed", "Popped"}
    early = {topic: due[topic] - came[topic].ms for topic in due}
    assert all(ms <= 1_000 for ms in early.values()), early  # times are told in whole seconds
    tries = {topic: one.tries for topic, one in came.items()}
    assert tries == {"Level": 0, "Timer": 0, "Half": 0, "Failed": 1, "Popped": 1}
    assert set(checked) == {"Half"}


@pytest.fixture
def as_the_genuine_one(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings of both: the same levels, and questions about transactions soon."""
    monkeypatch.setenv("ROQUET_MESSAGE_DELAY_LEVELS", LEVELS)
    monkeypatch.setenv("ROQUET_TRANSACTION_TIMEOUT", "2s")
    monkeypatch.setenv("ROQUET_TRANSACTION_CHECK_INTERVAL", "3s")
    return {
        "brokerName": "broker-a",  # a checkpoint of a pop names its broker, and it looks there
        "messageDelayLevel": LEVELS,
        "transactionTimeOut": "2000",
        "transactionCheckInterval": "3000",
    }


async def test_messages_waiting_in_an_apache_directory_are_delivered_by_our_broker(
    java: None, as_the_genuine_one: dict[str, str], tmp_path: Path
) -> None:
    running = genuine.cluster(tmp_path / "genuine", **as_the_genuine_one)
    theirs = await asyncio.to_thread(running.__enter__)
    try:
        due = await leave_waiting(theirs.namesrv)
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)
    with ours_on(tmp_path / "genuine" / "store", tmp_path, killed=False) as namesrv:
        check_each(due, *await see_them_come(namesrv))


async def test_messages_waiting_in_our_directory_are_delivered_by_the_apache_broker(
    java: None, as_the_genuine_one: dict[str, str], tmp_path: Path
) -> None:
    with ours_on(tmp_path / "genuine" / "store", tmp_path, killed=False) as namesrv:
        due = await leave_waiting(namesrv)
    running = genuine.cluster(tmp_path / "genuine", **as_the_genuine_one)
    theirs = await asyncio.to_thread(running.__enter__)
    try:
        check_each(due, *await see_them_come(theirs.namesrv))
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


def read_all(namesrv: str) -> list[int | None]:
    """Read a topic's messages as a group; gives the progress that the group had."""
    with PullConsumer(namesrv, group="of-InTurn") as consumer:
        queues = consumer.queues(TOPIC)
        for queue in queues:  # the genuine broker knows a group once it has pulled
            consumer.pull(queue, 0, 32)
        former = [consumer.committed(queue) for queue in queues]
        for queue in queues:
            consumer.commit(queue, consumer.max_offset(queue))
    return former


def test_a_directory_on_rocksdb_is_refused_until_it_has_left_it_with_all_progress(
    java: None, tmp_path: Path
) -> None:
    data = tmp_path / "genuine" / "store"
    with genuine.cluster(tmp_path / "genuine", storeType="defaultRocksDB") as running:
        send(running.namesrv, 0, 8)
        read_all(running.namesrv)
        command = genuine.java(
            "tools.command.MQAdminStartup", "rocksDBConfigToJson", "-b", running.broker,
            options=[f"-Drocketmq.home.dir={tmp_path}"],
        )  # fmt: skip
        told = genuine.run(command, seconds=90, home=tmp_path / "tools")
        assert "export done" in told, told[-2000:]
    tables = ("consumerOffsets", "subscriptionGroups", "topics")
    databases = [*(f"config/{name}" for name in tables), "consumequeue"]
    with pytest.raises(StoreError, match=f"{'/, '.join(databases)}/"):
        Store.open(data, now_ms=now_ms(), pid=1)

    for name in databases:
        shutil.rmtree(data / name)
    with ours_on(data, tmp_path, killed=False) as namesrv:
        assert bodies(namesrv) == [f"body {n}" for n in range(8)]
        assert sum(offset or 0 for offset in read_all(namesrv)) == 8


@pytest.mark.parametrize(
    ("setting", "database"),
    [
        ({"configManagerVersion": "v2"}, "config/rdb"),
        ({"popConsumerKVServiceInit": "true"}, "kvStore"),
    ],
)
def test_a_directory_with_one_kind_of_table_on_rocksdb_is_refused(
    java: None, tmp_path: Path, setting: dict[str, str], database: str
) -> None:
    with genuine.cluster(tmp_path / "genuine", **setting) as running:
        send(running.namesrv, 0, 1)
    with pytest.raises(StoreError, match=rf"\({database}/\)"):
        Store.open(tmp_path / "genuine" / "store", now_ms=now_ms(), pid=1)


def test_a_directory_with_users_in_rocksdb_still_opens(java: None, tmp_path: Path) -> None:
    provider = "org.apache.rocketmq.auth.authentication.provider"
    settings = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{provider}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{provider}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": "root", "password": "secret-of-root"}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": "root", "secretKey": "secret-of-root"}
        ),
    }
    with genuine.cluster(tmp_path / "genuine", **settings) as running:
        pass
    assert (running.store / "config" / "users" / "CURRENT").exists()
    Store.open(running.store, now_ms=now_ms(), pid=1).close(now_ms())
