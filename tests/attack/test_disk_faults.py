"""Every disk call of a broker's day fails once, or for good; then the power goes.

    start ─▶ a scripted day ─▶ close or kill ─┬─▶ loss of power ────────────────────┬─▶ check
             call n of one kind fails         └─▶ restart, more sends, loss of power ┘

What was acknowledged is there, what was refused for sure is not, offsets are dense, and a second
recovery changes nothing. The disk keeps what was synced; a failed sync drops what it was to write,
as Linux does: it looks written, and the next sync succeeds.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import msgspec
import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.store_settings import store_config
from roquet.model.errors import CallError, StoreError
from roquet.model.flags import SysFlag
from roquet.model.topic import SubscriptionGroup
from roquet.net.channel import Channel
from roquet.rules.retention import DiskUsage
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.libc import DiskSync
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.store.timer.timers import TimerConfig, TimerStore
from roquet.testing.clock import run, this_loop
from roquet.wire.call import Call
from roquet.wire.calls.admin.offset_reset import ResetOffset
from roquet.wire.calls.admin.settings import DeleteExpired
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic, DeleteTopic
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import Record, decode_many

pytestmark = pytest.mark.attack

Ending = Literal["closed", "killed", "restarted"]

PAGE: Final = 512
"""What the simulated disk writes wholly or not at all."""

DATA: Final = Path("/data")

SHORT_FAULTS: Final = 90
"""Faults of all kinds together, in the short form."""

FULL_FAULTS_EACH: Final = 500
"""Faults of each kind, evenly spread, in the full form; where a day has fewer, all of them."""

COLUMNS: Final = ("faults", "no start", "refuses", "goes on", "yes", "no", "unknown")
"""Rounds whose call failed; of those: no start, a store that refuses to go on, one that does; and
the answers of those days."""


class Fault(msgspec.Struct, frozen=True):
    """The n-th call of a kind fails; with `is_lasting` all later ones of that kind as well."""

    call: str
    number: int
    error: int = errno.EIO
    is_lasting: bool = False


class Disk(MemoryFiles):
    """Files on a disk that fails as it is told to, and keeps only what was synced."""

    def __init__(self, fault: Fault | None = None, *, has_syncfs: bool = False) -> None:
        super().__init__()
        self.fault = fault
        self.has_syncfs = has_syncfs
        self.calls: Counter[str] = Counter()
        self.hit: Path | None = None
        self.platter: dict[Path, bytearray] = {}
        """What the disk holds of each file."""
        self.clean: dict[Path, bytes] = {}
        """What the system believes to be on the disk."""
        self.rewritten: dict[Path, set[int]] = {}
        """Pages that were written with what they held."""
        self.kept: set[Path] = set()
        """Names that are on the disk."""
        self.doomed: set[Path] = set()
        """Names whose sync failed: this process cannot make them durable any more."""
        self.made: set[Path] = set()
        """Directories."""
        self.ghosts: dict[Path, bytes] = {}
        """Removed files that a loss of power may bring back."""

    def call(self, name: str, path: Path) -> None:
        """Count a call below the data directory, and fail if it is the one."""
        self.calls[name] += 1
        fault, count = self.fault, self.calls[name]
        if fault is None or fault.call != name or count < fault.number:
            return
        if count == fault.number or fault.is_lasting:
            self.hit = self.hit or path
            raise OSError(fault.error, os.strerror(fault.error), str(path))

    @contextmanager
    def refusing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise store_error(path, error) from error

    def directories(self) -> set[Path]:
        return self.made | {parent for path in list(self.contents) for parent in path.parents}

    def create(self, path: Path, size: int) -> None:
        with self.refusing(path):
            if path not in self.contents:
                self.call("open", path)
                self.contents[path] = b""
                self._is_new(path)
            if len(self.contents[path]) < size:
                self.call("ftruncate", path)
                super().create(path, size)

    def _is_new(self, path: Path) -> None:
        self.made.update(path.parents)
        if path in self.kept:
            self.ghosts[path] = bytes(self.platter.get(path, b""))
        self.kept.discard(path)
        self.platter[path] = bytearray()
        self.clean[path] = b""
        self.rewritten.pop(path, None)
        self.doomed.discard(path)

    def allocate(self, path: Path, start: int, size: int) -> None:
        with self.refusing(path):
            self.call("fallocate", path)
        super().allocate(path, start, size)

    def map(self, path: Path, size: int, *, writable: bool = True) -> memoryview:
        with self.refusing(path):
            if path not in self.contents:
                raise FileNotFoundError(errno.ENOENT, "gone", str(path))
            self.call("mmap", path)
        return super().map(path, size, writable=writable)

    def write(self, path: Path, start: int, data: bytes | memoryview) -> None:
        if path in self.contents:
            self.call("write", path)
        super().write(path, start, data)
        pages = range(start // PAGE, -(-(start + len(data)) // PAGE))
        self.rewritten.setdefault(path, set()).update(pages)

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        if path in self.contents:
            try:
                self.call("fdatasync", path)
            except OSError:
                self._drop(path)
                raise
            self._keep(path)
            return
        if path not in self.directories():
            raise FileNotFoundError(errno.ENOENT, "gone", str(path))
        try:
            self.call("fsync", path)
        except OSError:
            self.doomed |= {p for p in self._children(path) if p not in self.kept}
            raise
        self._keep_names(path)

    def _children(self, path: Path) -> set[Path]:
        return {p for p in [*self.contents, *self.directories()] if p.parent == path}

    def _keep_names(self, path: Path) -> None:
        self.kept |= self._children(path) - self.doomed
        left = self.ghosts.items()
        self.ghosts = {p: d for p, d in left if p.parent != path or p in self.doomed}

    def _drop(self, path: Path) -> None:
        """The system forgets that these pages are to be written."""
        self.clean[path] = bytes(self.contents[path])
        self.rewritten.pop(path, None)

    def _keep(self, path: Path) -> None:
        now, clean = bytes(self.contents[path]), self.clean.get(path, b"")
        platter = self.platter.setdefault(path, bytearray())
        platter.extend(bytes(len(now) - len(platter)))
        pages = self.rewritten.pop(path, set())
        for at in range(0, len(now), PAGE):
            if now[at : at + PAGE] != clean[at : at + PAGE] or at // PAGE in pages:
                platter[at : at + PAGE] = now[at : at + PAGE]
        self.clean[path] = now

    def disk_sync(self, directory: Path) -> DiskSync | None:
        if not self.has_syncfs:
            return None
        whole = object.__new__(_Whole)
        whole.disk = self
        return whole

    def sync_all(self) -> bool:
        try:
            self.call("syncfs", DATA)
        except OSError:
            return False
        for path in list(self.contents):
            self._keep(path)
        for path in self.directories():
            self._keep_names(path)
        return True

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        with self.refusing(path):
            if path.parent not in (known := self.directories()):
                self.made.add(path.parent)
                if path.parent.parent in known:
                    self.sync(path.parent.parent)
            self._write_anew(path)
            if keep and path in self.contents:
                self._write_anew(path)
                self.call("rename", path)
                self._rename(path.with_name(path.name + ".bak"), bytes(self.contents[path]))
            self.call("rename", path)
            self._rename(path, data)
            self.sync(path.parent)

    def _write_anew(self, path: Path) -> None:
        for name in ("open", "write", "fdatasync"):
            self.call(name, path)

    def _rename(self, path: Path, data: bytes) -> None:
        """The new content shows at once; it is sure after a sync of the directory."""
        self._is_new(path)
        self.contents[path] = data
        self.platter[path], self.clean[path] = bytearray(data), data

    def remove(self, path: Path) -> None:
        with self.refusing(path):
            self.made = {p for p in self.made if p != path and path not in p.parents}
            for gone in sorted(p for p in self.contents if p == path or path in p.parents):
                self.call("unlink", gone)
                if gone in self.kept:
                    self.ghosts[gone] = bytes(self.platter.get(gone, b""))
                    self.kept.discard(gone)
                for table in (self.contents, self.blocks, self.platter, self.clean):
                    table.pop(gone, None)

    def move(self, path: Path, target: Path) -> None:
        with self.refusing(path):
            self.call("rename", path)
        for gone in sorted(p for p in self.contents if path in p.parents):
            name = target / gone.relative_to(path)
            if gone in self.kept:
                self.ghosts[gone] = bytes(self.platter.get(gone, b""))
                self.kept.discard(gone)
            tables: list[Any] = [self.contents, self.blocks, self.platter, self.clean]
            for table in tables:
                if gone in table:
                    table[name] = table.pop(gone)
            self.made.update(name.parents)

    def usage(self, _directory: Path) -> DiskUsage:
        return DiskUsage(1 << 40, 1 << 39)

    def end_process(self) -> None:
        """Another process comes: the system shows it all that was written, kept or not."""
        self.fault = None
        self._held.clear()
        self.doomed.clear()

    def after_power_loss(self, rng: Random) -> "Disk":
        """What the disk holds: what was synced, and some of what was only written."""
        left = Disk(has_syncfs=self.has_syncfs)
        lost = self._lost_names(rng)
        for path, content in self.contents.items():
            if path in lost:
                continue
            old = self.ghosts.get(path)
            if old is not None and (path in self.doomed or rng.random() < 0.5):
                left.put(path, old, is_small=isinstance(content, bytes))
            elif isinstance(content, bytes):
                left.put(path, content, is_small=True)
            else:
                left.put(path, self._surviving(path, rng))
                left.blocks[path] = self.blocks.get(path, 0)
        for path, data in self.ghosts.items():
            if path not in self.contents and rng.random() < 0.5:
                left.put(path, data, is_small=path.name.endswith((".json", "abort")))
        for path, kept in left.contents.items():
            left.platter[path], left.clean[path] = bytearray(kept), bytes(kept)
        left.made = {p for p in self.made if p in self.kept}
        left.made |= left.directories()
        left.kept = {*left.contents, *left.directories()}
        return left

    def _lost_names(self, rng: Random) -> set[Path]:
        """File systems keep the order of names: what comes after a lost one is lost as well."""
        lost, has_lost_names = set[Path](), False
        for path in self.contents:
            if any(p not in self.kept for p in (path, *path.parents) if len(p.parts) > 2):
                has_lost_names = has_lost_names or path in self.doomed or rng.random() < 0.3
                if has_lost_names and path not in self.ghosts:
                    lost.add(path)
        return lost

    def put(self, path: Path, data: bytes, *, is_small: bool = False) -> None:
        """A file as it is found."""
        if is_small or not data:
            self.contents[path] = data
            return
        MemoryFiles.create(self, path, len(data))
        self.blocks[path] = len(data)
        MemoryFiles.map(self, path, len(data))[:] = data

    def _surviving(self, path: Path, rng: Random) -> bytes:
        """What was synced; of pages that are still to be written some got there by themselves."""
        now, clean = bytes(self.contents[path]), self.clean.get(path, b"")
        left, share = bytearray(self.platter.get(path, b"")), rng.choice((0.0, 0.0, 0.5, 1.0))
        left.extend(bytes(len(now) - len(left)))
        for at in range(0, len(now), PAGE):
            if now[at : at + PAGE] != clean[at : at + PAGE] and rng.random() < share:
                left[at : at + PAGE] = now[at : at + PAGE]
        return bytes(left)


class _Whole(DiskSync):
    """All of a simulated disk."""

    disk: Disk

    def sync(self) -> bool:
        return self.disk.sync_all()

    def close(self) -> None:
        """There is no descriptor."""


# -- the day ---------------------------------------------------------------------------------


class MessageLocation(msgspec.Struct, frozen=True):
    """Where the broker said that a message was stored."""

    topic: str
    queue_id: int
    offset: int
    position: int


class History:
    """What was asked of a broker, and what it answered."""

    def __init__(self) -> None:
        self.stored: dict[bytes, MessageLocation] = {}
        """Acknowledged: the message is at its place."""
        self.held: set[bytes] = set()
        """Acknowledged: the message waits somewhere, or is where it was sent to."""
        self.refused: set[bytes] = set()
        """Certainly not stored."""
        self.deleted: set[bytes] = set()
        """Of a topic whose deletion was acknowledged."""
        self.doubtful: set[str] = set()
        """Topics whose deletion was asked for, and nobody knows."""
        self.topics: set[str] = set()
        self.groups: set[str] = set()
        self.progress: dict[int, int | None] = {}
        """Queue id to offset: what an operator set."""
        self.begin = 0
        """The log began there when it was last looked at."""
        self.answers: Counter[str] = Counter()
        self.has_sure_keys = True
        """Whether keys must be found."""


Where = Literal["place", "waits"]


class Client:
    """Asks, and notes the answers."""

    def __init__(self, channel: Channel, history: History) -> None:
        self._channel = channel
        self.history = history

    async def ask(self, call: Call[Any]) -> tuple[str, Any]:
        """Yes, no or unknown; and the reply to a yes."""
        try:
            reply = await self._channel.call(call, timeout_ms=20_000)
        except CallError as error:
            answer, reply = "no" if error.definite else "unknown", None
        else:
            answer = "yes" if reply.code == ResponseCode.SUCCESS else "unknown"
        self.history.answers[answer] += 1
        return answer, reply

    async def send(
        self, topic: str, queue_id: int, *bodies: bytes, where: Where = "place", **more: Any
    ) -> SendReply | None:
        """One message, or a batch of them."""
        is_batch = len(bodies) > 1
        text = "".join(f"{name}\x01{value}\x02" for name, value in more.pop("text", {}).items())
        call = (SendBatch if is_batch else Send)(
            batch=is_batch,
            producer_group="attack",
            topic=topic,
            queue_id=queue_id,
            born_timestamp=1,
            properties=f"{text}UNIQ_KEY\x01{bodies[0][:16].decode()}\x02WAIT\x01true\x02",
            body=encode_batch([BatchItem(0, b, b"") for b in bodies]) if is_batch else bodies[0],
            **more,
        )
        answer, found = await self.ask(call)
        reply: SendReply | None = found
        history = self.history
        if answer == "no":
            history.refused.update(bodies)
        elif answer == "yes" and where == "waits":
            history.held.update(bodies)
        elif answer == "yes" and reply is not None:
            for step, (body, own_id) in enumerate(
                zip(bodies, reply.msg_id.split(","), strict=True)
            ):
                position = parse_offset_message_id(own_id)[1]
                place = MessageLocation(topic, reply.queue_id, reply.queue_offset + step, position)
                history.stored[body] = place
        return reply

    async def create(self, topic: str, count: int) -> None:
        """A topic."""
        call = CreateTopic(topic=topic, read_queue_nums=count, write_queue_nums=count, perm=6)
        if (await self.ask(call))[0] == "yes":
            self.history.topics.add(topic)
            self.history.doubtful.discard(topic)

    async def delete(self, topic: str) -> None:
        """A topic, with its messages."""
        history = self.history
        history.topics.discard(topic)
        answer, _ = await self.ask(DeleteTopic(topic=topic))
        gone = {body for body, place in history.stored.items() if place.topic == topic}
        if answer == "yes":
            history.deleted |= gone
        else:
            history.doubtful.add(topic)
        for body in gone:
            del history.stored[body]


def body(name: str, size: int = 300) -> bytes:
    """A body that says which it is."""
    return name.encode().ljust(size, b".")


async def morning(client: Client, broker: Broker) -> None:
    """Topics, groups, messages one by one and in batches, delays, timers, transactions."""
    await client.create("T", 3)
    await client.create("U", 1)
    group = codec.dumps(SubscriptionGroup(group_name="G"))
    if (await client.ask(CreateGroup(body=group)))[0] == "yes":
        client.history.groups.add("G")
    for n in range(8):
        await client.send("T", n % 2, body(f"one-{n}"), text={"KEYS": f"k{n}"})
    await client.send("T", 2, *(body(f"batch-{n}", 150) for n in range(7)))
    await client.send("T", 2, *(body(f"large-{n}", 1_800) for n in range(12)))
    await waiting(client, broker)
    client.history.held.clear()  # retention may take them
    for n in range(3):
        await client.send("U", 0, body(f"old-{n}"))
    await client.ask(UpdateOffset(consumer_group="G", topic="T", queue_id=0, commit_offset=2))
    reset = ResetOffset(group="G", topic="T", timestamp=0, is_force=True, queue_id=1, offset=1)
    if (await client.ask(reset))[0] == "yes":
        client.history.progress[1] = broker.tables.offsets.get("G", "T", 1)


async def waiting(client: Client, broker: Broker) -> None:
    """Delays, delivery times and transactions."""
    now_ms = broker.control.clock.now_ms()
    for n in range(2):
        await client.send("T", 0, body(f"delay-{n}-{now_ms}"), where="waits", text={"DELAY": "1"})
        timer = {"TIMER_DELIVER_MS": str(now_ms + 2_500 + n)}
        await client.send("T", 1, body(f"timer-{n}-{now_ms}"), where="waits", text=timer)
    for n in range(2):
        await transaction(client, n, body(f"half-{n}-{now_ms}"))


async def transaction(client: Client, number: int, one: bytes) -> None:
    """A half message that is committed, or rolled back."""
    half = await client.send(
        "T", 2, one, where="waits",
        text={"TRAN_MSG": "true", "PGROUP": "attack"},
        sys_flag=int(SysFlag.TRANSACTION_PREPARED),
    )  # fmt: skip
    if half is None:
        return
    if number == 1:
        client.history.held.discard(one)
    call = EndTransaction(
        producer_group="attack",
        half_offset=half.queue_offset,
        position=parse_offset_message_id(half.msg_id)[1],
        commit_or_rollback=8 if number == 0 else 12,
    )
    await client.ask(call)


async def evening(client: Client, broker: Broker) -> None:
    """What comes after a checkpoint: a topic made anew, retention, more messages."""
    await client.delete("U")
    await client.create("U", 1)
    for n in range(3):
        await client.send("U", 0, body(f"new-{n}"))
    for n in range(6):
        await client.send("T", n % 3, body(f"two-{n}", 900), text={"KEYS": f"k{n}"})
    await client.ask(DeleteExpired())
    client.history.begin = broker.log.store.begin_position
    await waiting(client, broker)
    for n in range(4):
        await client.send("T", n % 3, body(f"three-{n}"))


async def after(client: Client) -> None:
    """What a process sees that comes after one whose disk failed."""
    for n in range(4):
        await client.send("T", n % 3, body(f"after-{n}"))


# -- a round ---------------------------------------------------------------------------------


SETTINGS: Final[dict[str, Any]] = {
    "host": "127.0.0.1",
    "port": 0,
    "store_dir": DATA,
    "advertise": "10.0.0.1",
    "sync_flush": True,
    "log_file_size": 32 * 1024,
    "queue_file_entries": 25,
    "index_slots": 20,
    "index_entries": 60,
    "retention": 1_000,
    "save_interval": 1_000,
    "message_delay_levels": (1_000, 5_000),
    "server_side_reset": True,
}

SMALL_TIMERS: Final = TimerConfig(wheel_slots=3_600, log_file_size=4096, log_step=4096)


def config(*, is_sync: bool) -> BrokerConfig:
    """A broker with files so small that a day needs several of each."""
    return BrokerConfig(**{**SETTINGS, "sync_flush": is_sync})


class Round(msgspec.Struct, frozen=True):
    """One day with one fault."""

    fault: Fault | None
    ending: Ending
    seed: int = 0
    has_syncfs: bool = False


class Outcome(msgspec.Struct):
    """What came of a round."""

    is_hit: bool
    has_started: bool
    is_failed: bool
    """Whether the store takes nothing more."""
    answers: Counter[str]
    calls: Counter[str]


async def work(disk: Disk, history: History, *, parts: Sequence[Any], ends: bool) -> bool:
    """A broker's life; whether its store refused to go on at the end."""
    clock = this_loop().clock
    server = BrokerServer(config(is_sync=True), clock, files=disk, rng=Random(1))
    await server.__aenter__()
    channel = await Channel.connect("127.0.0.1", server.port, clock=clock)
    client = Client(channel, history)
    for part in parts:
        await part(client, server.broker) if part is not after else await after(client)
        await clock.sleep(6_500)
    is_failed = server.broker.log.store.failure is not None
    await channel.close()
    if ends:
        await server.__aexit__(None, None, None)
    return is_failed


