"""Rows are sent in order and once, also when replies are lost."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from roquet.model.errors import CallError, CallRefused, CallTimeout, RoquetError
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs import exactly_once_sender
from roquet.spark.jobs.exactly_once_sender import ConcurrentRun, ExactlyOnceSender
from roquet.spark.jobs.resend_rows import resend_items
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.wire.call import Reply
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.send import SendBatch
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps

SOURCE = ("orders", "x", 0)
QUEUE = ("again", "broker-a", 1)
EMPTY = {("again", broker, number): 0 for broker in ("broker-a", "broker-b") for number in (0, 1)}


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "broker": ["x"] * count,
            "queue_id": pa.array([0] * count, pa.int32()),
            "queue_offset": range(first, first + count),
            "body": [b"%d" % at for at in range(first, first + count)],
        }
    )


def send(sending: ExactlyOnceSender, first: int, count: int) -> int:
    batch = rows(first, count)
    ids = pa.array([f"ID{at}" for at in range(count)])
    return sending.send(SOURCE, batch["queue_offset"], resend_items(batch, "orders", ids))


def sender_of(lake: Any, **settings: Any) -> ExactlyOnceSender:
    return ExactlyOnceSender(lake.cluster(**settings), {SOURCE: QUEUE}, EMPTY)


def bodies(lake: Any) -> list[int]:
    """The messages of a queue, by offset."""
    return [int(body) for *_, body in lake.places()]


Answer = Callable[[Callable[[], Any]], Any]


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> None:
    """Set the outcomes of the next batches."""
    ask, waiting = ClusterClient.ask_once, list(answers)

    def asked(self: ClusterClient, broker: str, call: Any) -> Any:
        if isinstance(call, SendBatch) and waiting:
            return waiting.pop(0)(lambda: ask(self, broker, call))
        return ask(self, broker, call)

    monkeypatch.setattr(ClusterClient, "ask_once", asked)


def lost(error: CallError, *, stored: bool) -> Answer:
    def answer(really: Callable[[], Any]) -> Any:
        if stored:
            really()
        raise error

    return answer


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    "error", [CallTimeout("slow"), CallRefused(ResponseCode.SYSTEM_BUSY), CallRefused(1)]
)
def test_a_batch_whose_reply_was_lost_is_searched_for(
    archived_topic: Any, monkeypatch: pytest.MonkeyPatch, error: CallError, stored: bool
) -> None:
    answering(monkeypatch, lost(error, stored=stored), lost(error, stored=False))
    sending = sender_of(archived_topic)
    assert send(sending, 0, 5) == 5
    assert send(sending, 5, 5) == 5
    assert bodies(archived_topic) == list(range(10))
    assert sending.doubled == 0


def test_rows_that_were_sent_before_are_skipped(archived_topic: Any) -> None:
    sending = sender_of(archived_topic)
    assert [send(sending, 0, 5), send(sending, 3, 4), send(sending, 0, 7)] == [5, 2, 0]
    assert bodies(archived_topic) == list(range(7))


def test_a_second_attempt_skips_the_rows_of_the_first(archived_topic: Any) -> None:
    send(sender_of(archived_topic), 0, 5)
    sending = sender_of(archived_topic)
    assert sending.begin() == 5
    assert send(sending, 0, 8) == 3
    assert bodies(archived_topic) == list(range(8))


def test_what_a_second_attempt_finds_may_have_gaps(archived_topic: Any) -> None:
    first = sender_of(archived_topic)
    send(first, 2, 2)
    sending = sender_of(archived_topic)
    sending.begin()
    assert send(sending, 0, 6) == 4
    assert sorted(bodies(archived_topic)) == list(range(6))


def test_a_request_that_comes_late_is_counted(
    archived_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker takes it when the same rows are sent again already."""

    def twice(really: Callable[[], Any]) -> Any:
        really()
        return really()

    answering(monkeypatch, lost(CallTimeout("slow"), stored=False), twice)
    sending = sender_of(archived_topic)
    send(sending, 0, 3)
    assert sending.doubled == 3
    assert bodies(archived_topic) == [0, 1, 2, 0, 1, 2]


def test_two_senders_of_the_same_rows_detect_each_other(archived_topic: Any) -> None:
    one, other = sender_of(archived_topic), sender_of(archived_topic)
    send(one, 0, 5)
    with pytest.raises(
        ConcurrentRun, match="another run is sending messages of topic 'orders', queue 0"
    ):
        send(other, 0, 2)


