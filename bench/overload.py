"""More sends than a slow disk takes: memory stays where it is, and what was acknowledged is kept.

A broker with sync flush, each flush of whose log takes 50 ms longer, is sent to by 200 connections
with 64 sends in flight each, from another process. Printed: its memory over time, how many sends
were acknowledged, refused as busy (code 2) and answered otherwise. Then it is killed, its directory
is opened, and every acknowledged message must be there at its offset. Linux only.

    overload.py --seconds 60        all of it: memory grows by 50 MB at most
"""

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, cast

from harness.ports import free_port
from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.cli.process import runtime
from roquet.net.loop import run
from roquet.store.config import StoreConfig
from roquet.store.filesystem.files import RealFiles
from roquet.store.store import Store
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.command import decode
from roquet.wire.fields import decode_reply, encode_call
from roquet.wire.frame import FrameReader
from roquet.wire.records.record import decode_many

CONNECTIONS = 200
IN_FLIGHT = 64
FLUSH_MS = 50
GROWTH_MAX_MIB = 50
TOPIC = "Overload"
QUEUES = 8
REFUSED_PAUSE_S = 0.02
"""A sender that is told "busy" comes again a little later."""

Acknowledged = dict[tuple[int, int], str]
"""Bodies by queue and offset."""


class SlowFiles(RealFiles):
    """A disk whose flushes take their time."""

    def sync(self, path: Path, view: memoryview | None = None) -> None:
        """Later than others."""
        if "commitlog" in path.parts:
            time.sleep(FLUSH_MS / 1000)
        super().sync(path, view)


async def _serve(directory: Path, port: int) -> None:
    config = BrokerConfig(
        host="127.0.0.1", port=port, vip_port=False, store_dir=directory, sync_flush=True
    )
    stop = runtime.stop_signal()
    async with BrokerServer(config, files=SlowFiles()):
        print("ready", flush=True)
        await stop.wait()


class Sender(asyncio.Protocol):
    """One connection that always has so many sends in flight."""

    def __init__(self, number: int, until: float, counts: Counter[str], kept: Acknowledged) -> None:
        self._number = number
        self._until = until
        self._counts = counts
        self._kept = kept
        self._reader = FrameReader()
        self._bodies: dict[int, str] = {}
        self._next = 0
        self._loop = asyncio.get_running_loop()
        self.over = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._send(IN_FLIGHT)

    def data_received(self, data: bytes) -> None:
        """Note the answers, and send as many more; refused ones a little later."""
        again = later = 0
        for frame in self._reader.feed(data):
            command = decode(frame)
            body = self._bodies.pop(command.opaque)
            code = command.code
            self._counts[_name(code)] += 1
            if code == ResponseCode.SUCCESS:
                reply = decode_reply(command, SendReply)
                assert isinstance(reply, SendReply)
                self._kept[reply.queue_id, reply.queue_offset] = body
            elif code == ResponseCode.SYSTEM_BUSY:
                self._counts[re.sub(r"\d+", "N", command.remark or "")] += 1
                later += 1
                continue
            again += 1
        self._send(again)
        if later:
            self._loop.call_later(REFUSED_PAUSE_S, self._send, later)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The end."""
        if not self.over.done():
            self.over.set_result(None)

    def _send(self, count: int) -> None:
        if time.monotonic() >= self._until:
            if not self._bodies:
                self._transport.close()
            return
        frames = []
        for _ in range(count):
            opaque = self._next
            self._next += 1
            self._bodies[opaque] = body = f"{self._number}:{opaque}:" + "x" * 100
            call = Send(
                producer_group="overload",
                topic=TOPIC,
                queue_id=(self._number + opaque) % QUEUES,
                born_timestamp=1_700_000_000_000,
                properties="WAIT\x01true\x02",
                body=body.encode(),
                default_topic_queue_nums=QUEUES,
            )
            frames.append(encode_call(call, opaque=opaque))
        self._transport.write(b"".join(frames))


def _same(sender: Sender) -> Sender:
    return sender


def _name(code: int) -> str:
    return {0: "acknowledged", 2: "busy"}.get(code, f"code {code}")


async def _load(port: int, seconds: float, kept: Acknowledged) -> Counter[str]:
    """Send for so long; what was answered."""
    counts: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    until = time.monotonic() + seconds
    senders = []
    for number in range(CONNECTIONS):
        sender = Sender(number, until, counts, kept)
        await loop.create_connection(partial(_same, sender), "127.0.0.1", port)
        senders.append(sender)
    _, late = await asyncio.wait([sender.over for sender in senders], timeout=seconds + 15)
    counts["connections without an end"] = len(late)
    return counts


def _memory(pid: int) -> dict[str, float]:
    """MiB of the process's own memory, and of the files that it maps."""
    text = Path(f"/proc/{pid}/status").read_text()
    return {
        name: round(int(match[1]) / 1024, 1)
        for name in ("RssAnon", "RssFile")
        if (match := re.search(rf"{name}:\s+(\d+) kB", text))
    }


