"""Delivery times measured: what a million waiting messages cost, and how late many are at once.

    python -m bench.timers --waiting 1000000 --due 100000

Our name server and broker are processes. First messages wait: memory of the broker, and its start
after kill -9. Then many are due within the same minute while others are sent: how late they come,
and how quick the sends are beside those of before. `--level` waits by delay level (1m) instead.
Linux only: memory is read from /proc.
"""

import argparse
import asyncio
import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.lib.measures import cpu_seconds, percentile, rss_mib
from bench.lib.rows import Row, bound, reach, save
from harness import servers
from harness.servers import Server
from roquet.client import Message, Producer, ProducerConfig, PullConsumer
from roquet.net import loop
from roquet.net.channel import Channel
from roquet.store.timer.layout import unpack_checkpoint
from roquet.wire.calls.timer import GetTimerCheckpoint

TOPIC = "TimerBench"
PLAIN = "TimerBenchPlain"
BODY = b"x" * 128
IN_FLIGHT = 64
MINUTE_S = 60
MINUTE_LEVEL = 5
RSS_GOAL, START_GOAL, LATE_GOAL, SEND_GOAL = 200, 5, 1_000, 0.8
CONFIG = ProducerConfig(send_timeout_ms=30_000)


class TimedBroker(NamedTuple):
    """A broker that may be killed and started again on the same directory, and its name server."""

    namesrv: str
    server: Server

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self.server.pid

    def start(self) -> float:
        """Seconds until it is ready."""
        began = time.monotonic()
        self.server.start()
        return time.monotonic() - began


@contextlib.contextmanager
def running(folder: Path) -> Iterator[TimedBroker]:
    """A name server and a broker that is started."""
    with (
        servers.name_server(folder) as names,
        servers.broker(folder, "ours-a", {"namesrvAddr": names.address}) as broker,
    ):
        yield TimedBroker(names.address, broker)


async def send_all(namesrv: str, messages: Iterator[Message]) -> float:
    """Send each, so many at one time; gives messages a second."""
    began, count = time.monotonic(), 0

    async def work() -> None:
        nonlocal count
        for message in messages:
            await producer.send(message)
            count += 1

    async with Producer(namesrv, config=CONFIG) as producer:
        await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
    return count / (time.monotonic() - began)


