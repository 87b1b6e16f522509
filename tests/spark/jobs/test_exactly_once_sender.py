"""Rows are sent in order and once, also when replies are lost."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.spark.conftest import CannedCluster, send_items
from tests.spark.jobs.conftest import ArchivedTopic

from roquet.model.errors import CallError, CallRefused, CallTimeout, ConnectFailed, RoquetError
from roquet.model.properties import REPLAYED_FROM
from roquet.model.queue import MessageQueue
from roquet.rules.rate_limit import RateLimit
from roquet.rules.send_retry import TRANSIENT
from roquet.spark.cluster import cluster_client, dispatch_wait
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs import exactly_once_sender
from roquet.spark.jobs.exactly_once_sender import ConcurrentRun, ExactlyOnceSender, writable_queues
from roquet.spark.jobs.resend_rows import resend_items
from roquet.spark.source.tasks import BrokerUnavailable
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.stats import GetRuntimeInfo, GetTopicStats, QueueStats, TopicStats
from roquet.wire.calls.bodies import KVTable
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import SendBatch, SendReply
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


Answer = Callable[[Callable[[], Any]], Any]


def lose_reply(error: CallError, *, stored: bool) -> Answer:
    def answer(really: Callable[[], Any]) -> Any:
        if stored:
            really()
        raise error

    return answer


def answer_less_durable(really: Callable[[], Any]) -> Any:
    return msgspec.structs.replace(really(), code=int(ResponseCode.FLUSH_SLAVE_TIMEOUT))


class Destination:
    """The queue that rows are sent to, whose broker can be made to answer otherwise."""

    def __init__(self, lake: ArchivedTopic, patch: pytest.MonkeyPatch) -> None:
        self.lake, self.patch = lake, patch

    def sender(self, **settings: Any) -> ExactlyOnceSender:
        return ExactlyOnceSender(self.lake.cluster(**settings), {SOURCE: QUEUE}, EMPTY)

    def bodies(self) -> list[int]:
        return [int(body) for *_, body in self.lake.places()]

    def check_that_ten_rows_are_sent_once(self) -> None:
        sending = self.sender()
        assert send(sending, 0, 5) == 5
        assert send(sending, 5, 5) == 5
        assert self.bodies() == list(range(10))
        assert sending.doubled == 0

    def store(self, first: int, count: int, topic: str = "orders") -> None:
        items = resend_items(rows(first, count), topic, pa.array(["ID"] * count))
        send_items(self.lake.topic.addresses["broker-a"], "again", 1, items)

    def replace_replies(self, *answers: Answer) -> None:
        """Set the outcomes of the next batches."""
        ask, waiting = ClusterClient.ask_once, list(answers)

        def reply_to(client: ClusterClient, broker: str, call: Call[Any]) -> Any:
            if isinstance(call, SendBatch) and waiting:
                return waiting.pop(0)(lambda: ask(client, broker, call))
            return ask(client, broker, call)

        self.patch.setattr(ClusterClient, "ask_once", reply_to)

    def replace_bounds(self, change: Callable[[int], int]) -> None:
        """Let each queue begin at 0 and end elsewhere."""
        queue_bounds = ClusterClient.queue_bounds

        def knows(client: ClusterClient, topic: str, broker: str, ids: Sequence[int]) -> Any:
            bounds = queue_bounds(client, topic, broker, ids)
            return {number: (0, change(end)) for number, (_, end) in bounds.items()}

        self.patch.setattr(ClusterClient, "queue_bounds", knows)

    def hide_new_messages(self, looks: int) -> None:
        """Let the queue end where it did, in the next looks: a master shows what is confirmed."""
        left = iter(range(looks))
        self.replace_bounds(lambda end: end if next(left, None) is None else 0)

    def replace_runtime_info(self, answer: Callable[[], Any]) -> None:
        ask = ClusterClient.ask

        def reply_to(client: ClusterClient, broker: str, call: Call[Any]) -> Any:
            is_asked = isinstance(call, GetRuntimeInfo)
            return answer() if is_asked else ask(client, broker, call)

        self.patch.setattr(ClusterClient, "ask", reply_to)

    def delay_dispatch(self, *behind: int) -> None:
        """Let queues lag behind the log, as on Apache's brokers, by these numbers of bytes."""
        left = list(behind)

        def answer() -> Reply:
            size = left.pop(0) if left else 0
            table = {"commitLogMaxOffset": "1000", "dispatchBehindBytes": str(size)}
            return Reply(body=dumps(KVTable(table=table)))

        self.replace_runtime_info(answer)
        self.replace_bounds(lambda end: 0 if left else end)

    def lose_master(self, error: CallError | None, count: int) -> Answer:
        """Let the next master have only the first rows of a batch."""

        def answer(_really: Callable[[], Any]) -> Any:
            self.store(0, count)
            if error is not None:
                raise error
            return SendReply(code=ResponseCode.FLUSH_SLAVE_TIMEOUT, queue_id=1, queue_offset=0)

        return answer


