"""Faults of a replicated cluster under load: what was acknowledged is there, in order.

    python bench/kill_master.py --rounds 50 --seed 7

Three brokers under a controller, each a process of its own. In each round writers send to eight
queues, one message in flight each, and one process is killed (-9) or frozen and thawed: the master,
a replica or the controller. The next round begins when all brokers are in sync again. At the end
every queue is read from its beginning: offsets dense, every acknowledged message at its offset,
nothing that nobody sent, each writer's messages in order. A message whose outcome was unknown is
sent again, so that some are there twice; they are counted. Prints how long senders waited.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools"), str(ROOT / "bench")]

from kill import judge, read  # noqa: E402

import genuine  # noqa: E402
from roquet.admin import replicas, topics  # noqa: E402
from roquet.admin.client import AdminClient  # noqa: E402
from roquet.client import Producer, ProducerConfig, SendStatus  # noqa: E402
from roquet.model.errors import RoquetError  # noqa: E402
from roquet.model.message import Message  # noqa: E402
from roquet.model.queue import MessageQueue  # noqa: E402
from roquet.net.channel import Channel  # noqa: E402

TOPIC = "Kill"
QUEUES = 8
BROKERS = 3
FAULTS = ("kill master", "freeze master", "kill replica", "freeze replica", "kill controller")
FROZEN_SECONDS = (1.0, 9.0)
LOAD_SECONDS = (0.5, 1.5)
HEAL_SECONDS_MAX = 60
ACKNOWLEDGED_AFTER = 200
"""Messages that have to be acknowledged after a fault before it is mended."""


class Ledger:
    """Messages sent and acknowledged, by queue."""

    def __init__(self) -> None:
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(QUEUES)]
        self.sent: list[set[bytes]] = [set() for _ in range(QUEUES)]
        self.times: list[float] = []
        """Monotonic time of each acknowledgement."""
        self.failures = 0

    @property
    def count(self) -> int:
        """Number of acknowledged messages."""
        return len(self.times)


async def write(producer: Producer, queue_id: int, ledger: Ledger) -> None:
    """Send to one queue, one message in flight, until cancelled."""

    def choose(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        return next(queue for queue in queues if queue.queue_id == queue_id)

    for number in itertools.count():
        body = b"%d:%d:" % (queue_id, number) + random.randbytes(random.randrange(1, 400))
        ledger.sent[queue_id].add(body)
        while True:
            try:
                receipt = await producer.send(TOPIC, body, selector=choose, timeout_ms=8_000)
            except (RoquetError, StopIteration, RuntimeError):
                ledger.failures += 1
                await asyncio.sleep(0.02)
                continue
            if receipt.status is SendStatus.SEND_OK:
                assert receipt.queue_offset is not None
                ledger.acknowledged[queue_id][receipt.queue_offset] = body
                ledger.times.append(time.monotonic())
                break
            ledger.failures += 1


class Processes:
    """Name server with controller, and brokers, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = [genuine.free_port() for _ in range(2 + 2 * BROKERS)]
        self.name_server = f"127.0.0.1:{ports[0]}"
        self.controller_port = ports[1]
        self.ports = dict(zip(range(1, BROKERS + 1), ports[2::2], strict=True))
        self._ha_ports = dict(zip(range(1, BROKERS + 1), ports[3::2], strict=True))
        self._stacks: dict[str, contextlib.ExitStack] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        stack = contextlib.ExitStack()
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        child = stack.enter_context(
            genuine.process(
                [sys.executable, "-m", "roquet", *self._arguments(name)], self.folder / name, log
            )
        )
        self._stacks[name], self._children[name] = stack, child
        genuine.wait_for(log, "ready", child)

    def _arguments(self, name: str) -> list[str]:
        port = self.name_server.rpartition(":")[2]
        if name == "namesrv":
            return ["namesrv", "--port", port]
        if name == "controller":
            store = f"file:{self.folder / 'state'}"
            return ["controller", "--port", str(self.controller_port), "--store", store]
        number = int(name.removeprefix("broker"))
        path = self.folder / f"{name}.conf"
        path.write_text(
            f"brokerName=broker-a\nbrokerIP1=127.0.0.1\nlistenPort={self.ports[number]}\n"
            f"haListenPort={self._ha_ports[number]}\nvip_port=false\n"
            f"storePathRootDir={self.folder / name / 'store'}\nmappedFileSizeCommitLog=16777216\n"
            f"enableControllerMode=true\ncontrollerAddr=127.0.0.1:{self.controller_port}\n"
            f"namesrvAddr={self.name_server}\n",
            "utf-8",
        )
        return ["broker", "--config", str(path)]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self._children[name].send_signal(number)

    def close(self, name: str) -> None:
        """Reap a process that has ended, or end it."""
        self._stacks.pop(name).close()

    def __enter__(self) -> "Processes":
        for name in ("namesrv", "controller", *(f"broker{n}" for n in self.ports)):
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._stacks):
            with contextlib.suppress(ProcessLookupError):
                self.signal(name, signal.SIGCONT)
            self.close(name)

    def broker_at(self, address: str) -> str:
        """Name of the broker process at an address."""
        port = int(address.rpartition(":")[2])
        return next(f"broker{n}" for n, its in self.ports.items() if its == port)


