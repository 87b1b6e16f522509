"""Pop measured: four consumers of one group take and acknowledge messages that wait.

    python bench/pop.py --messages 200000

Our name server and broker are processes, and so are the consumers, one each or all in one
(`--processes 1`). Prints messages per second and the CPU time that a message costs on either side.
Linux only: CPU time is read from /proc.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tools"), str(HERE.parent / "src"), str(HERE)]

from system import cpu_seconds, ours  # noqa: E402

from roquet.client import ConsumeFrom, ConsumerConfig, Message, Producer  # noqa: E402
from roquet.client.pop import PopConsumer  # noqa: E402
from roquet.net import loop  # noqa: E402

TOPIC = "PopBench"
BODY = b"x" * 128
GOAL = 20_000
IDLE_S = 2
LOOK = 64


def fill(namesrv: str, count: int) -> None:
    """Messages that wait to be popped."""

    async def send() -> None:
        async with Producer(namesrv) as producer:
            await producer.send_many(Message(TOPIC, BODY) for _ in range(count))

    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        runner.run(send())


def drain(namesrv: str, consumers: int) -> tuple[float, float, int, float]:
    """Take and acknowledge until nothing comes; gives begin, end, messages and CPU seconds."""
    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        return runner.run(_drain(namesrv, consumers))


async def _drain(namesrv: str, consumers: int) -> tuple[float, float, int, float]:
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    members = [
        PopConsumer(namesrv, group="pop-bench", topic=TOPIC, config=config)
        for _ in range(consumers)
    ]
    for member in members:
        await member.start()
    begin, cpu = time.monotonic(), time.process_time()
    results = await asyncio.gather(*map(_take, members))
    seconds = time.process_time() - cpu
    for member in members:
        await member.close()
    return begin, max(last for last, _ in results), sum(done for _, done in results), seconds


async def _take(member: PopConsumer) -> tuple[float, int]:
    """Messages until none has come for a while; gives when the last one came, and how many."""
    done, last = 0, time.monotonic()

    async def watch() -> None:
        before = -1
        while done != before or not done:
            before = done
            await asyncio.sleep(IDLE_S)
        member.stop()

    watching = asyncio.create_task(watch())
    async for message in member.messages():
        await message.ack()
        done += 1
        if not done % LOOK:
            last = time.monotonic()
    await watching
    return last, done


def main() -> None:
    """One run, and what it showed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--processes", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, ours(Path(folder)) as side:
        fill(side.namesrv, given.messages)
        before = cpu_seconds(side.pid)
        each = given.consumers // given.processes
        with ProcessPoolExecutor(given.processes) as pool:
            jobs = [pool.submit(drain, side.namesrv, each) for _ in range(given.processes)]
            results = [job.result() for job in jobs]
        broker_s = cpu_seconds(side.pid) - before
    seconds = max(r[1] for r in results) - min(r[0] for r in results)
    done, client_s = sum(r[2] for r in results), sum(r[3] for r in results)
    print(f"{os.cpu_count()} cores, {given.consumers} consumers, {given.processes} processes")
    verdict = "reached" if done / seconds >= GOAL else "missed"
    print(f"{done} messages popped and acknowledged, {done / seconds:,.0f}/s")
    print(f"goal {GOAL:,}/s, for 4 consumers: {verdict}")
    broker_us, client_us = broker_s / done * 1e6, client_s / done * 1e6
    print(f"CPU a message: broker {broker_us:.1f} us, client {client_us:.1f} us")
    if done < given.messages:
        sys.exit(f"{given.messages - done} of {given.messages} messages never came")
    if verdict == "missed":
        sys.exit(1)


if __name__ == "__main__":
    main()
