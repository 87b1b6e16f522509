"""A full topic for benchmarks: a directory filled through the store, and served by `roquet dev`."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.servers import DevServer


@dataclass
class Filled:
    """A served topic, and where its files are."""

    namesrv: str
    broker: str
    data: Path
    pid: int


@contextlib.contextmanager
def filled(
    folder: Path, topic: str, messages: int, size: int, queues: int = 8, more: Sequence[str] = ()
) -> Iterator[Filled]:
    """Messages of one size in the queues of a topic, until the block ends.

    `more` are further arguments of `fill.py`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    fill = [sys.executable, "-m", "bench.fill", str(data), "--messages", str(messages)]
    fill += ["--size", str(size), "--topic", topic, "--queues", str(queues), *more]
    subprocess.run(fill, check=True)
    with DevServer(folder, "--data", str(data)) as server:
        asyncio.run(_create(server.broker, topic, queues))
        time.sleep(1)  # its route has to be known
        yield Filled(server.address, server.broker, data, server.pid)


async def _create(broker: str, topic: str, queues: int) -> None:
    """The topic of the queues that are already there."""
    from roquet.net.channel import Channel
    from roquet.wire.calls.admin.topic import CreateTopic

    host, _, port = broker.rpartition(":")
    channel = await Channel.connect(host, int(port))
    call = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    await channel.call(call)
    await channel.close()