@pytest.fixture
def again(archived_topic: ArchivedTopic, monkeypatch: pytest.MonkeyPatch) -> Destination:
    return Destination(archived_topic, monkeypatch)


class TickingClock:
    """A clock that goes on whenever somebody looks at it."""

    ms = 1_000_000

    def monotonic_ms(self) -> int:
        self.ms += 50
        return self.ms

    now_ms = monotonic_ms


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TickingClock()
    for module in (exactly_once_sender, cluster_client, dispatch_wait):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", clock)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    "error", [CallTimeout("slow"), *(CallRefused(code) for code in sorted(TRANSIENT))], ids=str
)
def test_a_batch_without_a_reply_is_searched_for(
    again: Destination, error: CallError, stored: bool
) -> None:
    again.replace_replies(lose_reply(error, stored=stored), lose_reply(error, stored=False))
    again.check_that_ten_rows_are_sent_once()


def test_a_batch_that_is_less_durable_than_promised_is_stored_once_readers_see_it(
    again: Destination,
) -> None:
    again.delay_dispatch()
    again.replace_replies(answer_less_durable)
    again.hide_new_messages(3)
    again.check_that_ten_rows_are_sent_once()


def test_a_batch_that_nobody_sees_at_a_broker_that_may_hide_it_is_not_sent_again(
    again: Destination,
) -> None:
    again.delay_dispatch()
    again.replace_replies(answer_less_durable)
    again.hide_new_messages(1_000_000)  # looks follow each other without a pause
    with pytest.raises(BrokerUnavailable, match=r"code 12.*start the job again"):
        send(again.sender(timeout_ms=500), 0, 5)
    again.patch.undo()
    assert again.bodies() == list(range(5))


def test_a_batch_that_was_cut_is_sent_again(again: Destination) -> None:
    """Another master has other messages in its place."""
    lost = SendReply(code=ResponseCode.FLUSH_SLAVE_TIMEOUT, queue_id=1, queue_offset=0)

    def cut(_really: Callable[[], Any]) -> Any:
        again.store(70, 2, "bills")
        return lost

    again.replace_replies(cut)
    assert send(again.sender(), 0, 2) == 2
    assert again.bodies() == [70, 71, 0, 1]


@pytest.mark.parametrize("error", [CallTimeout("slow"), None], ids=["lost", "less-durable"])
def test_the_rows_of_a_batch_that_its_next_master_lacks_are_sent(
    again: Destination, error: CallError | None
) -> None:
    lost = lose_reply(CallTimeout("slow"), stored=False)
    again.replace_replies(again.lose_master(error, 2), lost)
    again.check_that_ten_rows_are_sent_once()


def test_the_rest_of_a_batch_is_waited_for_at_a_broker_that_may_hide_it(
    again: Destination, virtual_time: None
) -> None:
    again.delay_dispatch()
    again.replace_replies(lose_reply(CallTimeout("slow"), stored=True))
    shown = [2, 2, 4]
    again.replace_bounds(lambda end: shown.pop(0) if shown else end)
    again.check_that_ten_rows_are_sent_once()