def live(round_: Round) -> tuple[Disk, History, Outcome]:
    """The day, its end, and what the disk holds after the power was lost."""
    disk, history = Disk(round_.fault, has_syncfs=round_.has_syncfs), History()
    outcome = Outcome(False, True, False, history.answers, disk.calls)
    try:
        day = work(disk, history, parts=(morning, evening), ends=round_.ending == "closed")
        outcome.is_failed = run(day, seed=round_.seed)
    except StoreError:  # a start, or a stop, that says why: never a bare OSError
        outcome.has_started = bool(history.answers)
    outcome.is_hit = disk.hit is not None
    outcome.calls = Counter(disk.calls)
    disk.end_process()
    if round_.ending == "restarted":
        # The next process writes entries of the index again, through a map and as they were: this
        # disk does not see that, a real one does.
        history.has_sure_keys = disk.hit is None or "index" not in disk.hit.parts
        run(work(disk, history, parts=(after,), ends=False), seed=round_.seed)
        disk.end_process()
    return disk.after_power_loss(Random(round_.seed)), history, outcome


def judge(disk: Disk, history: History) -> None:
    """Every promise, after a loss of power."""
    recovering_twice_changes_nothing(disk)
    run(look(disk, history))


def recovering_twice_changes_nothing(disk: Disk) -> None:
    settings = store_config(config(is_sync=True))
    first = disk.after_power_loss(Random(0))
    Store.open(DATA, settings, files=first, now_ms=1)
    first.end_process()
    once = snapshot(first)
    Store.open(DATA, settings, files=first, now_ms=1)
    assert snapshot(first) == once, "a second recovery changes something"


