"""Plain sends are stored and answered as the ordinary way does it."""

import asyncio
from random import Random
from typing import Any

import pytest
from msgspec.structs import asdict
from tests.broker.conftest import LocalBroker, failing, local, make_send

from roquet.broker.app import BrokerServer
from roquet.broker.operations.plain_sends import PlainSends
from roquet.broker.settings.config import BrokerConfig
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import StoreFailed, StoreFull
from roquet.testing.clock import run, this_loop
from roquet.wire.calls.send import SendBatch
from roquet.wire.codes import SerializeType
from roquet.wire.command import Command, decode
from roquet.wire.fields import encode_call
from roquet.wire.frame import FrameReader
from roquet.wire.plain_send import PlainSend, plain_sends
from roquet.wire.records.batch import encode_item
from roquet.wire.records.speedups import COMPILED, use_compiled

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.skipif(not COMPILED, reason="without a compiler there are none"),
]

KEY = "UNIQ_KEY\x017F0000010007{:020X}\x02"
PROPERTIES = KEY + "TAGS\x01red\x02WAIT\x01true\x02"

SENDS: list[dict[str, Any]] = [
    {},
    {"flag": -7, "reconsume_times": 3, "sys_flag": 1},
    {"body": b"", "topic": "orders"},
    {"body": bytes(200)},
    {"queue_id": 3},
    {"queue_id": 4},
    {"queue_id": -1},
    {"topic": "new"},
    {"topic": "not/a/topic"},
    {"topic": "%RETRY%billing"},
    {"topic": "SCHEDULE_TOPIC_XXXX"},
    {"sys_flag": 4},
    {"sys_flag": 8},
    {"sys_flag": 1 << 30},
    {"properties": PROPERTIES + "__SHARDINGKEY\x0142\x02KEYS\x01a b\x02"},
    {"properties": PROPERTIES + "DELAY\x013\x02"},
    {"properties": PROPERTIES + "K\x01" + "é" * 16_000 + "\x02"},
    {"properties": PROPERTIES + "K\x01" + "x" * 32_600 + "\x02"},
    {"properties": "KEYS\x01é\x02"},
    {"topic": "orders", "queue_id": 1},
]


PLAIN_BATCH = (
    KEY + "TAGS\x01red\x02KEYS\x01a b\x02",
    KEY,
    KEY + "TAGS\x01red\x02WAIT\x01false\x02",
)

