"""Plain pulls are answered as the ordinary way does it."""

import asyncio
from random import Random
from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, heartbeat_of, local, make_pull

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.pull import PlainPulls
from roquet.broker.settings.config import BrokerConfig
from roquet.model.subscription import Subscription
from roquet.model.topic import SubscriptionGroup
from roquet.testing.clock import run, this_loop
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.codes import Language, SerializeType
from roquet.wire.command import Command, decode
from roquet.wire.fastjson import codec
from roquet.wire.fields import encode_call
from roquet.wire.frame import FrameReader
from roquet.wire.plain_pull import PlainPull, plain_pulls
from roquet.wire.records.speedups import COMPILED, use_compiled

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.skipif(not COMPILED, reason="without a compiler there are none"),
]

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

PULLS: list[dict[str, Any]] = [
    {},
    {"subscription": None, "sys_flag": 0, "sub_version": 1},
    {"subscription": None, "sys_flag": 0, "sub_version": 9},
    {"subscription": None, "sys_flag": 0, "consumer_group": "without heartbeats"},
    {"sys_flag": COMMIT | SUBSCRIPTION, "commit_offset": 5},
    {"sys_flag": COMMIT | SUBSCRIPTION, "commit_offset": 99},
    {"sys_flag": COMMIT | SUSPEND | SUBSCRIPTION, "commit_offset": 6, "offset": 7},
    {"offset": 9, "max_msg_nums": 2},
    {"offset": 38},
    {"offset": 39},
    {"offset": 40},
    {"offset": 41},
    {"offset": 40, "sys_flag": SUSPEND | SUBSCRIPTION, "suspend_timeout_millis": 5},
    {"max_msg_bytes": 1},
    {"max_msg_bytes": 1_000},
    {"max_msg_nums": 10_000, "max_msg_bytes": 2**31 - 1},
    {"max_msg_nums": 0},
    {"queue_id": 1},
    {"queue_id": 4},
    {"queue_id": -1},
    {"topic": "none"},
    {"topic": "SCHEDULE_TOPIC_XXXX"},
    {"topic": "not/a/topic"},
    {"consumer_group": "not/a/group"},
    {"consumer_group": "forbidden"},
    {"subscription": "red"},
    {"subscription": "red || blue"},
    {"subscription": "||"},
    {"subscription": "TAGS = 'red'", "expression_type": "SQL92"},
    {"topic_id": "another"},
    {"body": b"{}"},
]


