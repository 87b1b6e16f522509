"""Sender: concurrent requests, ordered ones one by one, and a failure ends the task."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.spark.sink.conftest import SinkCluster

from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.spark.sink import sender
from roquet.spark.sink.delivery import DeliveredRequest
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.row_encoder import PartitionOrigin
from roquet.spark.sink.send_requests import SendRequest
from roquet.spark.sink.sender import Sender
from roquet.spark.sink.task import send_partition
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.send import SendReply

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
QUEUES = [MessageQueue("orders", "broker-a", at % 4) for at in range(20)]


class SlowDelivery:
    """Stands in for `RequestDelivery`: takes its time, and notes what was under way together."""

    def __init__(self, *_: object) -> None:
        self.unit_s = 0.001
        self.in_flight: list[int] = []
        self.most = 0
        self.order: list[int] = []
        self.together: list[set[object]] = []
        self._queues: list[object] = []

    async def queues(self, _topic: str) -> list[MessageQueue]:
        return [QUEUE, OTHER]

    async def send(self, request: SendRequest) -> DeliveredRequest:
        self.in_flight.append(request.row)
        is_free = request.queue is None or request.properties is not None
        assert is_free or request.queue not in self._queues, "two of one queue"
        self._queues.append(request.queue)
        self.most = max(self.most, len(self.in_flight))
        await asyncio.sleep(self.unit_s * (5 - request.row % 5))
        self.in_flight.remove(request.row)
        self._queues.remove(request.queue)
        self.order.append(request.row)
        if request.body == b"bad":
            raise CallRefused(13, "too long")
        return DeliveredRequest(request, "broker-a", SendReply())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowDelivery:
    made = SlowDelivery()
    monkeypatch.setattr(sender, "RequestDelivery", lambda *_: made)
    return made


OPTIONS = SinkOptions(namesrv=("127.0.0.1:1",), topic="orders")


def requests(
    count: int, queue: MessageQueue | None = None, text: str | None = None
) -> list[SendRequest]:
    return [SendRequest("orders", row, 1, b"x", queue, text) for row in range(count)]


def test_two_batches_are_under_way_for_each_broker(slow: SlowDelivery) -> None:
    with Sender(OPTIONS) as sending:
        sending.put(requests(20))
        sending.finish()
    assert sorted(slow.order) == list(range(20))
    assert slow.most == sender.BATCHES_MAX


def test_many_messages_that_go_alone_are_under_way(slow: SlowDelivery) -> None:
    slow.unit_s = 0.02  # longer than a busy machine keeps the sending thread waiting
    on_stored: list[int] = []
    with Sender(OPTIONS, on_stored=lambda sent: on_stored.append(sent.request.row)) as sending:
        sending.put(requests(600, text=""))
        sending.finish()
    assert sorted(on_stored) == list(range(600))
    assert 64 < slow.most <= sender.SINGLES_MAX


def test_a_queue_with_order_keys_gets_one_request_after_the_other(slow: SlowDelivery) -> None:
    with Sender(OPTIONS) as sending:
        assert sending.queues("orders") == [QUEUE, OTHER]
        mixed = [
            one for pair in zip(requests(9, QUEUE), requests(9, OTHER), strict=True) for one in pair
        ]
        sending.put(mixed)
        sending.finish()
    assert len(slow.order) == 18
    assert slow.most == 2


def test_half_messages_need_no_order_yet(slow: SlowDelivery) -> None:
    with Sender(msgspec.structs.replace(OPTIONS, transactional=True)) as sending:
        sending.put([replaced for at in range(20) for replaced in requests(1, QUEUES[at], "")])
        sending.finish()
    assert slow.most == 20


def test_a_failure_ends_the_task_and_nothing_follows_in_its_lane(slow: SlowDelivery) -> None:
    bad = SendRequest("orders", 2, 1, b"bad", QUEUE)
    lane = [*requests(2, QUEUE), bad, *requests(20, QUEUE)[3:]]

    def everything() -> None:
        with Sender(OPTIONS) as sending:
            sending.put(lane)
            sending.finish()

    with pytest.raises(CallRefused, match="too long"):
        everything()
    assert slow.order == [0, 1, 2]


def test_a_broker_that_is_away_for_a_moment_gets_all_in_order(
    tmp_path: Path, cluster_type: type[SinkCluster]
) -> None:
    bodies = [b"%d" % at for at in range(3_000)]
    batch = pa.RecordBatch.from_pydict({"body": bodies, "order_key": ["k"] * 3_000})
    with BlockingCluster(store=tmp_path) as running:
        options = SinkOptions(
            namesrv=(running.namesrv_addr,),
            topic="away",
            timeout_ms=30_000,
            batch_bytes=4_096,
            creates_topics=True,
        )

        def restart() -> None:
            running.stop_broker(0)
            running.start_broker(0)

        def batches() -> Any:
            for at in range(0, 3_000, 300):
                if at == 900:
                    thread.start()
                yield batch.slice(at, 300)

        thread = threading.Thread(target=restart)
        assert (
            send_partition(batches(), options, batch.schema.names, PartitionOrigin("q", 0, 0))[0]
            == 3_000
        )
        thread.join()
        table = cluster_type(running).read("away")
    rows: dict[int, int] = {}
    for row in table.to_pylist():
        rows.setdefault(int(row["body"]), row["queue_offset"])
    assert sorted(rows) == list(range(3_000))
    assert list(rows) == sorted(rows), "the first copy of each is in its order"
