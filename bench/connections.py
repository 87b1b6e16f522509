"""Many connections, and many topics: what they cost a broker and a name server.

    connections.py half --connections 10000      half-open ones: they send nothing, or half a frame
    connections.py scale --topics 5000 --connections 2000 --seconds 10

`half` prints how much memory each connection costs, and how quickly others are served meanwhile.
`scale` compares sends over all queues of all topics and all connections with those over one topic
and few connections, and measures answers about routes. Both sides are processes of their own, on
one machine. Linux only.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.lib.measures import cpu_seconds, percentile
from harness.ports import free_port
from harness.processes import ROQUET
from roquet.model.topic import DataVersion, TopicConfig, TopicTable
from roquet.net.channel import Channel
from roquet.net.loop import run
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send
from roquet.wire.fastjson import codec
from roquet.wire.fields import encode_call

QUEUES = 8
WANTED = 65_536
SENDERS = 64
"""Sends in flight, however many connections there are."""


@contextlib.contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A server that says when it is ready."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert "ready" in line, line
            yield child
        finally:
            child.terminate()


def _memory(pid: int) -> dict[str, float]:
    """MiB of the process's own memory, and of the files that it maps."""
    text = Path(f"/proc/{pid}/status").read_text()
    return {
        name: round(int(match[1]) / 1024, 1)
        for name in ("VmRSS", "RssAnon", "RssFile")
        if (match := re.search(rf"{name}:\s+(\d+) kB", text))
    }


def _send(topic: str, queue_id: int = 0) -> Send:
    return Send(
        producer_group="bench",
        topic=topic,
        queue_id=queue_id,
        born_timestamp=1_700_000_000_000,
        body=b"x" * 128,
    )


async def _round_trips(channel: Channel, count: int) -> list[float]:
    """Milliseconds of sends, one after the other."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        await channel.call(_send("Flights"))
        found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


async def _half_open(port: int, pid: int, count: int, sends: int) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    frame = encode_call(_send("Flights"), opaque=1)
    async with await Channel.connect("127.0.0.1", port) as channel:
        alone = await _round_trips(channel, sends)
        before = _memory(pid)
        opened: list[asyncio.Transport] = []
        began = time.perf_counter()
        for number in range(count):
            transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
            opened.append(transport)
            if number % 2:
                opened[-1].write(frame[: len(frame) // 2])
        took_s = time.perf_counter() - began
        await asyncio.sleep(1)
        after = _memory(pid)
        beside = await _round_trips(channel, sends)
        alive = sum(not transport.is_closing() for transport in opened)
        for transport in opened:
            transport.abort()
    own = after["RssAnon"] - before["RssAnon"]
    return {
        "connections": count,
        "still open": alive,
        "seconds to connect": round(took_s, 1),
        "memory, MiB": {"before": before, "after": after},
        "bytes of a connection": round(own * 1024 * 1024 / count),
        "ms of a send, median": {
            "before": percentile(alone, 50),
            "beside them": percentile(beside, 50),
        },
        "ms of a send, p99": {
            "before": percentile(alone, 99),
            "beside them": percentile(beside, 99),
        },
    }


def half(count: int, sends: int) -> dict[str, Any]:
    """Half-open connections."""
    port = free_port()
    command = [*ROQUET, "broker", "--memory", "--port", str(port), "--advertise", "127.0.0.1"]
    with _child(command) as broker:
        return run(_half_open(port, broker.pid, count, sends))


class Senders:
    """So many sends in flight, over all connections and all queues in turn."""

    def __init__(self, pid: int, channels: list[Channel], topics: int) -> None:
        self._pid = pid
        self._channels = itertools.cycle(channels)
        self._places = itertools.cycle(
            [(f"T{topic}", queue_id) for queue_id in range(QUEUES) for topic in range(topics)]
        )

    async def each_queue_once(self, count: int) -> None:
        """One message to each: files are made."""
        left = iter(range(count))

        async def work() -> None:
            for _ in left:
                await next(self._channels).call(_send(*next(self._places)), 30_000)

        await asyncio.gather(*(work() for _ in range(SENDERS)))

    async def rate(self, seconds: float) -> tuple[float, float]:
        """Sends a second, and microseconds of the broker's CPU for each."""
        until, sent = time.perf_counter() + seconds, 0
        before = cpu_seconds(self._pid)

        async def work() -> None:
            nonlocal sent
            while time.perf_counter() < until:
                await next(self._channels).call(_send(*next(self._places)), 30_000)
                sent += 1

        await asyncio.gather(*(work() for _ in range(SENDERS)))
        used = cpu_seconds(self._pid) - before
        return round(sent / seconds), round(used / sent * 1e6, 1)