def plain_for(seconds: float) -> Iterator[Message]:
    """Messages that do not wait, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield Message(PLAIN, BODY)


def memory(pid: int) -> str:
    """Composition of resident memory: ours alone, and pages of files that the system can drop."""
    text = Path(f"/proc/{pid}/status").read_text()
    parts = [re.search(rf"Rss{kind}:\s+(\d+) kB", text) for kind in ("Anon", "File", "Shmem")]
    anon, file, shared = (int(part[1]) / 1024 if part else 0.0 for part in parts)
    return f"own {anon:.0f}, of files {file + shared:.0f}"


async def on_wheel(port: int, count: int) -> float:
    """Wait until so many are on the wheel; gives the seconds."""
    began = time.monotonic()
    channel = await Channel.connect("127.0.0.1", port)
    offset = 0
    while offset < count:
        await asyncio.sleep(0.1)
        offset = unpack_checkpoint((await channel.call(GetTimerCheckpoint())).body).offset
    await channel.close()
    return time.monotonic() - began


async def waiting(broker: TimedBroker, count: int) -> list[Row]:
    """So many wait for hours: memory, and the start after a kill."""
    title = f"{count:,} delayed messages: "
    began, cpu = datetime.now(UTC) + timedelta(hours=2), cpu_seconds(broker.pid)
    each = (
        Message(TOPIC, BODY, deliver_at=began + timedelta(hours=40 * n / count))
        for n in range(count)
    )
    rate = await send_all(broker.namesrv, each)
    behind_s = await on_wheel(broker.server.port, count)
    cpu = (cpu_seconds(broker.pid) - cpu) / count * 1e6
    print(f"{count} sent to wait: {rate:,.0f}/s, {cpu:.0f} us CPU each, {behind_s:.1f} s behind")
    resident = rss_mib(broker.pid)
    print(f"RSS {resident:.0f} MiB ({memory(broker.pid)}; goal {RSS_GOAL})")
    broker.server.kill()
    start_s = broker.start()
    print(f"start after kill -9: {start_s:.2f} s (goal {START_GOAL})")
    await asyncio.sleep(2)
    print(f"RSS then {rss_mib(broker.pid):.0f} MiB ({memory(broker.pid)})")
    return [
        Row(f"{title}sent", "msg/s", rate),
        Row(f"{title}broker CPU a message", "us", cpu),
        bound(f"{title}RSS", "MiB", resident, RSS_GOAL),
        bound(f"{title}start after kill -9", "s", start_s, START_GOAL),
    ]


async def due(broker: TimedBroker, count: int, *, by_level: bool) -> list[Row]:
    """So many are due in the same minute: how late, and what sends do meanwhile."""
    title = f"{count:,} due in a minute, {'by level' if by_level else 'by time'}: "
    before = await send_all(broker.namesrv, plain_for(10))
    at = datetime.now(UTC) + timedelta(seconds=20 + count / 4_000)
    if by_level:
        each = (Message(TOPIC, BODY, delay_level=MINUTE_LEVEL) for _ in range(count))
    else:
        each = (
            Message(TOPIC, BODY, deliver_at=at + timedelta(seconds=MINUTE_S * n / count))
            for n in range(count)
        )
    rate = await send_all(broker.namesrv, each)
    rest_s = 0 if by_level else (at - datetime.now(UTC)).total_seconds()
    print(f"{count} sent to be due in one minute: {rate:,.0f}/s; {rest_s:.0f} s are left")
    await asyncio.sleep(max(0, rest_s))
    during = await send_all(broker.namesrv, plain_for(MINUTE_S))
    await asyncio.sleep(MINUTE_S if by_level else 10)
    late = sorted(await lateness(broker.namesrv, by_level=by_level))
    p50, p99 = percentile(late, 50), percentile(late, 99)
    print(f"{len(late)} of {count} delivered; late: p50 {p50} ms, p99 {p99} ms,")
    print(f"  earliest {late[0]} ms, latest {late[-1]} ms (goal: p99 {LATE_GOAL}, none below 0)")
    print(f"sends: {before:,.0f}/s before, {during:,.0f}/s during: {during / before:.2f} x")
    print(f"  (goal {SEND_GOAL})")
    return [
        bound(f"{title}messages lost", "", count - len(late), 0),
        bound(f"{title}late, p99", "ms", p99, LATE_GOAL),
        reach(f"{title}late, earliest", "ms", late[0], 0),
        reach(f"{title}sends during to before", "times", during / before, SEND_GOAL),
    ]


async def lateness(namesrv: str, *, by_level: bool) -> list[int]:
    """By how many ms each was stored for consumers later than it was wanted."""
    found: list[int] = []
    async with PullConsumer(namesrv, group="timer-bench") as consumer:
        for queue in await consumer.queues(TOPIC):
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, 1_000)
                for one in result.messages:
                    wanted = one.properties.get("TIMER_DELIVER_MS")
                    at = one.born_ms + 60_000 if by_level or wanted is None else int(wanted)
                    found.append(one.stored_ms - at)
                offset = result.next_offset
    return found


def run(folder: Path, work: Callable[[TimedBroker], Coroutine[Any, Any, list[Row]]]) -> list[Row]:
    """One work on a broker of its own."""
    with running(folder) as broker, asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        return runner.run(work(broker))


def main() -> None:
    """One run, and what it showed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--level", action="store_true", help="due by delay level, not by time")
    parser.add_argument("--folder", default="/dev/shm", help="where the stores are made")
    parser.add_argument("--out", type=Path, default=Path("build/bench-timers.json"))
    given = parser.parse_args()
    table: list[Row] = []
    print(f"{os.cpu_count()} cores")
    if given.waiting:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            table += run(Path(folder), lambda broker: waiting(broker, given.waiting))
    if given.due:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            table += run(Path(folder), lambda broker: due(broker, given.due, by_level=given.level))
    save(table, given.out)


if __name__ == "__main__":
    main()
