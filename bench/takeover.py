"""How long a dead member's queues stand still: two consumers, SIGKILL to one of them.

Prints one line of JSON and saves rows: for sharing and for ordered groups, the seconds from the
kill until a message of each of the dead member's queues is handled by the other one. The silent
ones are stopped instead, with their connections open, and the broker gives them up after a limit
that is shortened here: what is told is the seconds after that. Name server, broker and consumers
are processes of ours; messages are sent to every queue all the time.

    python -m bench.takeover --rounds 3
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from bench.lib.rows import Row, bound, save
from bench.lib.sides import ours
from roquet.client import ConsumeFrom, ConsumerConfig, Producer, ProducerConfig, PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.model.message import Message

GOAL_SECONDS = 3.0
QUEUES = 8
WAIT_SECONDS_MAX = 90
"""The broker gives up a silent ordered member after 60 s: longer means that something hangs."""

SILENCE_SECONDS = 6
"""The broker's limit where members die in silence; 120 by default."""

Queue = tuple[str, int]


async def consume(namesrv: str, topic: str, group: str, *, ordered: bool) -> None:
    """A member that says which queue each message is from, until it is killed."""

    async def handle(message: ReceivedMessage) -> None:
        print(time.monotonic(), message.broker_name, message.queue_id, flush=True)

    config = ConsumerConfig(
        consume_from=ConsumeFrom.FIRST, ordered=ordered, heartbeat_period_ms=SILENCE_SECONDS * 250
    )
    async with PushConsumer(namesrv, group=group, topic=topic, config=config) as consumer:
        await consumer.run(handle)


class Member:
    """A consumer in a process of its own."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.last: dict[Queue, float] = {}
        """When it handled a message of each queue the last time."""
        self.listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self.child.stdout is not None
        async for line in self.child.stdout:
            if not line.endswith(b"\n"):
                return  # the kill cut it
            moment, broker, queue_id = line.split()
            self.last[broker.decode(), int(queue_id)] = float(moment)

    def since(self, moment: float) -> set[Queue]:
        """The queues of which it has handled something since then."""
        return {queue for queue, last in self.last.items() if last >= moment}


@contextlib.asynccontextmanager
async def member(namesrv: str, topic: str, group: str, *, ordered: bool) -> AsyncIterator[Member]:
    """A member until the block ends, if it lives so long."""
    command = [sys.executable, "-m", "bench.takeover", "--member", namesrv, topic, group]
    child = await asyncio.create_subprocess_exec(
        *command, *(["--ordered"] if ordered else []), stdout=subprocess.PIPE
    )
    found = Member(child)
    try:
        yield found
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGKILL)
        await child.wait()
        await found.listening


@contextlib.asynccontextmanager
async def traffic(namesrv: str, topic: str) -> AsyncIterator[None]:
    """Messages to all queues in turn, all the time."""

    async def send() -> None:
        async with Producer(namesrv, config=ProducerConfig(new_topic_queues=QUEUES)) as producer:
            while True:
                await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(16)))
                await asyncio.sleep(0.02)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Waits for it; RuntimeError when it never comes."""
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise RuntimeError(f"{WAIT_SECONDS_MAX} s were not enough until {what}") from None


async def takeover(namesrv: str, name: str, death: signal.Signals, *, ordered: bool) -> float:
    """Seconds from one member's death until all its queues are handled by the other."""
    async with (
        traffic(namesrv, name),
        member(namesrv, name, name, ordered=ordered) as dying,
        member(namesrv, name, name, ordered=ordered) as staying,
    ):

        def is_shared() -> bool:
            moment = time.monotonic() - 0.5
            one, other = dying.since(moment), staying.since(moment)
            return bool(one and other) and not one & other and len(one | other) == QUEUES

        await until(is_shared, "both members had queues")
        queues = dying.since(time.monotonic() - 0.5)
        killed = time.monotonic()
        dying.child.send_signal(death)
        firsts: dict[Queue, float] = {}

        def all_flow() -> bool:
            for queue in queues & staying.since(killed):
                firsts.setdefault(queue, staying.last[queue])
            return len(firsts) == len(queues)

        await until(all_flow, "the dead member's queues flowed again")
        return max(firsts.values()) - killed


async def measure(namesrv: str, rounds: int, death: signal.Signals) -> dict[str, list[float]]:
    """Both kinds of groups, in turn."""
    found: dict[str, list[float]] = {"sharing": [], "ordered": []}
    for number in range(rounds):
        for kind, seconds in found.items():
            name = f"Takeover-{kind}-{number}"
            seconds.append(await takeover(namesrv, name, death, ordered=kind == "ordered"))
    return found


def killed(rounds: int) -> dict[str, list[float]]:
    """Deaths that the broker sees at once."""
    with tempfile.TemporaryDirectory(prefix="roquet-takeover-") as name, ours(Path(name)) as side:
        return asyncio.run(measure(side.namesrv, rounds, signal.SIGKILL))


def silent(rounds: int) -> dict[str, list[float]]:
    """Deaths that it does not see; the seconds are those after its limit."""
    os.environ["ROQUET_CLIENT_SILENCE"] = f"{SILENCE_SECONDS}s"
    with tempfile.TemporaryDirectory(prefix="roquet-takeover-") as name, ours(Path(name)) as side:
        found = asyncio.run(measure(side.namesrv, rounds, signal.SIGSTOP))
    return {f"silent {kind}": [s - SILENCE_SECONDS for s in all_] for kind, all_ in found.items()}


def rows(seconds: dict[str, list[float]]) -> list[Row]:
    """Medians, and the worst of all rounds, which have the goal."""
    table: list[Row] = []
    for kind, all_ in seconds.items():
        if all_:
            title = f"queues of a dead member taken over, {kind}: "
            table += [
                Row(f"{title}median", "s", statistics.median(all_)),
                bound(f"{title}worst", "s", max(all_), GOAL_SECONDS),
            ]
    return table


def main() -> None:
    """The rounds, or one of the consumers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--silent-rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench-takeover.json"))
    parser.add_argument("--member", nargs=3, metavar=("NAMESRV", "TOPIC", "GROUP"))
    parser.add_argument("--ordered", action="store_true")
    given = parser.parse_args()
    if given.member:
        asyncio.run(consume(*given.member, ordered=given.ordered))
        return
    seconds = {**killed(given.rounds), **silent(given.silent_rounds)}
    result = {
        "cores": os.cpu_count(),
        "goal_seconds": GOAL_SECONDS,
        **{
            kind: {"median": round(statistics.median(all_), 3), "worst": round(max(all_), 3)}
            for kind, all_ in seconds.items()
            if all_
        },
        "reached": all(s <= GOAL_SECONDS for all_ in seconds.values() for s in all_),
    }
    print(json.dumps(result))
    save(rows(seconds), given.out)


if __name__ == "__main__":
    main()