def snapshot(disk: Disk) -> dict[Path, bytes]:
    """Every file but the index, which may thread its slots otherwise: keys are looked for below."""
    found = disk.contents.items()
    return {path: bytes(content) for path, content in found if "index" not in path.parts}


async def look(disk: Disk, history: History) -> None:
    """Let what waits be delivered, then read everything."""
    clock = this_loop().clock
    clock.jump(3_600_000)
    server = BrokerServer(config(is_sync=True), clock, files=disk, rng=Random(2))
    async with server:
        await clock.sleep(4_000)
        broker = server.broker
        assert broker.log.store.failure is None
        missing = history.topics - {topic.topic_name for topic in broker.tables.topics}
        assert not missing, f"topics that were created are not there: {missing}"
        assert all(broker.tables.groups.get(group) for group in history.groups)
        for queue_id, offset in history.progress.items():
            assert broker.tables.offsets.get("G", "T", queue_id) == offset, (
                "what an operator set is lost"
            )
        compare(read_all(broker.log.store), history, broker.log.store.begin_position)
        begin = broker.log.store.begin_position
        for one, place in history.stored.items() if history.has_sure_keys else ():
            if one.startswith((b"one-", b"two-")) and place.position >= begin:
                found = broker.log.store.query("T", f"k{one[4:5].decode()}").positions
                assert place.position in found, f"{one[:12]!r} is not found by its key"