async def _routes(port: int, topics: int, seconds: float) -> list[float]:
    """Milliseconds of answers about topics, in turn, every few ms."""
    found: list[float] = []
    until = time.perf_counter() + seconds
    async with await Channel.connect("127.0.0.1", port) as channel:
        while time.perf_counter() < until:
            began = time.perf_counter()
            await channel.call(GetRoute(topic=f"T{len(found) * 7 % topics}"))
            found.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.002)
    return sorted(found)


async def _scaled(
    ports: tuple[int, int], pid: int, topics: int, connections: int, seconds: float
) -> dict[str, Any]:
    channels = [await Channel.connect("127.0.0.1", ports[1]) for _ in range(connections)]
    small, large = Senders(pid, channels[:SENDERS], 1), Senders(pid, channels, topics)
    wide = Senders(pid, channels, 1)
    await small.each_queue_once(QUEUES)
    small_rates = [await small.rate(seconds / 2)]
    began = time.perf_counter()
    await large.each_queue_once(topics * QUEUES)
    first_s = time.perf_counter() - began
    large_rates, wide_rates, route_ms = [], [], []
    for _ in range(2):
        large_rates.append(await large.rate(seconds / 2))
        small_rates.append(await small.rate(seconds / 2))
        wide_rates.append(await wide.rate(seconds / 2))
    route_ms = await _routes(ports[0], topics, seconds / 2)
    loaded, loaded_ms = await asyncio.gather(
        large.rate(seconds / 2), _routes(ports[0], topics, seconds / 2)
    )
    for channel in channels:
        await channel.close()
    return {
        "sends a second, and us of CPU, one topic": small_rates,
        "sends a second, and us of CPU, all topics": large_rates,
        "sends a second, and us of CPU, one topic over all connections": wide_rates,
        "ratio": round(max(large_rates)[0] / max(small_rates)[0], 2),
        "seconds for the first message of each queue": round(first_s, 1),
        "broker's memory, MiB": _memory(pid),
        "ms of a route, p50 and p99": _quantiles(route_ms),
        "ms of a route beside sends, p50 and p99": _quantiles(loaded_ms),
        "sends a second beside": loaded,
    }


def _quantiles(ordered: list[float]) -> list[float]:
    return [round(percentile(ordered, percent), 2) for percent in (50, 99)]


def scale(topics: int, connections: int, seconds: float) -> dict[str, Any]:
    """Many topics and connections, beside few."""
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="roquet-scale-") as folder:
        directory = Path(folder) / "store"
        (directory / "config").mkdir(parents=True)
        table = {
            f"T{n}": TopicConfig(
                topic_name=f"T{n}", read_queue_nums=QUEUES, write_queue_nums=QUEUES
            )
            for n in range(topics)
        }
        content = TopicTable(topic_config_table=table, data_version=DataVersion())
        (directory / "config" / "topics.json").write_bytes(codec.dumps(content))
        namesrv = [*ROQUET, "namesrv", "--port", str(ports[0])]
        broker = [
            *(*ROQUET, "broker", "--namesrv", f"127.0.0.1:{ports[0]}", "--port", str(ports[1])),
            *("--data", str(directory), "--advertise", "127.0.0.1"),
        ]
        with _child(namesrv):
            with _child(broker) as child:
                found = run(_scaled(ports, child.pid, topics, connections, seconds))
                child.terminate()
                child.wait()
            began = time.perf_counter()
            with _child(broker):
                found["seconds to start after a good stop"] = round(time.perf_counter() - began, 2)
    return found


def _allow_descriptors() -> None:
    """For us and our children: there are thousands of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, WANTED),) * 2)
    except (ValueError, OSError):  # who may not raise the hard limit takes it as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("open files:", resource.getrlimit(resource.RLIMIT_NOFILE)[0], file=sys.stderr)


def main() -> None:
    """Print one JSON object."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("what", choices=("half", "scale"))
    options.add_argument("--connections", type=int, default=0, help="10000 half-open, 2000 else")
    options.add_argument("--sends", type=int, default=500, help="timed, half: before and after")
    options.add_argument("--topics", type=int, default=5_000)
    options.add_argument("--seconds", type=float, default=10)
    given = options.parse_args()
    _allow_descriptors()
    if given.what == "half":
        found = half(given.connections or 10_000, given.sends)
    else:
        found = scale(given.topics, given.connections or 2_000, given.seconds)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