BATCHES: list[dict[str, Any]] = [
    {"texts": PLAIN_BATCH},
    {"texts": PLAIN_BATCH, "flag": -7, "reconsume_times": 3, "sys_flag": 1},
    {"texts": PLAIN_BATCH, "properties": ""},
    {"texts": PLAIN_BATCH, "properties": "UNIQ_KEY\x01whole\x02WAIT\x01false\x02KEYS\x01c\x02"},
    {"texts": PLAIN_BATCH, "properties": "a\x01b\x02a\x01c\x02"},
    {"texts": PLAIN_BATCH, "properties": "DELAY\x013\x02"},
    {"texts": PLAIN_BATCH, "queue_id": 3},
    {"texts": PLAIN_BATCH, "queue_id": 4},
    {"texts": PLAIN_BATCH, "queue_id": -1},
    {"texts": PLAIN_BATCH, "topic": "new"},
    {"texts": PLAIN_BATCH, "topic": "%RETRY%billing"},
    {"texts": PLAIN_BATCH, "sys_flag": 4},
    {"texts": PLAIN_BATCH, "sys_flag": 8},
    {"texts": PLAIN_BATCH, "code": 310},
    {"texts": PLAIN_BATCH * 20},
    {"texts": PLAIN_BATCH * 60},
    {"texts": (*PLAIN_BATCH, "TAGS\x01red\x02")},
    {"texts": (*PLAIN_BATCH, KEY + "DELAY\x013\x02")},
    {"texts": (*PLAIN_BATCH, KEY + "KEYS\x01é\x02")},
    {"texts": (*PLAIN_BATCH, KEY + "a\x01" + "x" * 600 + "\x02")},
    {"texts": (*PLAIN_BATCH, KEY + "a\x01" + "x" * 32_600 + "\x02")},
    {"texts": PLAIN_BATCH, "cut": 3},
    {"texts": ()},
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


def frames(form: int) -> list[bytes]:
    made = []
    for number, fields in enumerate(SENDS):
        properties = fields.get("properties", PROPERTIES).format(number)
        call = make_send(**{"topic": "orders", "queue_id": 0, **fields, "properties": properties})
        made.append(encode_call(call, opaque=number, serialize_type=form))
    return made


def batch_frames(form: int) -> list[bytes]:
    made = []
    for number, fields in enumerate(BATCHES):
        given_ = {"topic": "orders", "queue_id": 0, "properties": "WAIT\x01true\x02", **fields}
        texts, cut, code = given_.pop("texts"), given_.pop("cut", 0), given_.pop("code", 320)
        items = [
            encode_item(n, b"body %d" % n, text.format(1_000 * number + n).encode())
            for n, text in enumerate(texts)
        ]
        body = b"".join(items)
        call = make_send(**given_, batch=True, body=body[: len(body) - cut])
        if code == 320:
            call = SendBatch(**asdict(call))
        made.append(encode_call(call, opaque=number, serialize_type=form))
    return made


def kinds_of(broker: LocalBroker) -> list[tuple[Any, ...]]:
    """Messages of each topic and kind that metrics have counted."""
    counts = broker.log.ingest.counts
    return sorted((*labels, each.count) for labels, each in counts.stored.by_labels.items())


async def conversation(
    requests: list[bytes], *, compiled: bool, together: bool = False, **settings: Any
) -> tuple[list[bytes], list[bytes], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Replies to requests, the records that the log holds then, what was counted, and the index."""
    before = use_compiled(compiled)
    try:
        config = BrokerConfig(
            host="127.0.0.1",
            port=10_911,
            metrics_port=0,
            metrics_exporter=MetricsExporterType.PROM,
            **{"max_message_size": 150} | settings,
        )
        async with BrokerServer(config, this_loop().clock, rng=Random(1), boot_id="b") as server:
            broker = local(server.broker)
            broker.put_topic("orders", 4)
            client = Client()
            server.server.accept_local(lambda: client)
            for chunk in [b"".join(requests)] if together else requests:
                client.transport.write(chunk)
                await asyncio.sleep(0.01)
            store = broker.log.store
            records, at = list[bytes](), store.begin_position
            while (record := store.message_at(at)) is not None:
                records.append(record)
                at += len(record)
            while store.dispatch():
                pass
            found = [
                (key, store.query("orders", key, count_max=999).positions)
                for key in ("a", "b", "c", "whole")
            ]
            return client.replies, records, kinds_of(broker), found
    finally:
        use_compiled(before)


@pytest.mark.parametrize("form", [SerializeType.JSON, SerializeType.ROCKETMQ])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"check_message_types": True}, {"sync_flush": True}, {"permission": 4}],
    ids=str,
)
def test_the_log_and_the_replies_are_the_same(
    form: int, together: bool, settings: dict[str, Any]
) -> None:
    requests = frames(form)
    usual = run(conversation(requests, compiled=False, together=together, **settings))
    assert run(conversation(requests, compiled=True, together=together, **settings)) == usual
    assert len(usual[0]) == len(requests)
    assert settings or ("orders", "fifo", 1) in usual[2]


@pytest.mark.parametrize("form", [SerializeType.JSON, SerializeType.ROCKETMQ])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"sync_flush": True}, {"permission": 4}, {"max_message_size": 150}], ids=str
)
def test_batches_are_stored_and_answered_as_they_always_were(
    form: int, together: bool, settings: dict[str, Any]
) -> None:
    given_ = {"max_message_size": 1 << 20, **settings}
    requests = batch_frames(form)
    usual = run(conversation(requests, compiled=False, together=together, **given_))
    assert run(conversation(requests, compiled=True, together=together, **given_)) == usual
    assert len(usual[0]) == len(requests)
    assert settings or len(usual[3][0][1]) > 80


def plain(**fields: Any) -> PlainSend:
    call = make_send(**{"topic": "orders", "queue_id": 1, "properties": PROPERTIES, **fields})
    (send,) = plain_sends(encode_call(call, opaque=7), 1 << 24, None)
    return send


@pytest.fixture
def orders(broker: LocalBroker) -> LocalBroker:
    broker.put_topic("orders", 4)
    return broker


def reply_to(broker: LocalBroker, **fields: Any) -> Command | None:
    frame = broker.make(PlainSends).store(plain(**fields), broker.peer)
    return None if frame is None else decode(frame[4:])


async def test_an_ordinary_message_is_stored(orders: LocalBroker) -> None:
    reply = reply_to(orders)
    assert reply is not None
    assert (reply.code, reply.opaque, reply.ext["queueOffset"]) == (0, 7, "0")
    assert orders.log.store.bounds("orders", 1) == (0, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "none"},
        {"queue_id": 4},
        {"queue_id": -1},
        {"body": bytes((4 << 20) + 1)},
        {"properties": PROPERTIES + "K\x01" + "x" * 32_700 + "\x02"},
    ],
    ids=lambda fields: str(fields)[:20],
)
async def test_what_has_to_be_judged_is_left_as_it_is(
    orders: LocalBroker, fields: dict[str, Any]
) -> None:
    before = orders.log.store.end_position
    assert reply_to(orders, **fields) is None
    assert orders.log.store.end_position == before


@pytest.mark.parametrize("name", ["is_needed", "is_short"])
async def test_the_short_way_is_closed_while_senders_wait_or_may_be_refused(
    orders: LocalBroker, name: str
) -> None:
    plain_sends_ = orders.make(PlainSends)
    acknowledgements = orders.replication.acknowledgements
    assert plain_sends_.is_open()
    setattr(acknowledgements, name, True)
    assert not plain_sends_.is_open()
    setattr(acknowledgements, name, False)
    assert plain_sends_.is_open()


@pytest.mark.parametrize(
    ("changed", "back"),
    [
        ({"flushDiskType": "SYNC_FLUSH"}, {"flushDiskType": "ASYNC_FLUSH"}),
        ({"permission": "4"}, {"permission": "6"}),
        ({"check_message_types": "true"}, {"check_message_types": "false"}),
    ],
    ids=str,
)
def test_the_short_way_follows_changes_of_settings(
    changed: dict[str, str], back: dict[str, str]
) -> None:
    async def is_open_after_each() -> list[bool]:
        config = BrokerConfig(host="127.0.0.1", port=10_911)
        async with BrokerServer(config, this_loop().clock, rng=Random(1), boot_id="b") as server:
            plain_sends_, settings = server.broker.make(PlainSends), server.broker.control.settings
            found = [plain_sends_.is_open()]
            for wanted in (changed, back):
                settings.change(wanted, 0)
                found.append(plain_sends_.is_open())
            return found

    assert run(is_open_after_each()) == [True, False, True]


async def test_what_the_store_refuses_is_left(
    orders: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no space")

    body = encode_item(0, b"x", b"UNIQ_KEY\x01k\x02")
    batch = {"batch": True, "body": body, "properties": ""}
    assert reply_to(orders) is not None
    assert reply_to(orders, **batch) is not None
    store = type(orders.log.store)
    monkeypatch.setattr(store, "append_plain", lambda *_: None)
    monkeypatch.setattr(store, "append", full)
    monkeypatch.setattr(store, "append_body", full)
    assert reply_to(orders) is None
    assert reply_to(orders, **batch) is None


async def test_a_message_that_may_be_stored_all_the_same_is_not_left(
    orders: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(orders.log.store)
    monkeypatch.setattr(store, "append_plain", lambda *_: None)
    for way in ("append", "append_body"):
        monkeypatch.setattr(store, way, failing(StoreFailed("no memory")))
    body = encode_item(0, b"x", b"UNIQ_KEY\x01k\x02")
    for batch in ({}, {"batch": True, "body": body, "properties": ""}):
        with pytest.raises(StoreFailed):
            reply_to(orders, **batch)