def read_all(store: Store) -> dict[tuple[str, int], dict[int, Record]]:
    """Records by offset of every queue; offsets are dense, and every entry leads to its record."""
    found: dict[tuple[str, int], dict[int, Record]] = {}
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            records = found[topic, queue_id] = dict[int, Record]()
            offset, end = store.bounds(topic, queue_id)
            while offset < end:
                piece = store.read(topic, queue_id, offset, count_max=100, bytes_max=1 << 20)
                for part in piece.parts:
                    for record in decode_many(part):
                        assert (record.topic, record.queue_id) == (topic, queue_id)
                        records[record.queue_offset] = record
                offset = max(piece.next_offset, offset + 1)
            least = store.bounds(topic, queue_id)[0]
            assert sorted(records) == list(range(least, end)), f"{topic}/{queue_id}: a gap"
    return found


def compare(found: dict[tuple[str, int], dict[int, Record]], history: History, begin: int) -> None:
    """What was answered, beside what there is."""
    bodies = Counter(r.body for records in found.values() for r in records.values())
    for one, place in history.stored.items():
        if place.topic in history.doubtful or place.position < min(begin, history.begin):
            continue
        record = found.get((place.topic, place.queue_id), {}).get(place.offset)
        assert record is not None, f"{one[:12]!r} was acknowledged and is lost: {place}"
        assert record.body == one, f"{place} has {record.body[:12]!r} in place of {one[:12]!r}"
    for one in history.held:
        assert bodies[one], f"{one[:12]!r} was acknowledged, waited, and is lost"
    for one in history.refused:
        assert not bodies[one], f"{one[:12]!r} was refused for sure, and is there"
    if "U" not in history.doubtful:
        there = {r.body for r in found.get(("U", 0), {}).values()}
        assert not there & history.deleted, "messages of a deleted topic are back"


