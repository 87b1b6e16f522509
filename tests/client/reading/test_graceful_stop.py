"""Programs with consumers, run as processes, end well on SIGTERM and on Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.admin.group_info import GroupInfo
from roquet.client import blocking
from roquet.client.connection.stop_signals import INTERRUPTED
from roquet.net.loop import run
from roquet.testing.cluster import BlockingCluster

SOURCE = Path(__file__).resolve().parents[3] / "src"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are another thing there")

HEAD = r"""
import asyncio, os, sys, threading, time
from roquet.client import *
from roquet.client import blocking
address, group = sys.argv[1:3]
config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, concurrency=2)

def say(word):
    os.write(1, word.encode() + b"\n")

async def handle(message):
    say("begun")
    await asyncio.sleep(0.2)
    say("done")

async def silent(message):
    await asyncio.sleep(0.2)

def work(message):
    say("begun")
    time.sleep(0.2)
    say("done")

def member(kind, number=""):
    return kind(address, group=group + number, topic="orders", config=config)
"""

ASYNC = {
    "run": """
async def main():
    async with member(PushConsumer) as consumer:
        await consumer.run(handle)
    say("after")
""",
    "run of a plain function": """
async def main():
    async with member(PushConsumer) as consumer:
        await consumer.run(work)
    say("after")
""",
    "messages": """
async def main():
    async with member(PushConsumer) as consumer:
        async for message in consumer.messages():
            async with message:
                await handle(message)
    say("after")
""",
    "next, again and again": """
async def main():
    async with member(PushConsumer) as consumer:
        while True:
            message = await consumer.next(200)
            if message is not None:
                await handle(message)
                await message.ack()
""",
    "poll, again and again": """
async def main():
    async with PullConsumer(address, group=group, config=config) as consumer:
        await consumer.subscribe("orders")
        while True:
            for message in await consumer.poll(1, 200):
                await handle(message)
                await message.ack()
            await consumer.commit()
""",
    "pop": """
async def main():
    async with member(PopConsumer) as consumer:
        await consumer.run(handle)
    say("after")
""",
    "two groups, each in a task": """
async def main():
    async with member(PushConsumer) as one, member(PushConsumer, "2") as two:
        await asyncio.gather(one.run(handle), two.run(silent))
    say("after")
""",
    "a task with a consumer of its own": """
async def serve():
    async with member(PushConsumer) as consumer:
        await consumer.run(handle)

async def main():
    await asyncio.gather(serve())
    say("after")
""",
}

BLOCKING = {
    "run": """
with member(blocking.PushConsumer) as consumer:
    consumer.run(work)
say("after")
""",
    "messages": """
with member(blocking.PushConsumer) as consumer:
    for message in consumer.messages():
        with message:
            work(message)
say("after")
""",
    "fetch, again and again": """
with member(blocking.PushConsumer) as consumer:
    while True:
        for message in consumer.fetch(1, 200):
            with message:
                work(message)
""",
    "pop": """
with member(blocking.PopConsumer) as consumer:
    consumer.run(work)
say("after")
""",
    "run in a thread": """
with member(blocking.PushConsumer) as consumer:
    thread = threading.Thread(target=consumer.run, args=(work,))
    thread.start()
    while thread.is_alive():
        time.sleep(0.1)
say("after")
""",
}

IN_THREADS = """
def start(target):
    thread = threading.Thread(target=target)
    thread.start()
    return thread
"""

THREADS = {
    "blocking, opened in threads": """
def use():
    with member(blocking.PushConsumer) as consumer:
        consumer.run(work)
for thread in [start(use), start(use)]:
    thread.join()
""",
    "async, opened in a thread": """
async def use():
    async with member(PushConsumer) as consumer:
        await consumer.run(handle)
start(lambda: asyncio.run(use())).join()
""",
    "blocking, after the end of the main thread": """
def use():
    with member(blocking.PushConsumer) as consumer:
        for message in consumer.messages():
            with message:
                work(message)
start(use)
""",
    "blocking pop, beside a main task": """
def use():
    with member(blocking.PopConsumer) as consumer:
        consumer.run(work)
async def main():
    start(use)
    await asyncio.Event().wait()
asyncio.run(main())
""",
}

PROGRAMS = {
    **{f"async: {name}": f"{text}\nasyncio.run(main())" for name, text in ASYNC.items()},
    **{f"blocking: {name}": text for name, text in BLOCKING.items()},
    **{name: IN_THREADS + text for name, text in THREADS.items()},
}

ENDS = {signal.SIGTERM: 0, signal.SIGINT: INTERRUPTED}


FEW = {
    "blocking, opened in threads",
    "async: run",
    "async: pop",
    "blocking: run",
    "blocking: fetch, again and again",
}
"""Programs that `make test` runs; each is a process, and `make test-slow` runs the others, too."""

CASES = [
    pytest.param(name, number, marks=() if name in FEW else pytest.mark.slow)
    for name, text in PROGRAMS.items()
    for number in ENDS
    if number is signal.SIGINT or "after" not in text or name.endswith(": run")
]
"""After SIGTERM all that ends by itself takes one path."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with BlockingCluster() as running:
        with blocking.Producer(running.namesrv_addr) as producer:
            for number in range(40):
                producer.send("orders", b"%d" % number)
        yield running


