"""Delivery: retries avoid failed brokers, or wait for the one that an order key requires."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from roquet.model.errors import (
    CallError,
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    UsageError,
)
from roquet.model.names import AUTO_CREATE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.rules.send_retry import LESS_DURABLE, OTHER_BROKER, STALE_QUEUE, TRANSIENT
from roquet.spark.sink.delivery import UNKNOWN_QUEUE_TRIES, RequestDelivery, is_slip
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.send_requests import SendRequest
from roquet.testing.clock import run, this_loop
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.codes import ResponseCode

QUEUES = [MessageQueue("orders", name, at) for name in ("a", "b") for at in (0, 1)]
BUSY = CallRefused(ResponseCode.SYSTEM_BUSY, "busy")
NO_QUEUE = CallRefused(ResponseCode.INVALID_PARAMETER, "no such queue")


class FakeNetwork:
    """Routes and connections in one: answers are on_stored from a list, then all is well."""

    def __init__(self, *answers: CallError | SendReply) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, Send]] = []
        self.called_ms: list[int] = []
        self.refreshed = 0
        self.known = True
        self.topics: dict[int, list[str]] = {0: []}
        """The topics that name servers know from a time on (ms)."""
        self.reply_ms = 0
        """How long replies take that promise too little."""

    def writable(self, _topic: str) -> list[MessageQueue] | None:
        return QUEUES if self.known else None

    async def find_writable(self, _topic: str, _queues: int, _deadline_ms: int) -> None:
        self.known = True

    def leader(self, broker: str) -> str:
        return f"{broker}:1"

    async def known_topics(self) -> list[str]:
        now_ms = this_loop().clock.monotonic_ms()
        return next(names for from_ms, names in reversed(self.topics.items()) if from_ms <= now_ms)

    async def refresh(self, topic: str) -> object:
        self.refreshed += 1
        if not self.known:
            return topic if topic in await self.known_topics() else None
        raise ConnectFailed("no name server")

    async def call(self, address: str, call: Send, timeout_ms: int) -> SendReply:
        self.calls.append((address, call))
        self.called_ms.append(this_loop().clock.monotonic_ms())
        answer = self.answers.pop(0) if self.answers else SendReply(queue_id=call.queue_id)
        if isinstance(answer, CallError):
            raise answer
        if answer.code in LESS_DURABLE:
            await this_loop().clock.sleep(min(self.reply_ms, timeout_ms))
            if timeout_ms < self.reply_ms:
                raise CallTimeout(f"no answer within {timeout_ms} ms")
        return answer

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(address, call.queue_id) for address, call in self.calls]

    @property
    def pauses_ms(self) -> list[int]:
        return [after - before for before, after in pairwise(self.called_ms)]


def sending(
    net: FakeNetwork, requests: Sequence[SendRequest], turn: int = 0, **settings: Any
) -> list[str]:
    """The brokers that took them; pauses pass in virtual time."""
    options = SinkOptions(**{"namesrv": ("n:1",), "timeout_ms": 60_000, **settings})

    async def work() -> list[str]:
        made = RequestDelivery(net, net, options, this_loop().clock, turn)  # type: ignore[arg-type]
        return [(await made.send(request)).broker for request in requests]

    return run(work())


def request(queue: MessageQueue | None = None, properties: str | None = None) -> SendRequest:
    return SendRequest("orders", 10, 5, b"body", queue, properties, 3)


def test_queues_have_their_turns_and_neighbours_are_of_other_brokers() -> None:
    net = FakeNetwork()
    sending(net, [request()] * 5, turn=1)
    assert net.places == [("b:1", 0), ("a:1", 1), ("b:1", 1), ("a:1", 0), ("b:1", 0)]


def test_a_batch_and_a_message_alone_have_their_own_requests() -> None:
    net = FakeNetwork()
    net.known, net.topics = False, {0: ["orders"]}
    sending(net, [request(), request(properties="K\x01v\x02")])
    (_, batch), (_, alone) = net.calls
    assert isinstance(batch, SendBatch)
    assert batch.batch
    assert type(alone) is Send
    assert (alone.properties, alone.flag, alone.body, alone.batch) == (
        "K\x01v\x02",
        3,
        b"body",
        False,
    )


def test_other_brokers_take_the_rows_of_a_broker_at_fault() -> None:
    net = FakeNetwork(ConnectionLost("gone"))
    assert sending(net, [request()] * 4) == ["b", "b", "b", "b"]
    assert net.pauses_ms == [0] * 4
    assert net.refreshed == 1


def test_rows_bound_to_a_queue_wait_for_its_broker() -> None:
    net = FakeNetwork(BUSY, ConnectFailed("restarting"), CallTimeout("slow"))
    assert sending(net, [request(QUEUES[1])]) == ["a"]
    assert net.places == [("a:1", 1)] * 4
    assert net.pauses_ms == [20, 40, 80]


def test_pauses_grow_up_to_a_second() -> None:
    net = FakeNetwork(*[BUSY] * 9)
    sending(net, [request(QUEUES[1])])
    assert net.pauses_ms == [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]


@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_a_transient_refusal_is_waited_out_where_an_order_is_at_stake(code: int) -> None:
    net = FakeNetwork(*[CallRefused(code)] * 20)
    assert sending(net, [request(QUEUES[1])]) == ["a"]
    assert net.places == [("a:1", 1)] * 21


@pytest.mark.parametrize("code", sorted(TRANSIENT | LESS_DURABLE))
def test_the_route_is_looked_up_after_a_refusal_that_a_former_master_gives(code: int) -> None:
    net = FakeNetwork(CallRefused(code))
    masters = iter(["old:1", "new:1"])
    net.leader = lambda _broker: next(masters)  # type: ignore[method-assign, assignment]
    assert sending(net, [request(QUEUES[1])]) == ["a"]
    assert net.refreshed == 1
    assert net.places == [("old:1", 1), ("new:1", 1)]


@pytest.mark.parametrize("code", sorted(OTHER_BROKER | STALE_QUEUE))
def test_no_other_queue_takes_a_request_whose_order_is_at_stake(code: int) -> None:
    net = FakeNetwork(CallRefused(code))
    with pytest.raises(CallRefused, match=f"code {code}"):
        sending(net, [request(QUEUES[1])])
    assert net.places == [("a:1", 1)]


@pytest.mark.parametrize("code", sorted(OTHER_BROKER))
def test_a_refusal_of_one_broker_is_final_once_every_broker_gave_it(code: int) -> None:
    net = FakeNetwork(CallRefused(code))
    assert sending(net, [request()]) == ["b"]
    assert net.refreshed == 1, "its route may be outdated"
    with pytest.raises(CallRefused, match=f"code {code}"):
        sending(FakeNetwork(*[CallRefused(code)] * 2), [request()])


FINAL = set(ResponseCode) - TRANSIENT - LESS_DURABLE - OTHER_BROKER - STALE_QUEUE


@pytest.mark.parametrize("code", sorted(FINAL - {ResponseCode.SUCCESS}))
def test_any_other_refusal_is_raised_at_once_with_its_rows(code: int) -> None:
    net = FakeNetwork(CallRefused(code))
    with pytest.raises(CallRefused, match=f"code {code}") as caught:
        sending(net, [request()])
    assert len(net.calls) == 1
    assert "rows from 10 to about 14" in caught.value.__notes__[0]


def test_an_unknown_queue_is_waited_for_about_six_seconds() -> None:
    net = FakeNetwork(*[NO_QUEUE] * 100)
    with pytest.raises(CallRefused, match="no such queue"):
        sending(net, [request()])
    assert len(net.calls) == UNKNOWN_QUEUE_TRIES
    assert sum(net.pauses_ms) == pytest.approx(6_000, abs=500)


def test_a_queue_that_is_not_known_yet_is_tried_again_unless_an_order_is_at_stake() -> None:
    net = FakeNetwork(NO_QUEUE, NO_QUEUE)
    assert sending(net, [request()]) == ["a"]
    assert net.refreshed == 2
    with pytest.raises(CallRefused, match="no such queue"):
        sending(FakeNetwork(NO_QUEUE), [request(QUEUES[0])])


def test_the_time_ends_all_tries() -> None:
    with pytest.raises(CallRefused, match="busy"):
        sending(FakeNetwork(BUSY), [request()], timeout_ms=0)


@pytest.mark.parametrize("code", sorted(LESS_DURABLE))
def test_a_half_message_wants_the_whole_promise(code: int) -> None:
    weak = SendReply(code=code)
    net = FakeNetwork(weak)
    sending(net, [request(properties="TRAN_MSG\x01true\x02")], transactional=True)
    assert len(net.calls) == 2
    assert net.calls[0][1].sys_flag == 4


@pytest.mark.parametrize("code", sorted(LESS_DURABLE))
def test_rows_that_are_stored_less_durably_than_promised_are_sent_again(code: int) -> None:
    net = FakeNetwork(SendReply(code=code))
    assert sending(net, [request()]) == ["b"]
    net = FakeNetwork(*[SendReply(code=code)] * 6)
    assert sending(net, [request(QUEUES[1])]) == ["a"]
    assert net.pauses_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 16_000], "each makes a copy"


@pytest.mark.parametrize(
    ("reply_ms", "attempts_ms"),
    [
        (0, [0, 1_000, 3_000, 7_000, 15_000, 31_000, 47_000, 55_000]),
        (3_000, [0, 4_000, 9_000, 16_000, 27_000, 46_000, 55_000]),
        (9_500, [0, 10_500, 22_000, 35_500, 53_000]),
    ],
)
def test_rows_that_stay_less_durable_than_promised_fail_the_write_with_advice(
    reply_ms: int, attempts_ms: list[int]
) -> None:
    net = FakeNetwork(*[SendReply(code=12, remark="too few replicas")] * 9)
    net.reply_ms = reply_ms
    with pytest.raises(CallRefused, match="code 12: too few replicas") as caught:
        sending(net, [request(QUEUES[1])])
    assert [at - net.called_ms[0] for at in net.called_ms] == attempts_ms
    (note,) = caught.value.__notes__
    assert "rows from 10 to about 14 of this partition are stored in " in note
    assert "lower its inSyncReplicas" in note


def test_rows_that_were_stored_less_durably_are_named_when_their_broker_is_busy_at_last() -> None:
    net = FakeNetwork(SendReply(code=12), *[BUSY] * 100)
    with pytest.raises(CallRefused, match="code 12") as caught:
        sending(net, [request(QUEUES[1])])
    assert "are stored in " in caught.value.__notes__[0]


def test_a_broker_that_stays_busy_is_not_tried_when_the_time_is_over() -> None:
    net = FakeNetwork(*[BUSY] * 100)
    with pytest.raises(CallRefused, match="busy"):
        sending(net, [request(QUEUES[1])], timeout_ms=10_000)
    assert 8_500 < sum(net.pauses_ms) < 10_000


@pytest.mark.parametrize("code", sorted(LESS_DURABLE))
def test_a_write_may_accept_rows_that_are_less_durable_than_promised(code: int) -> None:
    net = FakeNetwork(SendReply(code=code))
    assert sending(net, [request()], accepts_less_durable=True) == ["a"]


def test_a_misspelt_topic_is_refused_with_the_nearest_name() -> None:
    net = FakeNetwork()
    net.known, net.topics = False, {0: ["order", "TBW102"]}
    with pytest.raises(UsageError, match=r"'orders' does not exist: .*; did you mean 'order'"):
        sending(net, [request()])
    assert net.calls == []


@pytest.mark.parametrize(
    ("name", "other", "is_one"),
    [
        ("orders", "oders", True), ("orders", "ordesr", True), ("orders", "Orders", True),
        ("orders", "orderz", True), ("aab", "ab", True), ("orders-1", "orders-2", False),
        ("orders", "orders2", False), ("orders-eu", "orders-us", False), ("orders", "paid", False),
    ],
)  # fmt: skip
def test_a_slip_is_one_letter(name: str, other: str, is_one: bool) -> None:
    assert is_slip(name, other) is is_slip(other, name) is is_one


@pytest.mark.parametrize("others", [[], ["orders2", "orders-eu"]])
def test_a_topic_whose_only_broker_restarts_is_waited_for(others: list[str]) -> None:
    net = FakeNetwork()
    net.known, net.topics = False, {0: others, 20_000: ["orders"]}
    assert sending(net, [request()]) == ["a"]
    net.known, net.topics = False, {0: []}
    with pytest.raises(UsageError, match="does not exist"):
        sending(net, [request()], timeout_ms=5_000)


def test_brokers_make_a_topic_only_when_they_are_asked_to() -> None:
    net = FakeNetwork()
    net.known = False
    sending(net, [request()], creates_topics=True)
    sending(net, [request()])
    templates = [call.default_topic for _, call in net.calls]
    assert templates == [AUTO_CREATE_TOPIC, "orders"], "no broker has a copy of what is missing"
