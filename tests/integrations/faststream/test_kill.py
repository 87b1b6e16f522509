"""A FastStream application that is killed: what its handlers had not ended comes again."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.client import Message, Producer

pytestmark = [pytest.mark.slow, pytest.mark.kill]

SRC = Path(__file__).parents[3] / "src"

PROGRAM = """
import asyncio, os, sys
from faststream import FastStream
from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.integrations.faststream import RocketBroker

settings = ConsumerConfig(
    consume_from=ConsumeFrom.FIRST, save_period_ms=100, invisible_ms=3000
)
broker = RocketBroker(sys.argv[1], consumer=settings)
app = FastStream(broker, logger=None)

@broker.subscriber(sys.argv[3] + "Killed", group=sys.argv[3] + "-killed", max_workers=4,
    pop=sys.argv[3] == "pop")
async def handle(number: int) -> None:
    await asyncio.sleep(0.01)
    with open(sys.argv[2], "a") as handled:
        handled.write(f"{number}\\n")

asyncio.run(app.run())
"""


def wait(is_so: Callable[[], bool]) -> None:
    for _ in range(1200):
        if is_so():
            return
        time.sleep(0.05)
    raise TimeoutError


@pytest.mark.parametrize("kind", ["push", "pop"])
def test_a_killed_application_loses_no_message(kind: str, address: str, tmp_path: Path) -> None:
    async def publish() -> None:
        async with Producer(address) as producer:
            await producer.send_many(Message(f"{kind}Killed", str(n).encode()) for n in range(300))

    handled = tmp_path / "handled"
    handled.touch()
    program = [sys.executable, "-c", PROGRAM, address, str(handled), kind]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}

    def numbers() -> list[int]:
        return [int(line) for line in handled.read_text().split()]

    asyncio.run(publish())
    with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL) as first:
        wait(lambda: len(numbers()) >= 100)
        first.send_signal(signal.SIGKILL)
    with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL) as second:
        wait(lambda: {*numbers()} == {*range(300)})
        second.send_signal(signal.SIGTERM)
        assert second.wait(30) == 0