class Program:
    """A program that handles its first message."""

    def __init__(self, text: str, address: str, group: str, folder: Path) -> None:
        file = folder / "program.py"
        file.write_text(HEAD + text, "utf-8")
        self._process = subprocess.Popen(
            [sys.executable, str(file), address, group],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
        assert self._process.stdout is not None
        self.head = self._process.stdout.readline()
        assert self.head == b"begun\n", self._process.communicate(timeout=30)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> tuple[int, list[str], str]:
        """Return the exit code, the printed lines and the errors."""
        said, errors = self._process.communicate(timeout=60)
        return self._process.returncode, (self.head + said).decode().split(), errors.decode()


def group_of(address: str, name: str) -> GroupInfo:
    """The group as brokers know it."""
    infos: list[GroupInfo] = []

    async def ask() -> None:
        async with AdminClient(address) as reach:
            infos.append(await groups.show(reach, name))

    run(ask())
    return infos[0]


@pytest.mark.parametrize(("name", "number"), CASES, ids=lambda one: getattr(one, "name", one))
def test_a_signal_lets_handlers_end_and_tells_the_group(
    name: str, number: signal.Signals, cluster: BlockingCluster, tmp_path: Path
) -> None:
    address = cluster.namesrv_addr
    group = f"g{list(PROGRAMS).index(name)}-{number.name}"
    program = Program(PROGRAMS[name], address, group, tmp_path)
    program.send(number)
    code, said, errors = program.ended()
    assert (code, errors) == (0 if "after the end" in name else ENDS[number], "")
    assert said.count("done") == said.count("begun") > 0
    if number is signal.SIGTERM and 'say("after")' in PROGRAMS[name] and "thread" not in name:
        assert said[-1] == "after", "what follows is the program's own"
    info = group_of(address, group)
    assert info.members == []
    if "pop" not in name:
        assert info.lag == 40 - said.count("done"), "progress is saved"


HANGS = """
with blocking.PushConsumer(address, group=group, topic="orders", config=config) as consumer:
    consumer.run(lambda message: (say("begun"), time.sleep(60)))
"""


def test_a_second_ctrl_c_ends_at_once(cluster: BlockingCluster, tmp_path: Path) -> None:
    program = Program(HANGS, cluster.namesrv_addr, "hangs", tmp_path)
    program.send(signal.SIGINT)
    time.sleep(0.3)
    program.send(signal.SIGINT)
    code, _, errors = program.ended()
    assert (code, errors) == (-signal.SIGINT, "")


IN_VAIN = {
    "async": """
async def main():
    async with PushConsumer(address, group=group, topic="orders", config=short) as consumer:
        await consumer.run(hang)
asyncio.run(main())
""",
    "blocking": """
with blocking.PushConsumer(address, group=group, topic="orders", config=short) as consumer:
    consumer.run(lambda message: (say("begun"), time.sleep(60)))
""",
}
SHORT = """
short = ConsumerConfig(consume_from=ConsumeFrom.FIRST, concurrency=1, close_timeout_ms=300)
async def hang(message):
    say("begun")
    await asyncio.sleep(60)
"""


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", IN_VAIN)
def test_a_handler_that_hangs_is_left_behind(
    name: str, number: signal.Signals, cluster: BlockingCluster, tmp_path: Path
) -> None:
    group = f"late-{name}-{number.name}"
    program = Program(SHORT + IN_VAIN[name], cluster.namesrv_addr, group, tmp_path)
    program.send(number)
    code, _, errors = program.ended()
    assert code == ENDS[number]
    assert "Traceback" not in errors
    assert group_of(cluster.namesrv_addr, group).lag == 40, "the one that hung comes again"


ELSEWHERE = """
async def main():
    async with PushConsumer(address, group=group, topic="orders", config=config) as consumer:
        task = asyncio.create_task(consumer.run(handle))
        await asyncio.Event().wait()
config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, concurrency=1, close_timeout_ms=1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_a_main_task_that_waits_for_something_else_is_ended_after_the_handlers(
    number: signal.Signals, cluster: BlockingCluster, tmp_path: Path
) -> None:
    group = f"elsewhere-{number.name}"
    program = Program(ELSEWHERE, cluster.namesrv_addr, group, tmp_path)
    program.send(number)
    code, said, errors = program.ended()
    assert (code, errors) == (ENDS[number], "")
    assert said.count("done") == said.count("begun") > 0
    assert group_of(cluster.namesrv_addr, group).members == []


CAUGHT = """
async def main():
    async with PushConsumer(address, group=group, topic="orders", config=config) as consumer:
        await consumer.run(handle)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    say("caught")
"""


def test_a_program_may_catch_ctrl_c_itself(cluster: BlockingCluster, tmp_path: Path) -> None:
    program = Program(CAUGHT, cluster.namesrv_addr, "caught", tmp_path)
    program.send(signal.SIGINT)
    code, said, errors = program.ended()
    assert (code, said[-1], errors) == (0, "caught", "")


OWN_HANDLER = """
import signal
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
with blocking.PushConsumer(address, group=group, topic="orders", config=config) as consumer:
    thread = threading.Thread(target=consumer.run, args=(work,))
    thread.start()
    ended.wait()
    say("theirs")
"""


def test_a_handler_of_the_programs_own_stays(cluster: BlockingCluster, tmp_path: Path) -> None:
    program = Program(OWN_HANDLER, cluster.namesrv_addr, "own", tmp_path)
    program.send(signal.SIGTERM)
    code, said, errors = program.ended()
    assert (code, errors) == (0, "")
    assert "theirs" in said
    assert said.count("done") == said.count("begun") > 0
