import asyncio
import re
from collections.abc import Awaitable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, failing, not_none

from roquet.broker.operations.progress import BrokerProgress
from roquet.model.errors import StoreError, StoreFailed, StoreFull
from roquet.net.router import HandlerReply
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.filesystem.files import RealFiles
from roquet.wire.calls.send import Send, SendBatch, SendLongNames
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import decode

PLACE: Any = {"producer_group": "pg", "topic": "orders", "queue_id": 0, "born_timestamp": 1}
BATCH = encode_batch([BatchItem(0, b"one", b""), BatchItem(0, b"two", b"")])


async def waiting(answer: HandlerReply) -> Any:
    """The reply of a handler that has to wait for it."""
    assert isinstance(answer, Awaitable)
    return await answer


async def test_a_message_is_stored_and_the_reply_has_queue_and_offset(broker: LocalBroker) -> None:
    broker.send()
    reply = broker.send(b"second")
    assert (reply.code, reply.queue_id, reply.queue_offset) == (0, 0, 1)
    assert (reply.region, reply.trace_on) == ("DefaultRegion", True)
    _, position = parse_offset_message_id(reply.msg_id)
    record = not_none(broker.log.store.message_at(position))
    assert decode(record).body == b"second"
    assert decode(record).properties.find(reply.transaction_id.encode()) > 0


async def test_the_long_names_mean_the_same(broker: LocalBroker) -> None:
    reply = broker.ask(SendLongNames(**{**PLACE, "queue_id": 1}, body=b"go"))
    assert (reply.code, reply.queue_id) == (0, 1)
    assert broker.log.store.bounds("orders", 1) == (0, 1)


async def test_a_new_topic_has_the_queue_count_of_its_first_send(broker: LocalBroker) -> None:
    broker.send(default_topic_queue_nums=3)
    topic = not_none(broker.tables.topics.get("orders"))
    assert (topic.write_queue_nums, topic.read_queue_nums) == (3, 3)


async def test_a_negative_queue_means_any(broker: LocalBroker) -> None:
    replies: list[Any] = [broker.send(queue_id=-1) for _ in range(100)]
    assert {reply.queue_id for reply in replies} == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", [Send, SendBatch, SendLongNames])
async def test_a_batch_is_recognised_by_its_flag_whatever_its_code(
    broker: LocalBroker, kind: type[Send | SendLongNames]
) -> None:
    reply = broker.ask(kind(**PLACE, body=BATCH, batch=True))
    assert (reply.code, reply.queue_offset, reply.msg_id.count(",")) == (0, 0, 1)
    reply = broker.ask(kind(**PLACE, body=BATCH))
    assert (reply.code, reply.queue_offset, reply.msg_id.count(",")) == (0, 2, 0)
    assert broker.log.store.bounds("orders", 0) == (0, 3)


async def test_a_topic_that_shrinks_takes_what_was_on_its_way(broker: LocalBroker) -> None:
    broker.put_topic("orders", 8, write_queue_nums=4)
    assert broker.send(queue_id=7).code == 0


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": ""}, ResponseCode.INVALID_PARAMETER, "blank"),
        ({"topic": "no spaces"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"topic": "x" * 128}, ResponseCode.INVALID_PARAMETER, "127"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"default_topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, r"queueId\[4\]"),
        ({"queue_id": 2**31}, ResponseCode.INVALID_PARAMETER, "queueId"),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL, "no body"),
        ({"body": bytes(4 * 1024 * 1024 + 1)}, ResponseCode.MESSAGE_ILLEGAL, "4194304"),
        ({"properties": f"a\x01{'x' * 32_767}\x02"}, ResponseCode.MESSAGE_ILLEGAL, "32767"),
        ({"properties": "DELAY\x01soon\x02"}, ResponseCode.MESSAGE_ILLEGAL, "DELAY"),
        ({"sys_flag": 4}, ResponseCode.MESSAGE_ILLEGAL, "transaction"),
        ({"body": b"no batch", "batch": True}, ResponseCode.MESSAGE_ILLEGAL, "batch"),
        ({"flag": 2**33}, ResponseCode.MESSAGE_ILLEGAL, "out of range"),
    ],
)
async def test_a_message_that_cannot_be_stored_is_answered_with_its_code(
    broker: LocalBroker, fields: dict[str, Any], code: int, remark: str
) -> None:
    body = fields.pop("body", b"body")
    end = broker.log.store.end_position
    reply = broker.send(body, **fields)
    assert reply.code == code
    assert re.search(remark, reply.remark)
    assert reply.region == "DefaultRegion", "the C++ client looks for it in refusals as well"
    assert broker.log.store.end_position == end


async def test_a_topic_without_queues_to_write_to_takes_nothing(broker: LocalBroker) -> None:
    broker.put_topic("orders", 0)
    assert broker.send(queue_id=-1).code == ResponseCode.INVALID_PARAMETER


async def test_a_batch_is_refused_like_a_message(broker: LocalBroker) -> None:
    reply = broker.ask(SendBatch(**{**PLACE, "topic": "a b"}, body=BATCH, batch=True))
    assert reply.code == ResponseCode.INVALID_PARAMETER


