"""The log streamed between our broker and one of Apache RocketMQ 5.5.0, either way: equal bytes."""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.interop.elected_group import FILE_SIZE, wait_until

from harness import genuine
from roquet.broker.app import BrokerServer
from roquet.client import ConsumeFrom, ConsumerConfig, ProducerConfig, TransactionState
from roquet.client.blocking import PopConsumer, Producer, TransactionProducer
from roquet.model import names
from roquet.model.message import Message
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.config import StoreConfig
from roquet.store.store import Draft, Store
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]


ENTRY_SIZE = 20
"""Bytes of one entry of a queue."""

FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
"""Entry in front of the first message that a queue of a late replica has."""

TOPICS = (
    "Copied",
    "Ordered",
    "Decided",
    names.SCHEDULE_TOPIC,
    names.TIMER_TOPIC,
    names.HALF_TOPIC,
    names.OP_HALF_TOPIC,
    names.revive_topic("DefaultCluster"),
)
"""Topics of the messages that are sent, and of those that wait in between."""

OUR_RETRY_TOPIC = names.pop_retry_topic("popping", "Ordered")
THEIR_RETRY_TOPIC = names.pop_retry_topic_v1("popping", "Ordered")
"""Where a broker of ours, and one of Apache's, lets popped messages come again by default."""


def log_bytes(store: Path, end: int) -> bytes:
    """Bytes of a directory's log, from its first file up to a position; zeros where it ends."""
    files = sorted((store / "commitlog").iterdir())
    data = b"".join(file.read_bytes() for file in files)
    return data[: end - int(files[0].name)]


def queue_bytes(store: Path, topic: str) -> dict[str, bytes]:
    """Entries of a topic's queues, by file."""
    folder = store / "consumequeue" / topic
    return {
        str(path.relative_to(folder)): path.read_bytes().rstrip(b"\0")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differing_queues(theirs: Path, ours: Path, retry_topic: str) -> list[str]:
    """Topics whose queues are empty here, or have another entry at some offset than there."""
    differing = []
    for topic in (*TOPICS, retry_topic):
        there, here = queue_bytes(theirs, topic), queue_bytes(ours, topic)
        pairs = [(there.get(file, b""), entries) for file, entries in here.items()]
        if not any(entries for _, entries in pairs) or not all(map(agree, pairs)):
            differing.append(topic)
    return differing


def agree(pair: tuple[bytes, bytes]) -> bool:
    """Whether both files have the same entries, but for those that a late replica never had."""
    there, here = pair
    first = 0
    while here[first : first + ENTRY_SIZE] == FILLER:
        first += ENTRY_SIZE
    return there[first:] == here[first:]


def send_many(namesrv: str) -> None:
    """Send messages of several kinds, more than a file of the log holds."""
    with Producer(namesrv, group="replicated") as producer:
        for number in range(300):
            body = b"%04d" % number * 1_000
            receipt = producer.send("Copied", body[:4_000], tag=f"t{number % 3}", keys=("k",))
            assert receipt.ok
        producer.send_batch([Message("Copied", b"batch %d" % number) for number in range(10)])
        assert producer.send("Copied", b"later", delay_level=1).ok
        assert producer.send("Copied", b"timed", delay=timedelta(seconds=2)).ok
    send_ordered(namesrv)
    send_in_transactions(namesrv)
    pop_some(namesrv)
    time.sleep(4)


def send_ordered(namesrv: str) -> None:
    """Send compressed messages with properties, those of a key to one queue."""
    config = ProducerConfig(compress_from=100)
    with Producer(namesrv, group="ordering", config=config) as producer:
        for number in range(40):
            key = f"key-{number % 5}"
            body = b"ordered %d, " % number * 100
            properties = {"colour": "red", "umlaut": "\u00e4"}
            sent = producer.send("Ordered", body, keys=key, order_key=key, properties=properties)
            assert sent.ok


def send_in_transactions(namesrv: str) -> None:
    """Commit some messages, roll others back, and leave one to be asked about."""
    with TransactionProducer(
        namesrv, group="deciding", check=lambda _: TransactionState.COMMIT
    ) as producer:
        for number in range(5):
            with producer.transaction("Decided", b"committed %d" % number, tag="t", keys="4711"):
                pass
            with (
                suppress(ValueError),
                producer.transaction("Decided", b"rolled back %d" % number),
            ):
                raise ValueError
        open_one = producer.send_in_transaction(
            "Decided", b"open", local=lambda _: TransactionState.UNKNOWN
        )
        assert open_one.state is TransactionState.UNKNOWN


def pop_some(namesrv: str) -> None:
    """Pop ordered messages, acknowledge most of them, and let the others come again."""
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    acked = 0
    with PopConsumer(namesrv, group="popping", topic="Ordered", config=config) as consumer:
        for _ in range(50):
            for message in consumer.fetch(8, 1_000):
                if message.body.startswith(b"ordered 7,") and not message.tries:
                    message.nack(1_000)
                else:
                    message.ack()
                    acked += 1
            if acked >= 30:
                return
    raise AssertionError(f"{acked} messages were popped and acknowledged")


@contextmanager
def ours(store: Path, **settings: Any) -> Iterator[tuple[BlockingCluster, BrokerServer]]:
    """A name server and a broker of ours."""
    small = {"log_file_size": FILE_SIZE, "queue_file_entries": 1_000, "max_message_size": 500_000}
    with BlockingCluster(0, 1, store, **small) as running:
        yield running, running.add_broker(**settings)


def append_own(directory: Path) -> None:
    """Append a message to the log of a stopped replica, which its master does not have."""
    config = StoreConfig(log_file_size=FILE_SIZE, queue_file_entries=1_000)
    store = Store.open(directory, config, now_ms=0)
    store.append(Draft("Copied", 0, b"of another past", b"", 0, store_host=bytes(8)), 0)
    store.close(0)


def end_of(server: BrokerServer) -> int:
    return server.broker.log.store.end_position


THEIR_SIZES = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "mappedFileSizeConsumeQueue": "20000",
    "maxMessageSize": "500000",
}