def test_the_rest_of_a_batch_that_a_broker_may_hide_for_ever_is_left_to_the_next_run(
    again: Destination, virtual_time: None
) -> None:
    again.delay_dispatch()
    again.replace_replies(again.lose_master(CallTimeout("slow"), 2))
    with pytest.raises(BrokerUnavailable, match=r"slow; start the job again"):
        send(again.sender(), 0, 5)
    assert again.bodies() == [0, 1]
    sending = again.sender()
    assert (sending.begin(), send(sending, 0, 5)) == (2, 3)
    assert again.bodies() == list(range(5))


def test_a_batch_that_is_stored_late_after_a_part_of_it_is_counted(again: Destination) -> None:
    def late(really: Callable[[], Any]) -> Any:
        again.store(0, 5)
        return really()

    again.replace_replies(again.lose_master(CallTimeout("slow"), 2), late)
    sending = again.sender()
    send(sending, 0, 5)
    assert again.bodies() == [0, 1, 0, 1, 2, 3, 4, 2, 3, 4]
    assert sending.doubled == 5


def test_rows_of_another_source_do_not_stand_for_a_batch(again: Destination) -> None:
    def others(_really: Callable[[], Any]) -> Any:
        again.store(0, 2, "bills")
        raise CallTimeout("slow")

    again.replace_replies(others)
    queue_map = {SOURCE: QUEUE, ("bills", "x", 0): QUEUE}
    sending = ExactlyOnceSender(again.lake.cluster(), queue_map, EMPTY)
    with pytest.raises(ConcurrentRun):
        send(sending, 0, 2)


@pytest.mark.parametrize("stored", [True, False])
def test_acknowledged_rows_that_their_broker_lost_are_sent_by_the_next_attempt(
    again: Destination, virtual_time: None, stored: bool
) -> None:
    def keep_three(_really: Callable[[], Any]) -> Any:
        again.store(0, 3)
        return SendReply(queue_id=1, queue_offset=0)

    def store_next(really: Callable[[], Any]) -> Any:
        if stored:
            return really()
        raise CallTimeout("slow")

    again.replace_replies(keep_three, store_next)
    sending = again.sender()
    send(sending, 0, 5)
    text = "queue 1 of broker 'broker-a' has lost its messages from offset 3 to 4"
    with pytest.raises(CallError, match=text):
        send(sending, 5, 2)
    sending = again.sender()
    sending.begin()
    assert send(sending, 0, 7) == (2 if stored else 4)
    assert sorted(again.bodies()) == list(range(7))


CANNED_SOURCE = ("bills", "x", 0)


def name_former_master(
    canned: CannedCluster, end: int, is_time: Callable[[Call[Any]], bool]
) -> ClusterClient:
    """A client of a name server that knows the new master only when it is time.

    The former master is a replica by now, and its queues end at `end`.
    """
    successor, canned.addresses["broker-a"] = canned.addresses["broker-a"], "former:10911"
    for queue_id in (0, 1):
        for at in range(4):
            copied_from = {REPLAYED_FROM: f"bills/x/{queue_id}/{at}"}
            canned.send("broker-a", queue_id, b"body", **copied_from)
    usual = canned.answer
    queues = [MessageQueue("orders", "broker-a", queue_id) for queue_id in (0, 1)]
    ends = TopicStats(offset_table={queue: QueueStats(max_offset=end) for queue in queues})
    covered = {"commitLogMaxOffset": "9", "commitLogConfirmedOffset": "9"}

    def answer(broker: str, call: Call[Any]) -> Any:
        is_former = canned.addresses["broker-a"] != successor
        if is_time(call):
            canned.addresses["broker-a"] = successor
        if isinstance(call, GetRuntimeInfo):
            return Reply(body=dumps(KVTable(table=covered)))
        if is_former and isinstance(call, GetTopicStats):
            return Reply(body=dumps(ends))
        if is_former and isinstance(call, Pull):
            raise CallRefused(ResponseCode.SYSTEM_BUSY, "this broker is a replica")
        return usual(broker, call)

    canned.answer = answer
    return canned.client(timeout_ms=5_000)