async def test_a_full_disk_is_answered_and_reads_go_on(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send()

    monkeypatch.setattr(broker.log.store, "append", failing(StoreFull("the disk is full")))
    reply = broker.send()
    assert (reply.code, reply.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")
    assert broker.log.store.read("orders", 0, 0).count == 1


@pytest.mark.parametrize("fields", [{}, {"body": BATCH, "batch": True}])
async def test_a_message_that_may_be_stored_all_the_same_is_not_called_refused(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    broker.send()
    with monkeypatch.context() as patch:
        for name in ("put", "put_many", "undo_append"):
            patch.setattr(ConsumeQueue, name, failing(StoreError("no memory")))
        assert broker.send(**fields).code == ResponseCode.SYSTEM_ERROR
    assert broker.send(**fields).code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("settings", [{"auto_create_topic": False}])
async def test_an_unknown_topic_is_answered_with_17(broker: LocalBroker) -> None:
    assert broker.send().code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.tables.topics.get("orders") is None


@pytest.mark.parametrize("settings", [{"permission": 4}])
async def test_a_broker_without_write_permission_refuses_messages(broker: LocalBroker) -> None:
    broker.put_topic("orders")
    assert broker.send().code == ResponseCode.NO_PERMISSION


class TestSyncFlush:
    @pytest.fixture
    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"sync_flush": True, "store_dir": tmp_path, "log_file_size": 1 << 20}

    async def test_an_acknowledged_message_is_on_the_disk(self, broker: LocalBroker) -> None:
        assert (await waiting(broker.send())).code == 0
        assert broker.log.store.flushed_position == broker.log.store.end_position

    async def test_a_batch_waits_for_its_last_message(self, broker: LocalBroker) -> None:
        assert (await waiting(broker.send(BATCH, batch=True))).code == 0
        assert broker.log.store.flushed_position == broker.log.store.end_position

    async def test_a_message_may_be_answered_before_the_flush(self, broker: LocalBroker) -> None:
        assert broker.send(properties="WAIT\x01false\x02").code == 0
        assert broker.send(BATCH, batch=True, properties="WAIT\x01false\x02").code == 0


@pytest.mark.parametrize("settings", [{"sync_flush": True, "sync_flush_timeout": 20}])
async def test_a_flush_timeout_is_reported_with_queue_and_offset(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_up = Event()
    with monkeypatch.context() as slow:
        slow.setattr(broker.log.store, "flush_log", lambda: held_up.wait(5))
        reply = await waiting(broker.send())
    held_up.set()
    assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert (reply.queue_id, reply.queue_offset) == (0, 0)
    assert broker.log.store.read("orders", 0, 0).count == 0, "it is not on the disk yet"
    await broker.log.flush.step()
    assert broker.log.store.read("orders", 0, 0).count == 1


class TestFailingDisk:
    """One sync of the log fails, and every later one succeeds."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"sync_flush": True, "store_dir": tmp_path, "log_file_size": 1 << 20}

    @pytest.fixture
    def failures(self, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        """The files whose sync has failed."""
        sync, failed = RealFiles.sync, list[Path]()

        def failing_once(files: RealFiles, path: Path, view: memoryview | None = None) -> None:
            if path.parent.name == "commitlog" and not failed:
                failed.append(path)
                raise OSError(5, "Input/output error")
            sync(files, path, view)

        monkeypatch.setattr(RealFiles, "sync", failing_once)
        return failed

    async def test_a_failed_flush_leaves_waiting_sends_indefinite_and_later_ones_refused(
        self, broker: LocalBroker, failures: list[Path]
    ) -> None:
        first = broker.send(b"first")
        second = broker.send(BATCH, batch=True)
        replies = await asyncio.gather(waiting(first), waiting(second))
        assert len(failures) == 1
        assert [reply.code for reply in replies] == [ResponseCode.SYSTEM_ERROR] * 2
        assert "look at the disk, then restart" in replies[0].remark
        end = broker.log.store.end_position
        for fields in ({}, {"body": BATCH, "batch": True}, {"properties": "WAIT\x01false\x02"}):
            assert broker.send(**fields).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.log.store.end_position == end
        assert broker.log.store.flushed_position == 0
        assert broker.log.store.read("orders", 0, 0).count == 0, "a restart may not find them"

    async def test_a_failed_disk_refuses_later_messages_with_asynchronous_flush_too(
        self, broker: LocalBroker, failures: list[Path]
    ) -> None:
        assert broker.send(properties="WAIT\x01false\x02").code == ResponseCode.SUCCESS
        with pytest.raises(StoreFailed):
            await broker.log.flush.step()
        assert len(failures) == 1
        reply = broker.send(properties="WAIT\x01false\x02")
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE

    async def test_no_checkpoint_covers_lost_messages(
        self, broker: LocalBroker, failures: list[Path], tmp_path: Path
    ) -> None:
        await waiting(broker.send())
        assert failures
        with pytest.raises(StoreFailed):
            await broker.log.flush.checkpoint(0)
        with pytest.raises(StoreFailed):
            broker.make(BrokerProgress).save()
        assert not (tmp_path / "checkpoint").exists()


async def test_a_priority_decides_on_the_queue_and_the_reply_names_it(broker: LocalBroker) -> None:
    broker.put_topic("orders", 4, attributes={"message.type": "PRIORITY"})
    for priority, queue_id in ((0, 0), (2, 2), (3, 3), (9, 3)):
        reply = broker.send(queue_id=1, properties=f"_SYS_MSG_PRIORITY_\x01{priority}\x02")
        assert (reply.code, reply.queue_id) == (0, queue_id)
    ends = [broker.log.store.bounds("orders", queue_id)[1] for queue_id in range(4)]
    assert ends == [1, 0, 1, 2]


async def test_a_priority_on_a_topic_that_takes_no_more_goes_where_it_can(
    broker: LocalBroker,
) -> None:
    broker.put_topic("orders", 4, write_queue_nums=0)
    reply = broker.send(queue_id=1, properties="_SYS_MSG_PRIORITY_\x012\x02")
    assert (reply.code, reply.queue_id) == (0, 0)