def test_others_may_send_to_the_same_queue(archived_topic: Any) -> None:
    sending = sender_of(archived_topic)
    send(sending, 0, 2)
    with BlockingChannel(archived_topic.topic.running.broker_addrs[0]) as channel:
        body = b"".join(resend_items(rows(70, 1), "bills", pa.array(["ID"])).to_pylist())
        call = SendBatch(producer_group="t", topic="again", queue_id=1, born_timestamp=1, body=body)
        channel.call(call)
    send(sending, 2, 2)
    assert bodies(archived_topic) == [0, 1, 70, 2, 3]


def late(monkeypatch: pytest.MonkeyPatch, behind: list[int]) -> None:
    """Queues do as those of genuine brokers, which have what the log has a moment later."""
    ask, told = ClusterClient.ask, ClusterClient.queue_bounds

    def asked(self: ClusterClient, broker: str, call: Any) -> Any:
        if not isinstance(call, GetRuntimeInfo):
            return ask(self, broker, call)
        size = behind.pop(0) if behind else 0
        table = {"commitLogMaxOffset": "1000", "dispatchBehindBytes": str(size)}
        return Reply(body=dumps(KVTable(table=table)))

    def knows(self: ClusterClient, topic: str, broker: str, ids: Any) -> Any:
        found = told(self, topic, broker, ids)
        return {number: (0, 0 if behind else end) for number, (_, end) in found.items()}

    monkeypatch.setattr(ClusterClient, "ask", asked)
    monkeypatch.setattr(ClusterClient, "queue_bounds", knows)


def test_a_batch_that_is_in_the_log_and_not_in_its_queue_yet_is_found(
    archived_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lost(CallTimeout("slow"), stored=True))
    late(monkeypatch, [700, 300])
    sending = sender_of(archived_topic)
    assert send(sending, 0, 5) == 5
    late(monkeypatch, [700, 300])
    assert sender_of(archived_topic).begin() == 5
    assert bodies(archived_topic) == list(range(5))


def test_the_wait_for_dispatch_has_a_limit(
    archived_topic: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(sender_of(archived_topic), 0, 5)
    late(monkeypatch, [1] * 1_000_000)
    monkeypatch.setattr(exactly_once_sender, "DISPATCH_WAIT_MS_MAX", 5)
    sender_of(archived_topic).begin()
    assert "queues of broker 'broker-a' are 1 bytes behind its log" in caplog.text


def test_without_runtime_info_the_ends_of_the_queues_count(
    archived_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ClusterClient.ask

    def asked(self: ClusterClient, broker: str, call: Any) -> Any:
        if isinstance(call, GetRuntimeInfo):
            raise CallRefused(ResponseCode.NO_PERMISSION, "not you")
        return ask(self, broker, call)

    monkeypatch.setattr(ClusterClient, "ask", asked)
    send(sender_of(archived_topic), 0, 5)
    assert sender_of(archived_topic).begin() == 5


def test_an_unavailable_broker_is_an_error(
    archived_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, *[lost(CallTimeout("slow"), stored=False)] * 3)
    with pytest.raises(
        BrokerUnavailable, match="queue 1 of broker 'broker-a' takes no messages: slow"
    ):
        send(sender_of(archived_topic, timeout_ms=0), 0, 2)


def test_a_refusal_that_stays_names_the_rows(
    archived_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = CallRefused(ResponseCode.MESSAGE_ILLEGAL, "too long")
    answering(monkeypatch, lost(refused, stored=False))
    with pytest.raises(RoquetError, match=r"refuses topic 'orders'.*offsets 4 to 5: .*too long"):
        send(sender_of(archived_topic), 4, 2)


def test_rows_are_split_into_requests(archived_topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 3)
    sizes: list[int] = []
    deliver = ExactlyOnceSender._deliver

    def delivered(self: ExactlyOnceSender, load: Any, queue: Any) -> None:
        sizes.append(load.count)
        deliver(self, load, queue)

    monkeypatch.setattr(ExactlyOnceSender, "_deliver", delivered)
    send(sender_of(archived_topic), 0, 10)
    assert sum(sizes) == 10
    assert max(sizes) <= 3
    assert bodies(archived_topic) == np.arange(10).tolist()
