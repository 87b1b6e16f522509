"""Requests over a quota, refused or held up."""

from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.conftest import FakePeer
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker.admission import RequestQuotas
from roquet.broker.operations.sending import SendChecks
from roquet.broker.operations.throttling import DIRECTIONS, Throttle
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.flags import PullFlag
from roquet.net.router import Peer, Router
from roquet.rules.quota import parse_quotas
from roquet.testing.clock import VirtualClock, this_loop
from roquet.wire.call import Call, Reply
from roquet.wire.calls.pop import Peek, Pop, PopReply
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.calls.reply import SendReplyLongNames, SendReplyMessage
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch

pytestmark = pytest.mark.virtual_time

BUSY = ResponseCode.SYSTEM_BUSY

THREE = encode_batch([BatchItem(flag=0, body=b"12345", properties=b"")] * 3)
"""Three messages, as a reply has them as well."""


class Served:
    """A router whose handlers note their requests."""

    def __init__(self, quotas: str, clock: Any) -> None:
        self.calls: list[Call[Any]] = []
        self.router = Router()
        for call_type in DIRECTIONS:
            self.router.add(call_type, self._handle)
        config = BrokerConfig(quotas=parse_quotas(quotas, "quotas"))
        self.settings = RuntimeSettings(config)
        self.quotas = RequestQuotas(config)
        control: Any = SimpleNamespace(settings=self.settings, quotas=self.quotas, clock=clock)
        none: Any = SimpleNamespace(topics=None, acknowledgements=None)
        log: Any = SimpleNamespace(store=SimpleNamespace(bounds=lambda *_: (3, 9)))
        checks = SendChecks(tables=none, control=control, replication=none)
        throttle = Throttle(log, control, checks, self.router)
        self.settings.subscribe(throttle.follow, "quotas")
        self.peer = FakePeer()
        self.sent = SendReply()

    def _handle(self, call: Call[Any], _peer: Peer) -> Reply | Awaitable[Reply]:
        self.calls.append(call)
        if isinstance(call, Pull):
            return self._pulled()
        return PopReply(body=THREE) if isinstance(call, Pop) else self.sent

    async def _pulled(self) -> Reply:
        return PullReply(body=THREE, next_begin_offset=6, min_offset=3, max_offset=9)

    def __call__(self, call: Call[Any]) -> Any:
        return self.router.handlers[type(call)](call, self.peer)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def send(body: bytes = b"12345") -> Send:
    return Send(producer_group="g", topic="orders", queue_id=0, born_timestamp=0, body=body)


def pull(**fields: Any) -> Pull:
    suspended = {"sys_flag": int(PullFlag.SUSPEND), "suspend_timeout_millis": 15_000}
    return ask(5, consumer_group="g", **{**suspended, **fields})


def test_a_send_over_the_quota_is_refused_as_busy_with_the_wait(clock: VirtualClock) -> None:
    served = Served("topic:orders send 2/s", clock)
    assert [served(send()).code for _ in range(3)] == [0, 0, ResponseCode.SYSTEM_BUSY]
    assert served(send()).remark == (
        "quota: topic orders may send 2 messages a second, try again in 500 ms"
    )
    assert len(served.calls) == 2
    assert served.quotas.excesses == {("send", "topic", "orders"): 2}
    clock.jump(500)
    assert served(send()).code == 0


def test_messages_and_bytes_of_a_batch_count(clock: VirtualClock) -> None:
    served = Served("client:10.0.0.7 send 4/s", clock)
    batch = Send(
        batch=True, producer_group="g", topic="orders", queue_id=0, born_timestamp=0, body=THREE
    )
    assert [served(batch).code for _ in range(3)] == [0, 0, ResponseCode.SYSTEM_BUSY]
    served = Served("client:10.0.0.7 send 10B/s", clock)
    assert [served(send()).code for _ in range(3)] == [0, 0, ResponseCode.SYSTEM_BUSY]