class Client(asyncio.Protocol):
    """A client that keeps its replies."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self.replies: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.replies += self._reader.feed(data)


def frames(form: int, language: int) -> list[bytes]:
    subscription = Subscription(topic="orders", sub_string="*", sub_version=5)
    beat = Heartbeat(body=codec.dumps(heartbeat_of("c", subscription)))
    calls = [make_pull(**fields) for fields in PULLS]
    return [
        encode_call(call, opaque=number, serialize_type=form, language=language)
        for number, call in enumerate([beat, *calls])
    ]


def filled(server: BrokerServer) -> LocalBroker:
    """A broker with 40 messages in queue 0, most of them one behind the other, some in queue 1."""
    broker = local(server.broker)
    broker.put_topic("orders", 4)
    broker.tables.groups.put(SubscriptionGroup(group_name="forbidden", consume_enable=False), 0)
    for number in range(40):
        broker.send(b"%d" % number, properties="TAGS\x01red\x02" if number % 3 else "")
        if number % 16 == 1:
            broker.send(b"between", queue_id=1)
    return broker


def noted(broker: LocalBroker) -> list[object]:
    """Progress, delivered messages and owners, as they are noted."""
    gets = broker.control.statistics.gets
    return [
        sorted((key, sorted(rows.items())) for key, rows in broker.tables.offsets.by_place()),
        sorted((key, each.times, each.count, each.size, each.pulled) for key, each in gets.items()),
        broker.control.statistics.misses.times,
        [broker.coordination.handover.owners("billing", "orders", number) for number in range(2)],
    ]


async def conversation(
    requests: list[bytes], *, compiled: bool, together: bool = False, **settings: Any
) -> tuple[list[bytes], list[object]]:
    """Replies to requests, and what the broker has noted then."""
    before = use_compiled(compiled)
    try:
        config = BrokerConfig(host="127.0.0.1", port=10_911, metrics_port=0, **settings)
        async with BrokerServer(config, this_loop().clock, rng=Random(1), boot_id="b") as server:
            broker, client = filled(server), Client()
            server.server.accept_local(lambda: client)
            for chunk in [b"".join(requests)] if together else requests:
                client.transport.write(chunk)
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)
            return client.replies, noted(broker)
    finally:
        use_compiled(before)


@pytest.mark.parametrize("form", [SerializeType.JSON, SerializeType.ROCKETMQ])
@pytest.mark.parametrize("language", [Language.JAVA, Language.PYTHON])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"permission": 2}, {"slave_read_enable": True}, {"pull_count_memory": 7}],
    ids=str,
)
def test_the_replies_and_what_is_noted_are_the_same(
    form: int, language: int, together: bool, settings: dict[str, Any]
) -> None:
    requests = frames(form, language)
    usual = run(conversation(requests, compiled=False, together=together, **settings))
    assert run(conversation(requests, compiled=True, together=together, **settings)) == usual
    replies = [reply for reply in map(decode, usual[0]) if reply.is_response]
    assert sorted(reply.opaque for reply in replies) == list(range(len(requests)))


@pytest.fixture
def filled_broker(server: BrokerServer) -> LocalBroker:
    return filled(server)


def plain(**fields: Any) -> PlainPull:
    (pull,) = plain_pulls(encode_call(make_pull(**fields), opaque=7), 1 << 24, None)
    return pull


def reply_to(broker: LocalBroker, **fields: Any) -> Command | None:
    frame = broker.make(PlainPulls).read(plain(**fields), broker.peer)
    return None if frame is None else decode(frame[4:])


async def test_messages_that_are_there_are_returned(filled_broker: LocalBroker) -> None:
    reply = reply_to(filled_broker, offset=8)
    assert reply is not None
    assert (reply.code, reply.opaque, reply.remark) == (0, 7, "FOUND")
    assert (reply.ext["nextBeginOffset"], reply.ext["maxOffset"]) == ("40", "40")


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": 40},
        {"topic": "none"},
        {"queue_id": 4},
        {"subscription": "red"},
        {"subscription": None, "sys_flag": 0},
    ],
    ids=str,
)
async def test_what_has_to_be_judged_is_left_as_it_is(
    filled_broker: LocalBroker, fields: dict[str, Any]
) -> None:
    flags = fields.get("sys_flag", SUBSCRIPTION) | COMMIT
    before = noted(filled_broker)
    assert reply_to(filled_broker, **{**fields, "sys_flag": flags, "commit_offset": 3}) is None
    assert noted(filled_broker) == before


async def test_a_message_that_is_not_confirmed_is_not_returned(filled_broker: LocalBroker) -> None:
    store = filled_broker.log.store
    store.set_confirmed(store.end_position)
    filled_broker.send(b"not yet")
    reply = reply_to(filled_broker, offset=39)
    assert reply is not None
    assert (reply.ext["nextBeginOffset"], reply.ext["maxOffset"]) == ("40", "40")
    assert reply_to(filled_broker, offset=40) is None


async def test_a_reset_or_a_former_topic_leaves_the_pulls_that_it_concerns(
    filled_broker: LocalBroker,
) -> None:
    tables = filled_broker.tables
    tables.offset_resets.put("billing", "others", 0, 3)
    tables.former_readers.add("others", [filled_broker.peer], ["billing"])
    assert reply_to(filled_broker) is not None
    tables.offset_resets.put("billing", "orders", 0, 3)
    assert reply_to(filled_broker) is None
    assert tables.offset_resets.take("billing", "orders", 0) == 3
    assert reply_to(filled_broker) is not None
    tables.former_readers.add("orders", [filled_broker.peer], ["billing"])
    assert reply_to(filled_broker) is None