def test_a_queue_is_read_again_when_its_broker_has_another_master_meanwhile(
    canned: CannedCluster,
) -> None:
    cluster = name_former_master(canned, 2, lambda call: isinstance(call, Pull))
    sending = ExactlyOnceSender(cluster, {CANNED_SOURCE: ("orders", "broker-a", 0)}, {})
    assert sending.begin() == 4


def test_all_queues_are_read_at_the_master_that_was_found_last(canned: CannedCluster) -> None:
    looks: list[Call[Any]] = []

    def is_second_look(call: Call[Any]) -> bool:
        looks.extend([call] if isinstance(call, GetRuntimeInfo) else [])
        return len(looks) == 2

    cluster = name_former_master(canned, 0, is_second_look)
    queue_map = {("bills", "x", number): ("orders", "broker-a", number) for number in (0, 1)}
    assert ExactlyOnceSender(cluster, queue_map, {}).begin() == 8


def test_a_former_master_that_is_shorter_than_its_successor_is_left(
    canned: CannedCluster, virtual_time: None
) -> None:
    cluster = name_former_master(canned, 2, lambda call: isinstance(call, GetTopicStats))
    queue = ("orders", "broker-a", 0)
    assert ExactlyOnceSender(cluster, {CANNED_SOURCE: queue}, {queue: 3}).begin() == 1


def test_rows_that_were_sent_before_are_skipped(again: Destination) -> None:
    sending = again.sender()
    assert [send(sending, 0, 5), send(sending, 3, 4), send(sending, 0, 7)] == [5, 2, 0]
    assert again.bodies() == list(range(7))


def test_a_second_attempt_skips_the_rows_of_the_first(again: Destination) -> None:
    send(again.sender(), 0, 5)
    sending = again.sender()
    assert sending.begin() == 5
    assert send(sending, 0, 8) == 3
    assert again.bodies() == list(range(8))


def test_copies_of_a_first_attempt_may_have_gaps(again: Destination) -> None:
    first = again.sender()
    send(first, 2, 2)
    sending = again.sender()
    sending.begin()
    assert send(sending, 0, 6) == 4
    assert sorted(again.bodies()) == list(range(6))


def test_a_request_that_is_stored_late_is_counted(again: Destination) -> None:
    """The broker takes it when the same rows are sent again already."""

    def twice(really: Callable[[], Any]) -> Any:
        really()
        return really()

    again.replace_replies(lose_reply(CallTimeout("slow"), stored=False), twice)
    sending = again.sender()
    send(sending, 0, 3)
    assert sending.doubled == 3
    assert again.bodies() == [0, 1, 2, 0, 1, 2]


def test_two_senders_of_the_same_rows_detect_each_other(again: Destination) -> None:
    one, other = again.sender(), again.sender()
    send(one, 0, 5)
    with pytest.raises(
        ConcurrentRun, match="another run is sending messages of topic 'orders', queue 0"
    ):
        send(other, 0, 2)


def test_others_may_send_to_the_same_queue(again: Destination) -> None:
    sending = again.sender()
    send(sending, 0, 2)
    again.store(70, 1, "bills")
    send(sending, 2, 2)
    assert again.bodies() == [0, 1, 70, 2, 3]


def test_a_batch_that_is_in_the_log_and_not_in_its_queue_yet_is_found(again: Destination) -> None:
    again.replace_replies(lose_reply(CallTimeout("slow"), stored=True))
    again.delay_dispatch(700, 300)
    sending = again.sender()
    assert send(sending, 0, 5) == 5
    again.delay_dispatch(700, 300)
    assert again.sender().begin() == 5
    assert again.bodies() == list(range(5))


