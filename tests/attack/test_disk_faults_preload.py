"""A real broker whose C library fails one call; a real producer; kill -9 and a sound start."""

import asyncio
import contextlib
import errno
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from harness import servers
from harness.ports import free_port
from harness.processes import ProcessFailed
from roquet.model.errors import CallError
from roquet.net.channel import Channel
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send, SendBatch
from roquet.wire.codes import ResponseCode
from roquet.wire.records.batch import BatchItem, encode_batch
from roquet.wire.records.record import decode_many

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler"
    ),
]

SOURCE: Final = Path(__file__).with_name("disk_faults.c")

TOPIC: Final = "Faults"

CASES: Final = (
    ("fdatasync", "commitlog", 1),
    ("fdatasync", "consumequeue", 1),
    ("fsync", "commitlog", 1),
    ("rename", "config/topics.json", 4),
    ("fdatasync", "commitlog", 7),
    ("write", "commitlog", 1),
    ("fallocate", "commitlog", 1),
    ("fallocate", "consumequeue", 1),
    ("ftruncate", "commitlog", 1),
    ("mmap", "commitlog", 1),
    ("mmap", "consumequeue", 1),
    ("open", "commitlog", 1),
    ("fdatasync", "checkpoint", 1),
    ("fdatasync", "config", 3),
    ("fsync", "config", 2),
)
"""A call, below what of the store, and which of them fails; the first four are the short form."""

SHORT: Final = 4


class History:
    """What was answered, by body."""

    def __init__(self) -> None:
        self.stored: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        self.answers: Counter[str] = Counter()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("faults") / "faults.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return made


@contextlib.contextmanager
def broker(folder: Path, port: int, fault: dict[str, str]) -> Iterator[None]:
    """Our broker as a process, killed in the end."""
    settings = {
        "listenPort": port,
        "flushDiskType": "SYNC_FLUSH",
        "storePathRootDir": folder / "store",
    }
    with servers.broker(folder, "attack-a", settings, environ=fault) as child:
        yield
        child.kill()


async def send_all(port: int, history: History) -> None:
    """Messages one after the other, with a large batch among them, for longer than a checkpoint."""
    channel = await Channel.connect("127.0.0.1", port)
    create = CreateTopic(topic=TOPIC, read_queue_nums=1, write_queue_nums=1, perm=6)
    with contextlib.suppress(CallError):
        await channel.call(create)
    for number in range(14):
        bodies = [f"{number}-{n}".encode().ljust(400, b".") for n in range(1 + 150 * (number == 5))]
        is_batch = len(bodies) > 1
        call = (SendBatch if is_batch else Send)(
            batch=is_batch,
            producer_group="attack",
            topic=TOPIC,
            queue_id=0,
            born_timestamp=time.time_ns() // 1_000_000,
            properties="WAIT\x01true\x02",
            body=encode_batch([BatchItem(0, b, b"") for b in bodies]) if is_batch else bodies[0],
        )
        try:
            reply = await channel.call(call, timeout_ms=10_000)
        except CallError as error:
            history.answers["no" if error.definite else "unknown"] += 1
            if error.definite:
                history.refused.update(bodies)
        else:
            history.answers["yes"] += 1
            history.stored |= {b: reply.queue_offset + n for n, b in enumerate(bodies)}
        await asyncio.sleep(0.45)
    await channel.close()


async def read_all(port: int) -> list[bytes]:
    """All bodies; offsets are dense."""
    channel, bodies = await Channel.connect("127.0.0.1", port), list[bytes]()
    while True:
        call = Pull(
            consumer_group="attack-reader", topic=TOPIC, queue_id=0, queue_offset=len(bodies),
            max_msg_nums=1000, max_msg_bytes=1 << 20, sys_flag=4, commit_offset=-1,
            suspend_timeout_millis=0, subscription="*", sub_version=0,
        )  # fmt: skip
        reply = await channel.call(call, timeout_ms=10_000)
        if reply.code != ResponseCode.SUCCESS:
            assert reply.max_offset == len(bodies)
            await channel.close()
            return bodies
        for record in decode_many(reply.body):
            assert record.queue_offset == len(bodies)
            bodies.append(bytes(record.body))


@pytest.mark.parametrize(("call", "below", "number"), CASES)
def test_no_answer_of_a_real_broker_is_false(
    call: str, below: str, number: int, depth: str, library: Path, tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    if depth == "short" and (call, below, number) not in CASES[:SHORT]:
        pytest.skip("tried in the full form")
    noted, port, history = tmp_path / "hits", free_port(), History()
    fault = {
        "LD_PRELOAD": str(library),
        "FAULT_BELOW": str(tmp_path / "store" / below),
        "FAULT_CALL": call,
        "FAULT_NUMBER": str(number),
        "FAULT_ERROR": str(errno.EIO),
        "FAULT_LOG": str(noted),
    }
    try:
        with broker(tmp_path, port, fault):
            asyncio.run(send_all(port, history))
    except ProcessFailed as error:  # it did not start, and has to say why in a line
        if "cannot be used: Input/output error" not in str(error):
            raise
    with broker(tmp_path, port, {}):
        bodies = asyncio.run(read_all(port)) if history.answers else []
    assert noted.exists(), "the call was made, and failed"
    for one, offset in history.stored.items():
        assert bodies[offset] == one, f"{one[:8]!r} was acknowledged at {offset}"
    assert not history.refused & set(bodies), "what was refused for sure is there"
    assert len(bodies) == len(set(bodies))
    total = {answer: history.answers[answer] for answer in ("yes", "no", "unknown")}
    record_property("disk faults of a process", {"call": f"{call} {number}", **total})