# -- the rounds ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "roquet.broker.assembly.TimerStore", partial(TimerStore, config=SMALL_TIMERS)
    )
    monkeypatch.setattr("roquet.store.flush.WHOLE_DISK_FILES_MIN", 6)


def test_a_day_without_faults_keeps_all_its_promises() -> None:
    for ending in ("closed", "killed", "restarted"):
        disk, history, outcome = live(Round(None, ending))
        assert set(history.answers) == {"yes"}, "every kind of work is done on a sound disk"
        assert not outcome.is_failed
        judge(disk, history)


ENDINGS: Final[tuple[Ending, ...]] = ("closed", "killed", "restarted")

CALLS: Final = (
    "open", "ftruncate", "fallocate", "mmap", "write", "fdatasync", "fsync", "syncfs", "rename",
    "unlink",
)  # fmt: skip

FULL_DISK: Final = frozenset({"open", "ftruncate", "fallocate", "write", "fsync", "rename"})
"""Calls that also fail because there is no room."""


def rounds(call: str, count_max: int) -> list[Round]:
    """Rounds in which a kind of call fails: every n, or as many as are wanted, evenly spread."""
    wanted = []
    for has_syncfs in (False, True):
        calls = live(Round(None, "closed", has_syncfs=has_syncfs))[2].calls
        for number in range(1, calls[call] + 1):
            for error in (errno.EIO, errno.ENOSPC)[: 1 + (call in FULL_DISK)]:
                for is_lasting in (False, True):
                    fault = Fault(call, number, error, is_lasting)
                    wanted += [Round(fault, ending, number, has_syncfs) for ending in ENDINGS]
    step = max(1, -(-len(wanted) // count_max))
    return wanted[Random(7).randrange(step) :: step]


def tally(outcome: Outcome) -> Counter[str]:
    """What a fault did, for the table: and the answers of its day."""
    if not outcome.is_hit:
        return Counter()
    kind = "refuses" if outcome.is_failed else "goes on"
    kind = kind if outcome.has_started else "no start"
    return Counter({"faults": 1, kind: 1}) + outcome.answers


@pytest.mark.parametrize("call", CALLS)
def test_no_answer_is_false_whichever_call_of_the_day_fails(
    call: str,
    depth: str,
    record_property: Callable[[str, object], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(60)  # tracebacks of a thousand faults say nothing
    count_max = SHORT_FAULTS // len(CALLS) if depth == "short" else FULL_FAULTS_EACH
    total = Counter(dict.fromkeys(COLUMNS, 0))
    for round_ in rounds(call, count_max):
        try:
            disk, history, outcome = live(round_)
            judge(disk, history)
        except BaseException as error:
            error.add_note(f"in {round_}")
            raise
        total.update(tally(outcome))
    assert total["faults"]
    record_property("disk faults", {"call": call, **total})