def test_a_broker_that_stays_behind_its_log_is_an_error(again: Destination) -> None:
    send(again.sender(), 0, 5)
    again.delay_dispatch(*[1] * 1_000_000)
    text = "queue 1 of broker 'broker-a' cannot be read to its end: .* hides the last 1 bytes"
    with pytest.raises(BrokerUnavailable, match=text):
        again.sender(timeout_ms=50).begin()


def test_without_runtime_info_the_ends_of_the_queues_count(again: Destination) -> None:
    def refuse() -> None:
        raise CallRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "what?")

    again.replace_runtime_info(refuse)
    send(again.sender(), 0, 5)
    assert again.sender().begin() == 5


def test_an_unavailable_broker_is_an_error(again: Destination) -> None:
    again.replace_replies(*[lose_reply(CallTimeout("slow"), stored=False)] * 3)
    with pytest.raises(
        BrokerUnavailable, match="queue 1 of broker 'broker-a' takes no messages: slow"
    ):
        send(again.sender(timeout_ms=0), 0, 2)


def test_a_refusal_that_stays_names_the_rows(again: Destination) -> None:
    refused = CallRefused(ResponseCode.MESSAGE_ILLEGAL, "too long")
    again.replace_replies(lose_reply(refused, stored=False))
    with pytest.raises(RoquetError, match=r"refuses topic 'orders'.*offsets 4 to 5: .*too long"):
        send(again.sender(), 4, 2)


class RecordingRateLimit(RateLimit):
    """Records the number of rows of each request, without a limit."""

    def __init__(self) -> None:
        super().__init__(None)
        self.sizes: list[int] = []

    def delay_ms(self, count: int, now_ms: float) -> int:
        self.sizes.append(count)
        return super().delay_ms(count, now_ms)


def test_rows_are_split_into_requests(again: Destination) -> None:
    again.patch.setattr(exactly_once_sender, "BATCH_COUNT_MAX", 3)
    rate_limit = RecordingRateLimit()
    sizes = rate_limit.sizes
    sender = ExactlyOnceSender(again.lake.cluster(), {SOURCE: QUEUE}, EMPTY, rate_limit)
    send(sender, 0, 10)
    assert sum(sizes) == 10
    assert max(sizes) <= 3
    assert again.bodies() == np.arange(10).tolist()


def queues_of(canned: CannedCluster, pause: Callable[[int], object]) -> list[Any]:
    cluster = canned.client(pause, timeout_ms=5_000)
    known = [("orders", *queue) for queue in canned.queues]
    return writable_queues(cluster, "orders", known)


def lose_leader(canned: CannedCluster) -> None:
    canned.broker_ids["broker-b"] = 1


def let_replica_stand_in(canned: CannedCluster) -> None:
    canned.true_ids["broker-b"] = {1: canned.addresses["broker-b"]}


def lose_broker(canned: CannedCluster) -> None:
    del canned.addresses["broker-b"]


@pytest.mark.parametrize("lose", [lose_leader, let_replica_stand_in, lose_broker])
def test_queues_of_a_broker_whose_master_is_away_are_waited_for(
    canned: CannedCluster, virtual_time: None, lose: Callable[[CannedCluster], None]
) -> None:
    addresses = dict(canned.addresses)
    lose(canned)
    with pytest.raises(ConnectFailed, match="broker 'broker-b' has no master now"):
        queues_of(canned, lambda _: None)

    def come_back(_ms: int) -> None:
        canned.addresses = addresses
        canned.broker_ids.clear()
        canned.true_ids.clear()

    assert queues_of(canned, come_back) == [("orders", *queue) for queue in sorted(canned.queues)]


def test_queues_that_their_master_closed_for_writing_are_left_out(canned: CannedCluster) -> None:
    canned.true_ids["broker-b"] = {0: canned.addresses["broker-b"]}
    queues = queues_of(canned, lambda _: None)
    assert {broker for _, broker, _ in queues} == {"broker-a"}