def test_a_batch_counts_all_its_messages_whatever_its_code(clock: VirtualClock) -> None:
    served = Served("topic:* send 4/s", clock)
    batch = SendBatch(
        producer_group="g", topic="orders", queue_id=0, born_timestamp=0, body=THREE, batch=True
    )
    assert [served(batch).code for _ in range(3)] == [0, 0, ResponseCode.SYSTEM_BUSY]


def test_a_batch_that_is_refused_counts_as_one_message(clock: VirtualClock) -> None:
    served = Served("topic:* send 4/s", clock)
    served.sent = SendReply(code=ResponseCode.MESSAGE_ILLEGAL)
    fake = (4).to_bytes(4) * 1_000
    batch = Send(
        batch=True, producer_group="g", topic="orders", queue_id=0, born_timestamp=0, body=fake
    )
    assert served(batch).code == ResponseCode.MESSAGE_ILLEGAL
    served.sent = SendReply()
    assert served(send()).code == 0


def test_replies_to_requests_count_as_sends(clock: VirtualClock) -> None:
    served = Served("topic:* send 2/s", clock)
    fields: dict[str, Any] = {"topic": "r", "queue_id": 0, "born_timestamp": 0, "body": b"x"}
    replies = [
        kind(producer_group="g", **fields) for kind in (SendReplyMessage, SendReplyLongNames)
    ]
    assert [served(call).code for call in (*replies, *replies)] == [0, 0, BUSY, BUSY]


def test_a_user_is_who_signed_the_request(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served("user:* send 1/s", clock)
    codes = []
    for user in ("", "", "shop", "shop", "bob"):
        monkeypatch.setattr(type(served.router), "user", user)
        codes.append(served(send()).code)
    assert codes == [0, 0, 0, ResponseCode.SYSTEM_BUSY, 0]


def test_quotas_change_while_the_broker_runs(clock: VirtualClock) -> None:
    served = Served("", clock)
    assert [served(send()).code for _ in range(3)] == [0, 0, 0]
    served.settings.change({"quotas": "topic:* send 1/s"}, 0)
    assert [served(send()).code for _ in range(2)] == [0, ResponseCode.SYSTEM_BUSY]
    served.settings.change({"quotas": ""}, 0)
    assert served(send()).code == 0


async def test_a_pull_over_the_quota_is_answered_later() -> None:
    clock = this_loop().clock
    served = Served("topic:* fetch 1/s", clock)
    assert (await served(pull())).body == THREE
    begun_ms = clock.monotonic_ms()
    assert (await served(pull())).body == THREE
    assert clock.monotonic_ms() - begun_ms == 3_000
    assert served.calls[1] == pull(suspend_timeout_millis=12_000)


async def test_a_pull_that_would_wait_too_long_is_answered_without_messages() -> None:
    clock = this_loop().clock
    served = Served("topic:* fetch 1B/s", clock)
    await served(pull())
    for waits, fields in (
        (15_000, {}), (1_000, {"sys_flag": 0}), (1_000, {"suspend_timeout_millis": 5}),
    ):  # fmt: skip
        begun_ms = clock.monotonic_ms()
        reply = await served(pull(**fields))
        assert clock.monotonic_ms() - begun_ms == waits
        assert reply == PullReply(
            code=ResponseCode.PULL_NOT_FOUND, remark=reply.remark,
            next_begin_offset=5, min_offset=3, max_offset=9,
        )  # fmt: skip
    assert len(served.calls) == 1


async def test_pops_are_answered_later_and_peeks_without_messages() -> None:
    served = Served("client:* fetch 3/s", this_loop().clock)
    pop = Pop(consumer_group="g", topic="orders", poll_time=10_000)
    assert served(pop).body == THREE
    peeked = served(Peek(consumer_group="g", topic="orders"))
    assert peeked.code == ResponseCode.PULL_NOT_FOUND
    assert (await served(pop)).body == THREE
    assert [call.poll_time for call in served.calls if isinstance(call, Pop)] == [10_000, 9_666]
    slow = Served("client:* fetch 1B/s", this_loop().clock)
    slow(pop)
    assert (await slow(pop)).code == ResponseCode.POLLING_TIMEOUT