def test_apaches_replica_follows_our_master_and_acknowledges(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "broker_role": BrokerRole.SYNC_MASTER,
        "in_sync_replicas": 2,
        "slave_timeout": 10_000,
    }
    with ours(tmp_path / "ours", **settings) as (running, master):
        replica: dict[str, str] = {
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "brokerName": "broker-a",
            "namesrvAddr": running.namesrv_addr,
            **THEIR_SIZES,
        }
        with genuine.cluster(tmp_path / "theirs", **replica) as theirs:
            acknowledgements = master.broker.replication.acknowledgements
            wait_until(lambda: acknowledgements.in_sync == 2, "the replica has not reported")
            send_many(running.namesrv_addr)
            end = end_of(master)
            wait_until(lambda: acknowledgements.replicated >= end, "the replica is behind")
            store = tmp_path / "ours" / "broker-a"
            assert log_bytes(theirs.store, end) == log_bytes(store, end)
            assert end > FILE_SIZE
            master.broker.log.store.flush_all(0)
            wait_until(
                lambda: not differing_queues(theirs.store, store, OUR_RETRY_TOPIC),
                "its queues are others",
            )
            for topic in (*TOPICS, OUR_RETRY_TOPIC):
                assert queue_bytes(theirs.store, topic) == queue_bytes(store, topic)


def test_our_replica_follows_apaches_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with genuine.cluster(tmp_path / "theirs", **THEIR_SIZES) as theirs:
        send_many(theirs.namesrv)
        replica: dict[str, Any] = {
            "broker_role": BrokerRole.SLAVE,
            "broker_id": 1,
            "broker_name": "genuine-a",
            "name_servers": (theirs.namesrv,),
        }
        with ours(tmp_path / "ours", **replica) as (running, follower):
            raw = follower.broker.log.store.raw
            wait_until(lambda: raw.end > 0, "it does not follow")
            send_many(theirs.namesrv)

            def is_equal() -> bool:
                end, store = raw.end, tmp_path / "ours" / "genuine-a-1"
                mine = b"".join(
                    bytes(raw.read(at, FILE_SIZE)) for at in range(raw.begin, end, FILE_SIZE)
                )
                files = sorted((theirs.store / "commitlog").iterdir())
                data = b"".join(file.read_bytes() for file in files)[raw.begin :]
                return store.exists() and data.rstrip(b"\0") == mine.rstrip(b"\0")

            wait_until(is_equal, "the logs differ")
            assert raw.dispatched == raw.end
            assert raw.begin > 0, "it began with the master's last file"
            topic = follower.broker.log.store.bounds
            assert sum(topic("Copied", number)[1] for number in range(8)) > 600
            mine = tmp_path / "ours" / "genuine-a-1"
            wait_until(
                lambda: not differing_queues(theirs.store, mine, THEIR_RETRY_TOPIC),
                "its queues are others",
            )
            running.stop_broker(0)
            raw = running.start_broker(0).broker.log.store.raw
            before = raw.end
            send_many(theirs.namesrv)
            wait_until(lambda: raw.end > before, "it does not go on with its own log")
            wait_until(is_equal, "the logs differ")
            assert "records cannot be read" not in caplog.text, "it has compared the logs"

            running.stop_broker(0)
            append_own(tmp_path / "ours" / "genuine-a-1")
            raw = running.start_broker(0).broker.log.store.raw
            before = raw.end
            wait_until(
                lambda: "of different pasts" in caplog.text, "its own message is not noticed"
            )
            send_many(theirs.namesrv)
            time.sleep(6)
            assert raw.end == before