async def _watched(port: int, pid: int, seconds: float, kept: Acknowledged) -> dict[str, Any]:
    """Load, and memory over time."""
    before = _memory(pid)
    over_time = []
    load = asyncio.create_task(_load(port, seconds, kept))
    began = time.monotonic()
    while not load.done():
        await asyncio.wait([load], timeout=max(seconds / 20, 0.2))
        found = _memory(pid)
        over_time.append(found["RssAnon"])
        print(f"{time.monotonic() - began:6.1f} s  {found}", file=sys.stderr, flush=True)
    return {
        "answers": dict(await load),
        "own memory before, MiB": before["RssAnon"],
        "own memory over time, MiB": over_time,
        "growth, MiB": round(max(over_time) - before["RssAnon"], 1),
    }


def _lost(directory: Path, kept: Acknowledged) -> int:
    """How many acknowledged messages are not at their offsets."""
    lost = 0
    store = Store.open(directory, StoreConfig(), now_ms=time.time_ns() // 1_000_000, pid=1)
    try:
        for queue_id in range(QUEUES):
            wanted = {o: body for (q, o), body in kept.items() if q == queue_id}
            offset, end = store.bounds(TOPIC, queue_id)
            while offset < end:
                found = store.read(TOPIC, queue_id, offset, count_max=1000, bytes_max=1 << 22)
                for record in decode_many(b"".join(found.parts)):
                    body = wanted.pop(record.queue_offset, None)
                    lost += body is not None and body.encode() != record.body
                offset = found.next_offset
            lost += len(wanted)
    finally:
        store.close(time.time_ns() // 1_000_000)
    return lost


def measure(seconds: float) -> dict[str, Any]:
    """All of it, in a directory that is gone afterwards."""
    kept: Acknowledged = {}
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="roquet-overload-") as folder:
        directory = Path(folder) / "store"
        command = [
            sys.executable,
            "-m",
            "bench.overload",
            "--serve",
            str(directory),
            "--port",
            str(port),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
            try:
                assert broker.stdout is not None
                assert broker.stdout.readline() == "ready\n"
                found = run(_watched(port, broker.pid, seconds, kept))
            finally:
                broker.send_signal(signal.SIGKILL)
        found["acknowledged and lost"] = _lost(directory, kept)
    return found


def main() -> None:
    """Print one JSON object; exit code 1 when a promise was broken."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        runtime.run(_serve(given.serve, given.port))
        return
    found = measure(given.seconds)
    print(json.dumps(found, indent=2))
    kept = found["acknowledged and lost"] == 0 and found["growth, MiB"] <= GROWTH_MAX_MIB
    sys.exit(0 if kept and found["answers"].get("busy") else 1)


if __name__ == "__main__":
    main()