async def healed(admin: AdminClient) -> list[replicas.ReplicaStatus]:
    """Wait until one broker leads and all are in sync; gives them, the master first."""
    deadline = time.monotonic() + HEAL_SECONDS_MAX
    rows: list[replicas.ReplicaStatus] = []
    while time.monotonic() < deadline:
        with contextlib.suppress(RoquetError):
            rows = await replicas.statuses(admin)
            masters = [row for row in rows if row.is_master]
            in_sync = [row for row in rows if row.fault is None and row.is_in_sync]
            if len(masters) == 1 and len(rows) == len(in_sync) == BROKERS:
                return sorted(rows, key=lambda row: not row.is_master)
        await asyncio.sleep(0.2)
    raise AssertionError(f"the brokers are not in sync after {HEAL_SECONDS_MAX} s: {rows}")


async def fault(kind: str, processes: Processes, admin: AdminClient, ledger: Ledger) -> float:
    """Cause one fault and mend it; gives the longest time without an acknowledgement."""
    master, *others = await healed(admin)
    await asyncio.sleep(random.uniform(*LOAD_SECONDS))
    action, _, victim = kind.partition(" ")
    row = master if victim == "master" else random.choice(others)
    name = "controller" if victim == "controller" else processes.broker_at(row.address)
    before, began = ledger.count, time.monotonic()
    if action == "kill":
        processes.signal(name, signal.SIGKILL)
        processes.close(name)
        if victim == "controller":
            await asyncio.to_thread(processes.start, name)
    else:
        processes.signal(name, signal.SIGSTOP)
    deadline = began + HEAL_SECONDS_MAX
    thaw = began + random.uniform(*FROZEN_SECONDS)
    is_frozen = action == "freeze"
    while ledger.count < before + ACKNOWLEDGED_AFTER or is_frozen:
        if is_frozen and time.monotonic() >= thaw:
            processes.signal(name, signal.SIGCONT)
            is_frozen = False
        if time.monotonic() > deadline:
            raise AssertionError(f"{kind}: nothing is acknowledged after {HEAL_SECONDS_MAX} s")
        await asyncio.sleep(0.01)
    if action == "kill" and victim != "controller":
        await asyncio.to_thread(processes.start, name)
    times = [began, *(each for each in ledger.times[max(before - 1, 0) :] if each >= began)]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


async def run(rounds: int, processes: Processes) -> dict[str, list[float]]:
    """The rounds; gives the longest pauses in seconds by kind of fault."""
    ledger, pauses = Ledger(), {kind: list[float]() for kind in FAULTS}
    async with AdminClient(processes.name_server) as admin:
        await healed(admin)
        wanted = topics.TopicSettings(read_queues=QUEUES, write_queues=QUEUES)
        await topics.create(admin, TOPIC, wanted)
        config = ProducerConfig(send_timeout_ms=8_000, try_timeout_ms=1_000)
        async with Producer(processes.name_server, config=config) as producer:
            writers = [asyncio.create_task(write(producer, q, ledger)) for q in range(QUEUES)]
            try:
                for number in range(rounds):
                    kind = FAULTS[number % len(FAULTS)]
                    pause = await fault(kind, processes, admin, ledger)
                    pauses[kind].append(pause)
                    print(
                        f"round {number + 1:3}: {kind:15} longest pause {pause:6.2f} s, "
                        f"{ledger.count:8} acknowledged, {ledger.failures:6} not",
                        flush=True,
                    )
                master = (await healed(admin))[0]
            finally:
                for writer in writers:
                    writer.cancel()
                await asyncio.gather(*writers, return_exceptions=True)
        await verify(master.address, ledger)
    return pauses


async def verify(address: str, ledger: Ledger) -> None:
    """Read all queues of the master and judge them."""
    host, _, port = address.rpartition(":")
    channel = await Channel.connect(host, int(port))
    twice = stored = 0
    for queue_id in range(QUEUES):
        bodies = await read(channel, queue_id)
        twice += judge(queue_id, bodies, ledger.acknowledged[queue_id], ledger.sent[queue_id])
        stored += len(bodies)
    await channel.close()
    print(f"{ledger.count} acknowledged, 0 lost, 0 out of order; {stored} stored, {twice} twice")


def main() -> None:
    """The rounds, and a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=len(FAULTS))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="a file for the pauses, as JSON")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    random.seed(seed)
    print(f"faults of a replicated cluster, {args.rounds} rounds, seed {seed}")
    with (
        tempfile.TemporaryDirectory(prefix="roquet-kill-master-") as name,
        Processes(Path(name)) as processes,
    ):
        pauses = asyncio.run(run(args.rounds, processes))
    for kind, seconds in pauses.items():
        if seconds:
            middle = statistics.median(seconds)
            print(f"{kind:15} median pause {middle:6.2f} s, longest {max(seconds):6.2f} s")
    if args.out is not None:
        args.out.write_text(json.dumps({"seed": seed, "pauses": pauses}), "utf-8")


if __name__ == "__main__":
    main()
