"""Every kind of file of a data directory damaged in every way, and a broker started on it.

It has everything that the log holds, at the offsets that it had, or says in one line why it does
not start. A table of all cases is printed (`pytest -s`).
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.settings.config import BrokerConfig
from roquet.model import names
from roquet.model.errors import StoreError
from roquet.model.flags import SysFlag
from roquet.store.store import Store
from roquet.wire.calls.bodies import RequestMode
from roquet.wire.calls.send import Send
from roquet.wire.records.record import decode_many, encode_properties

pytestmark = pytest.mark.attack

COUNT: Final = 460
TOPICS: Final = ("orders", "other")
CUT: Final = {("commitlog/" + "0" * 20, "missing")}
"""A log without its first file begins later: see tests/store/consume_queue/test_queue_check.py."""

NOBODY: Final = 65534
"""A user that is not root: root may read and write everything."""


class Peer:
    """A connection without a socket."""

    language = version = 0
    address = "10.0.0.7:5000"
    host_bytes = b"\x0a\x00\x00\x07\x00\x00\x13\x88"


def config_of(directory: Path) -> BrokerConfig:
    return BrokerConfig(
        host="127.0.0.1", port=0, store_dir=directory, broker_name="b", log_file_size=1 << 16,
        queue_file_entries=100, index_slots=50, index_entries=300, retention=30 * 86_400_000,
    )  # fmt: skip


async def put(
    broker: Broker, topic: str, body: bytes, sys_flag: int = 0, **properties: str
) -> None:
    call = Send(
        producer_group="pg", topic=topic, queue_id=0, born_timestamp=1, body=body,
        sys_flag=sys_flag,
        properties=encode_properties(properties).decode(),
    )  # fmt: skip
    peer: Any = Peer()
    answer: Any = broker.bind(SendHandler.send)(call, peer)
    reply = await answer if hasattr(answer, "__await__") else answer
    assert reply.code == 0, reply


async def fill(directory: Path) -> None:
    """A directory in which everything was used, twice: there are editions before the last one."""
    for turn in range(2):
        async with BrokerServer(config_of(directory)) as server:
            broker = server.broker
            for n in range(turn * COUNT // 2, (turn + 1) * COUNT // 2):
                for topic in TOPICS:
                    body = f"{topic} {n}".encode().ljust(150, b".")
                    await put(broker, topic, body, KEYS=f"{topic}-{n}", TAGS="red")
            await put(broker, "orders-timed", b"later", TIMER_DELAY_SEC="86400")
            await put(broker, "orders-delayed", b"later", DELAY="18")
            half = int(SysFlag.TRANSACTION_PREPARED)
            await put(broker, "orders-half", b"half", half, TRAN_MSG="true", PGROUP="pg")
            await put(broker, "gone", b"gone")
            broker.make(TopicDeletion).delete(["gone"])
            broker.tables.offsets.commit("billing", "orders", 0, 200 + turn)
            broker.tables.delay_offsets.advance(3, turn + 1)
            broker.tables.groups.find("billing", 1)
            broker.tables.request_modes.put(
                RequestMode(topic="orders", consumer_group=f"g{turn}", mode="POP")
            )
            for _ in range(200):  # until what waits is on the wheel
                if broker.delivery.timer.context.timers.offset > turn:
                    break
                await asyncio.sleep(0.05)
            while broker.log.store.dispatch():
                pass


def garbage(path: Path, share: float) -> None:
    data, random = bytearray(path.read_bytes()), Random(7)
    size = max(1, len(data) // 4)
    at = int(share * max(0, len(data) - size))
    data[at : at + size] = random.randbytes(size)
    path.write_bytes(data)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "mine").write_text("mine")


def foreign(path: Path) -> None:
    """The content of the neighbour, cut or filled to the size of the file."""
    others = sorted(p for p in path.parent.rglob("*") if p.is_file() and p != path)
    others += sorted(p for p in path.parent.parent.rglob("*") if p.is_file() and p != path)
    size = path.stat().st_size
    path.write_bytes((others[0].read_bytes() if others else b"foreign")[:size].ljust(size, b"\0"))


def give_to_root(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, 0, 0)
    path.chmod(0o600 if os.geteuid() == 0 else 0)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no bytes": lambda p: os.truncate(p, 0),
    "half": lambda p: os.truncate(p, p.stat().st_size // 2),
    "zeros": lambda p: p.write_bytes(bytes(p.stat().st_size)),
    "garbage head": lambda p: garbage(p, 0),
    "garbage middle": lambda p: garbage(p, 0.5),
    "garbage tail": lambda p: garbage(p, 1),
    "missing": lambda p: p.unlink(),
    "foreign": foreign,
    "read-only": lambda p: p.chmod(0o444),
    "other owner": give_to_root,
    "a directory": replace_by_directory,
}


def bodies(store: Store, topic: str, queue_id: int = 0) -> dict[int, bytes]:
    offset, end = store.bounds(topic, queue_id)
    found: dict[int, bytes] = {}
    while offset < end:
        part = store.read(topic, queue_id, offset)
        records = [record for piece in part.parts for record in decode_many(piece)]
        assert all(record.topic == topic for record in records)
        found |= {record.queue_offset: record.body for record in records}
        offset = part.next_offset
    return found


async def judge(broker: Broker, name: str) -> str:
    """A few words on a broker that has started; AssertionError for what must not be."""
    store, said = broker.log.store, list[str]()
    while store.scrub(1 << 20):
        pass
    for topic in TOPICS:
        said += await judge_topic(broker, topic, name)
    said += await judge_waiting(broker, name)
    progress = broker.tables.offsets.get("billing", "orders", 0)
    assert progress in (200, 201), f"progress is {progress}"
    if progress == 200:
        said.append("the edition before")
    while store.dispatch():
        pass
    lost = sum(not store.query("orders", f"orders-{n}").records for n in range(COUNT))
    if lost:
        assert name.startswith(("index", "commitlog")), f"{lost} keys are lost"
        said.append(f"{lost} keys lost")
    assert store.bounds("gone", 0) == (0, 0)
    return ", ".join(said) or "whole"


async def judge_waiting(broker: Broker, name: str) -> list[str]:
    """Messages that wait: two that are timed, two that are delayed, two halves of transactions."""
    for _ in range(400):  # what is made again is read from the log first
        if not broker.delivery.timer.behind:
            break
        await asyncio.sleep(0.05)
    timers, timed = broker.delivery.timer.context.timers, 0
    for at in range(86_000_000, 86_402_000, 1_000):
        slot = timers.slot(broker.control.clock.now_ms() + at)
        unit = timers.unit(slot.last) if slot else None
        while unit is not None:
            timed += broker.log.store.message_at(unit.position) is not None
            unit = timers.unit(unit.before)
    waiting = {
        "timed": timed,
        "delayed": len(bodies(broker.log.store, names.SCHEDULE_TOPIC, 17)),
        "half": len(bodies(broker.log.store, names.HALF_TOPIC)),
    }
    if name.startswith("commitlog"):  # what is lost is told with the other messages
        return [f"{kind}: {2 - count} lost" for kind, count in waiting.items() if count < 2]
    assert waiting == {"timed": 2, "delayed": 2, "half": 2}, waiting
    return []


async def judge_topic(broker: Broker, topic: str, name: str) -> list[str]:
    store, said = broker.log.store, list[str]()
    assert store.bounds(topic, 0) == (0, COUNT), (topic, store.bounds(topic, 0))
    found = bodies(store, topic)
    lost = COUNT - len(found)
    told = sum(x.stop - x.first for d in store.damage for x in d.lost if x.topic == topic)
    assert lost == 0 or name.startswith("commitlog"), f"{lost} messages of {topic} are lost"
    assert lost <= told, f"{lost} messages lost, {told} told of"
    if lost:
        said.append(f"{lost} lost and told")
    for offset, body in found.items():
        assert body.startswith(f"{topic} {offset}".encode())
    if broker.tables.topics.get(topic) is None:
        return [*said, "topic without settings"]
    await put(broker, topic, b"next")
    assert store.bounds(topic, 0)[1] == COUNT + 1
    return said


async def outcome(directory: Path, name: str) -> str:
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        async with BrokerServer(config_of(directory)) as server:
            return await judge(server.broker, name)
    except StoreError as error:
        said = str(error).replace(str(directory), "")
        is_named = any(part in said for part in (Path(name).name, Path(name).parent.name))
        return f"refused: {said}" if is_named and "\n" not in said else f"FAILED: {said}"
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others than root can come to."""
    path = Path(tempfile.mkdtemp(prefix="roquet-damage-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def give_away(directory: Path) -> None:
    if os.geteuid() == 0:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, NOBODY, NOBODY)


def cases(names: list[str], depth: str) -> Iterator[tuple[str, str]]:
    """Each kind with each damage, or in turn with a few of them."""
    damages = list(DAMAGE)
    for number, name in enumerate(names):
        few = [damages[(number + step * 4) % len(damages)] for step in range(2)]
        for what in damages if depth == "full" else few:
            if (name, what) not in CUT:
                yield name, what


@pytest.mark.timeout(1200)
async def test_a_broker_starts_with_all_that_the_log_holds_or_says_why_not(
    place: Path, depth: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    await fill(place / "whole")
    found = sorted(
        str(path.relative_to(place / "whole"))
        for path in (place / "whole").rglob("*")
        if path.is_file()
    )
    kinds_of_queue = ("/o", "timer", "SCHEDULE", "TRANS")
    found = [n for n in found if n[:5] != "consu" or any(kind in n for kind in kinds_of_queue)]
    assert len(found) > 30, found
    lines, failed, kinds = list[str](), list[str](), Counter[str]()
    for name, what in cases(found, depth):
        directory = place / "damaged"
        shutil.copytree(place / "whole", directory)
        give_away(directory)
        DAMAGE[what](directory / name)
        try:
            said = await outcome(directory, name)
        except Exception as error:
            said = f"FAILED: {type(error).__name__}: {str(error)[:120]}"
        if said.startswith("FAILED"):
            failed.append(f"{name}, {what}: {said}")
        kinds[said.partition(":")[0].partition(" ")[0]] += 1
        lines.append(f"{name:55} {what:15} {said}")
        sys.stdout.write(lines[-1] + "\n")
        shutil.rmtree(directory)
    sys.stdout.write(f"{len(found)} files, {len(lines)} cases: {dict(kinds)}\n")
    assert not failed, "\n".join(failed)
