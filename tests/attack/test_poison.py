"""Poison: messages that no service can handle lie among good ones, and only they stay behind.

Each kind of poison is written raw into the topic of a service, before, between and after good
messages, in every order of kinds. All good ones come through; what is poison is counted, survives
a kill, and can be tried again; and nothing stops the broker from starting anew.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.settings.config import BrokerConfig
from roquet.model import names
from roquet.model.errors import MessageIllegal, RecordError
from roquet.rules.consumption.pop import PopCheckpoint
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Draft
from roquet.testing.clock import VirtualClock, run, this_loop
from roquet.wire.java_hash import hash_code
from roquet.wire.records.record import Record, decode_many
from roquet.wire.revive_records import revive_properties

pytestmark = pytest.mark.attack

NUMBERS: Final = [
    "", "-1", "0", "null", "NaN", "1e9", "٣", "0x10", " 7 ", "+5", str(2**31), str(2**32),
    str(2**63 - 1), str(2**63), str(10**30), "9" * 5_000, "-" + "9" * 30,
]  # fmt: skip
"""Numbers as they should not be."""

TEXTS: Final = [
    b"", b"\xff\xfe", b"\x01\x02\x01\x02", b"\x01", b"a\x01\x02", b"REAL_TOPIC\x01\xc3\x28\x02",
    b"TAGS\x01\xff\x02KEYS\x01\xff\xfe \xfd\x02UNIQ_KEY\x01\xff\x02", b"K\x01" + b"v" * 32_000,
    b"KEYS\x01" + b"k " * 16_000, "REAL_TOPIC\x01\ud800\x02".encode("utf-8", "surrogatepass"),
]  # fmt: skip
"""Property texts that are none, or hardly."""

TOPICS: Final = [
    "", ".", "..", "../../etc/passwd", "a/b", "\x00", "x" * 300, "%RETRY%../x", "%DLQ%/",
    "%RETRY%", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer",
    "rmq_sys_roquet_set_aside", "名前", "\x1b[2J", "nowhere",
]  # fmt: skip

SET_ASIDE: Final = names.SET_ASIDE_TOPIC
REVIVE: Final = "rmq_sys_REVIVE_LOG_DefaultCluster"
LEVEL: Final = 1


def config() -> BrokerConfig:
    return BrokerConfig(
        host="127.0.0.1", port=0, vip_port=False, store_dir=Path("/memory"),
        log_file_size=1 << 23, queue_file_entries=2_000, index_slots=500, index_entries=20_000,
        default_queue_count=1, transaction_check_interval=5_000, transaction_check_max=2,
    )  # fmt: skip


def records(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    found: list[Record] = []
    offset, end = broker.log.store.bounds(topic, queue_id)
    while offset < end:
        piece = broker.log.store.read(topic, queue_id, offset, count_max=1_000, bytes_max=1 << 22)
        found += [record for part in piece.parts for record in decode_many(part)]
        offset = max(piece.next_offset, offset + 1)
    return found


def properties(found: dict[str, str]) -> bytes:
    """The text of properties, which need not pair well."""
    return "".join(f"{k}\x01{v}\x02" for k, v in found.items()).encode("utf-8", "surrogatepass")


class Service:
    """One service under attack: what is poison to it, and good messages beside that."""

    name: str
    keeps_good_ones_in = "orders"
    lasts_ms = 30_000

    def poisons(self, now_ms: int) -> Iterator[Draft]:
        raise NotImplementedError

    def put_good(self, broker: Broker, body: bytes) -> None:
        raise NotImplementedError

    def good_ones(self, broker: Broker) -> list[bytes]:
        found = (record.body for record in records(broker, self.keeps_good_ones_in))
        return [body for body in found if body.startswith(b"good")]


def timed(found: dict[str, str], body: bytes = b"poison") -> Draft:
    return Draft(names.TIMER_TOPIC, 0, body, properties(found))


class Timers(Service):
    name = "timer"

    def poisons(self, now_ms: int) -> Iterator[Draft]:
        out = str(now_ms // 1_000 * 1_000 + 3_000)
        yield from (Draft(names.TIMER_TOPIC, 0, b"poison", text) for text in TEXTS)
        yield from (timed({"TIMER_OUT_MS": one, "REAL_TOPIC": "nowhere"}) for one in NUMBERS)
        yield from (timed({"TIMER_OUT_MS": out, "REAL_TOPIC": topic}) for topic in TOPICS)
        for one in NUMBERS:
            yield timed({"TIMER_OUT_MS": out, "REAL_TOPIC": "nowhere", "REAL_QID": one})
            yield timed({"TIMER_OUT_MS": out, "REAL_TOPIC": "x/y", "TIMER_DELAY_MS": one})
            yield timed({"TIMER_OUT_MS": out, "REAL_TOPIC": "x/y", "TIMER_ROLL_TIMES": one})
            yield timed({"TIMER_OUT_MS": out, "REAL_TOPIC": "x/y", "TIMER_DEL_UNIQKEY": one})
        # Weeks back, and weeks ahead: another clock wrote it.
        for days in (25, 30, 400, 10_000):
            for sign in (-1, 1):
                at = max(int(out) + sign * days * 86_400_000, 1_000)
                yield timed({"TIMER_OUT_MS": str(at), "REAL_TOPIC": "x/y"})
        yield timed({"TIMER_OUT_MS": out, "REAL_TOPIC": "x/y"}, b"")
        yield timed({"TIMER_OUT_MS": out, "REAL_TOPIC": "x/y"}, b"x" * (4 << 20))
        yield Draft(
            names.TIMER_TOPIC, 0, b"poison",
            properties({"TIMER_OUT_MS": out, "REAL_TOPIC": "x/y"}),
            born_ms=-(2**63), reconsume_times=-(2**31), flag=-1, prepared_position=2**63 - 1,
        )  # fmt: skip

    def put_good(self, broker: Broker, body: bytes) -> None:
        out = broker.control.clock.now_ms() // 1_000 * 1_000 + 2_000
        broker.log.ingest.append_draft(
            timed({"TIMER_OUT_MS": str(out), "REAL_TOPIC": "orders", "REAL_QID": "0"}, body)
        )


def delayed(found: dict[str, str], due_ms: int, body: bytes = b"poison") -> Draft:
    return Draft(names.SCHEDULE_TOPIC, LEVEL - 1, body, properties(found), due_ms)


class Delays(Service):
    name = "delay"

    def poisons(self, now_ms: int) -> Iterator[Draft]:
        yield from (Draft(names.SCHEDULE_TOPIC, LEVEL - 1, b"p", text, now_ms) for text in TEXTS)
        yield from (delayed({"REAL_TOPIC": topic}, now_ms) for topic in TOPICS)
        for one in NUMBERS:
            yield delayed({"REAL_TOPIC": "nowhere", "REAL_QID": one, "DELAY": one}, now_ms)
        for due_ms in (-(2**63), -1, 0, 2**63 - 1, now_ms + 30 * 86_400_000, now_ms - 86_400_000):
            yield delayed({"REAL_TOPIC": "x/y"}, due_ms)
        yield delayed({"REAL_TOPIC": "x/y"}, now_ms, b"x" * (4 << 20))

    def put_good(self, broker: Broker, body: bytes) -> None:
        given = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        broker.log.ingest.append_draft(delayed(given, broker.control.clock.now_ms() + 1_000, body))


class HalfMessages(Service):
    """Those that nobody decides on end, after two checks, where operators find them."""

    name = "transactions"
    keeps_good_ones_in = names.CHECK_MAX_TIME_TOPIC
    lasts_ms = 60_000

    def poisons(self, now_ms: int) -> Iterator[Draft]:
        def half(found: dict[str, str], born_ms: int = now_ms) -> Draft:
            text = properties({"PGROUP": "g", "UNIQ_KEY": "u", "TRAN_MSG": "true", **found})
            return Draft(names.HALF_TOPIC, 0, b"poison", text, born_ms=born_ms)

        yield from (Draft(names.HALF_TOPIC, 0, b"poison", text, born_ms=now_ms) for text in TEXTS)
        yield from (half({"REAL_TOPIC": topic}) for topic in TOPICS)
        for one in NUMBERS:
            yield half({"REAL_TOPIC": "t", "REAL_QID": one})
            yield half({"REAL_TOPIC": "t", "TRANSACTION_CHECK_TIMES": one})
            yield half({"REAL_TOPIC": "t", "CHECK_IMMUNITY_TIME_IN_SECONDS": one})
            yield half({"REAL_TOPIC": "t", "TRAN_PREPARED_QUEUE_OFFSET": one})
        for born_ms in (-(2**63), 0, 2**63 - 1, now_ms + 30 * 86_400_000):
            yield half({"REAL_TOPIC": "t", "CHECK_IMMUNITY_TIME_IN_SECONDS": "5"}, born_ms)
        for body in (b"\xff", b"1," * 100_000, b"-1,", b"9" * 5_000, b"99999999999,", b""):
            yield Draft(names.OP_HALF_TOPIC, 0, body, b"TAGS\x01d\x02", 100)
        yield from (Draft(names.OP_HALF_TOPIC, 0, b"x", text, 100) for text in TEXTS)

    def put_good(self, broker: Broker, body: bytes) -> None:
        given = {"PGROUP": "g", "UNIQ_KEY": body.decode(), "REAL_TOPIC": "t", "TRAN_MSG": "true"}
        draft = Draft(
            names.HALF_TOPIC, 0, body, properties(given), born_ms=broker.control.clock.now_ms()
        )
        broker.log.ingest.append_draft(draft)


class Pops(Service):
    name = "revive"
    keeps_good_ones_in = names.pop_retry_topic("g", "orders")

    def poisons(self, now_ms: int) -> Iterator[Draft]:
        plain: dict[str, Any] = {
            "bm": 0, "c": "g", "it": 1_000, "n": 1, "pt": now_ms, "q": 0, "so": 0, "t": "none",
        }  # fmt: skip

        def note(body: bytes, tag: str = "ck") -> Draft:
            return Draft(REVIVE, 0, body, revive_properties(tag, now_ms), hash_code(tag))

        yield from (Draft(REVIVE, 0, b"{}", text, hash_code("ck")) for text in TEXTS)
        for body in (
            b"",
            b"{",
            b"[]",
            b"null",
            b"\xff",
            b"[" * 100_000,
            b'{"c":1}',
            b"x" * 100_000,
        ):
            yield note(body)
            yield note(body, "ack")
            yield note(body, "bAck")
        odd: list[Any] = [None, -1, 2**31, 2**63 - 1, 2**63, 10**30, "NaN", "", [], {}, 1.5]
        for name, value in product(plain, odd):
            yield note(json.dumps({**plain, name: value}).encode())
        ahead: list[tuple[str, Any]] = [
            ("so", 10**12),
            ("n", 4_096),
            ("d", [65_536]),
            ("pt", 2**62),
        ]
        for name, value in ahead:
            yield note(json.dumps({**plain, "t": "orders", name: value}).encode())
        yield note(json.dumps({**plain, "c": "../../x", "t": "orders"}).encode())

    def put_good(self, broker: Broker, body: bytes) -> None:
        broker.tables.groups.find("g", broker.control.clock.now_ms())
        appended = broker.log.ingest.append_draft(Draft("orders", 0, body, b""))
        now_ms = broker.control.clock.now_ms()
        broker.delivery.revive.give(
            PopCheckpoint(
                group="g", topic="orders", queue_id=0, start=appended.queue_offset, pop_ms=now_ms,
                invisible_ms=1_000, delivered=1, left=1, revive_queue_id=0, revive_offset=0,
            )
        )  # fmt: skip
        broker.tables.offsets.commit("g", "orders", 0, appended.queue_offset + 1)


class Index(Service):
    """What a message says of itself in keys and tags, in an ordinary topic."""

    name = "index"

    def poisons(self, now_ms: int) -> Iterator[Draft]:
        yield from (Draft("orders", 0, b"poison", text) for text in TEXTS)
        for one in (*NUMBERS, *TOPICS):
            yield Draft("orders", 0, b"poison", properties({"KEYS": one, "UNIQ_KEY": one}))

    def put_good(self, broker: Broker, body: bytes) -> None:
        broker.log.ingest.append_draft(
            Draft("orders", 0, body, properties({"UNIQ_KEY": body.decode()}))
        )

    def good_ones(self, broker: Broker) -> list[bytes]:
        found = []
        for body in (b"good %d" % number for number in range(400)):
            hits = broker.log.store.query("orders", body.decode()).records
            found += [record.body for raw in hits for record in decode_many(raw)]
        return found


SERVICES: Final[list[type[Service]]] = [Timers, Delays, HalfMessages, Pops, Index]


async def _attack(service: Service, random: Random, most: int) -> None:
    clock, files = this_loop().clock, MemoryFiles()
    async with BrokerServer(config(), clock, files=files) as server:
        broker = server.broker
        poisons = list(service.poisons(clock.now_ms()))
        random.shuffle(poisons)
        poisons = poisons[:most]
        good = _mix(service, broker, poisons, random)
        killed_early = files.copy()
        await clock.sleep(service.lasts_ms)
        assert sorted(set(service.good_ones(broker))) == sorted(good)
        kept = broker.delivery.set_aside.total
        assert kept == sum(broker.delivery.set_aside.counts.values())
        await _retry_all(broker, clock, service, good)
        late = files.copy()
    for copy in (killed_early, late):
        async with BrokerServer(config(), clock, files=copy) as server:
            before = server.broker.delivery.set_aside.total
            more = b"good 399"
            service.put_good(server.broker, more)
            await clock.sleep(service.lasts_ms)
            found = service.good_ones(server.broker)
            assert sorted(set(found)) == sorted([*good, more])
            assert server.broker.delivery.set_aside.total >= before
            assert copy is killed_early or before >= kept
            is_told = server.broker.delivery.set_aside.total > 0 or service.name == "index"
            # Half messages with any text end where operators find them.
            ended = records(server.broker, service.keeps_good_ones_in)
            is_told = is_told or any(record.body == b"poison" for record in ended)
            assert is_told or copy is late, "all poison was lost without a word"


def _mix(service: Service, broker: Broker, poisons: list[Draft], random: Random) -> list[bytes]:
    """Poison, with good messages before, between and behind."""
    good: list[bytes] = []

    def put_good() -> None:
        good.append(b"good %d" % len(good))
        service.put_good(broker, good[-1])

    put_good()
    for draft in poisons:
        broker.log.ingest.append_draft(draft)
        if random.random() < 0.3:
            put_good()
    put_good()
    return good


async def _retry_all(
    broker: Broker, clock: VirtualClock, service: Service, good: list[bytes]
) -> None:
    """All that was kept goes back, is set aside again or handled, and stops nothing."""
    for record in records(broker, SET_ASIDE)[:50]:
        with suppress(RecordError, MessageIllegal):
            broker.delivery.set_aside.retry(record)
    await clock.sleep(service.lasts_ms)
    assert sorted(set(service.good_ones(broker))) == sorted(good)


@pytest.mark.parametrize("kind", SERVICES, ids=lambda kind: kind.__name__)
def test_good_messages_come_through_and_poison_is_kept(
    kind: type[Service], depth: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for seed in range(3 if depth == "short" else 30):
        run(_attack(kind(), Random(seed), 200 if depth == "short" else 10_000), seed=seed)


def test_each_poison_alone_stops_nothing(depth: str, caplog: pytest.LogCaptureFixture) -> None:
    """One at a time, so that none hides behind another."""
    caplog.set_level(logging.CRITICAL)

    async def scene(kind: type[Service]) -> None:
        clock = this_loop().clock
        service = kind()
        async with BrokerServer(config(), clock, files=MemoryFiles()) as server:
            poisons = list(service.poisons(clock.now_ms()))
            step = 7 if depth == "short" else 1
            good: list[bytes] = []
            for draft in poisons[::step]:
                server.broker.log.ingest.append_draft(draft)
                good.append(b"good %d" % len(good))
                service.put_good(server.broker, good[-1])
                await clock.sleep(3_000)
            await clock.sleep(service.lasts_ms)
            assert sorted(set(service.good_ones(server.broker))) == sorted(good)

    for kind in SERVICES:
        run(scene(kind))


def test_set_aside_messages_name_their_service() -> None:
    async def scene() -> None:
        clock = this_loop().clock
        async with BrokerServer(config(), clock, files=MemoryFiles()) as server:
            for kind in SERVICES:
                service = kind()
                for draft in service.poisons(clock.now_ms()):
                    server.broker.log.ingest.append_draft(draft)
            await clock.sleep(120_000)
            found = server.broker.delivery.set_aside.counts
            assert {"timer", "delay"} <= found.keys()
            assert server.broker.delivery.set_aside.total == sum(found.values())

    run(scene())
