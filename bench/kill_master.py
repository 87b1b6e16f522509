"""Faults of a replicated cluster under load: what was acknowledged is there, in order.

    python -m bench.kill_master --rounds 50 --seed 7
    python -m bench.kill_master --kinds 'cut replicas,freeze master' --store file --no-java

Three brokers under a controller, or under two of them with three members of etcd, each a process of
its own. In each round senders in Python and in Java send to ten queues, one message in flight each,
and one process is killed (-9), frozen and thawed, or cut off from others for some seconds: the
master, a replica, the controller or etcd's leader. A master is cut off from its replicas, its
controllers, or one way only; senders reach it all the time. The next round begins when all brokers
are in sync again. At the end every queue is read from its beginning: offsets dense, every
acknowledged message at its offset, nothing that nobody sent, each sender's messages in order. A
message whose outcome was unknown is sent again, so that some are there twice; they are counted.
Prints how long the Python senders waited.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.lib import kill_java
from harness.faults import KINDS, Scene, kinds
from harness.ledger import TOPIC, Ledger, Pauses, read
from harness.replicated_cluster import BROKERS, ReplicatedCluster
from roquet.admin import replicas, topics
from roquet.admin.client import AdminClient
from roquet.client import Producer, ProducerConfig, SendStatus
from roquet.model.errors import RoquetError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.net.channel import Channel

PYTHON_QUEUES = 8
JAVA_QUEUES = 2
LOAD_SECONDS = (0.5, 1.5)
HEAL_SECONDS_MAX = 60
ACKNOWLEDGED_AFTER = 200
"""Messages of Python before what was killed starts again, and before a round ends."""
NO_ETCD = "no etcd on PATH (tools/install/servers.sh has it): one controller, its state in a file"


class Plan(NamedTuple):
    """Rounds to run, and with which processes."""

    rounds: int
    names: Sequence[str]
    """Kinds of faults, in turns."""
    has_etcd: bool
    has_java: bool

    @property
    def queues(self) -> int:
        """Queues of the topic; the last ones are Java's."""
        return PYTHON_QUEUES + (JAVA_QUEUES if self.has_java else 0)


async def write(producer: Producer, queue_id: int, ledger: Ledger) -> None:
    """Send to one queue, one message in flight, until cancelled."""

    def choose(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        return next(queue for queue in queues if queue.queue_id == queue_id)

    while True:
        body = ledger.next_body(queue_id)
        while True:
            try:
                receipt = await producer.send(TOPIC, body, selector=choose, timeout_ms=8_000)
            except (RoquetError, StopIteration, RuntimeError):
                ledger.failures += 1
                await asyncio.sleep(0.02)
                continue
            if receipt.status is SendStatus.SEND_OK:
                assert receipt.queue_offset is not None
                ledger.acknowledge(queue_id, receipt.queue_offset, body, time.monotonic())
                break
            ledger.failures += 1


async def healed(cluster: ReplicatedCluster, admin: AdminClient) -> list[replicas.ReplicaStatus]:
    """Wait until one broker leads and all are in sync; returns them, the master first.

    The controller names replicas as its proxies show them: these are no brokers of their own.
    """
    own = {cluster.address(name) for name in BROKERS}
    deadline = time.monotonic() + HEAL_SECONDS_MAX
    rows: list[replicas.ReplicaStatus] = []
    while time.monotonic() < deadline:
        with contextlib.suppress(RoquetError):
            rows = [row for row in await replicas.statuses(admin) if row.address in own]
            masters = [row for row in rows if row.is_master]
            in_sync = [row for row in rows if row.fault is None and row.is_in_sync]
            if len(masters) == 1 and len(rows) == len(in_sync) == len(BROKERS):
                return sorted(rows, key=lambda row: not row.is_master)
        await asyncio.sleep(0.2)
    raise AssertionError(f"the brokers are not in sync after {HEAL_SECONDS_MAX} s: {rows}")


class Rounds:
    """Rounds of faults, and what senders saw of them."""

    def __init__(self, cluster: ReplicatedCluster, admin: AdminClient, ledger: Ledger) -> None:
        self._cluster = cluster
        self._admin = admin
        self._ledger = ledger
        self.pauses = Pauses()

    async def run(self, number: int, kind: str) -> None:
        """Wait for a healthy cluster, cause one fault, and mend it."""
        master, *others = [
            self._cluster.broker_at(row.address) for row in await healed(self._cluster, self._admin)
        ]
        await asyncio.sleep(random.uniform(*LOAD_SECONDS))
        fault = await KINDS[kind](Scene(self._cluster, master, others))
        began = time.monotonic()
        await fault.begin()
        if fault.seconds is None:
            await self._acknowledged(fault.text)
            await fault.end()
        else:
            await asyncio.sleep(fault.seconds)
            await fault.end()
            await self._acknowledged(fault.text)
        pause = self.pauses.note(kind, began, self._ledger)
        lasted = "" if fault.seconds is None else f" for {fault.seconds:.1f} s"
        print(
            f"round {number:3}: {kind:17} longest pause {pause:6.2f} s, {self._ledger.count:8} "
            f"acknowledged, {self._ledger.failures:6} not; {fault.text}{lasted}",
            flush=True,
        )

    async def _acknowledged(self, text: str) -> None:
        """Wait until senders go on."""
        count = self._ledger.measured + ACKNOWLEDGED_AFTER
        deadline = time.monotonic() + HEAL_SECONDS_MAX
        while self._ledger.measured < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{text}: no messages after {HEAL_SECONDS_MAX} s")
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def load(cluster: ReplicatedCluster, plan: Plan, ledger: Ledger) -> AsyncIterator[None]:
    """Senders of both languages at work, until the block ends."""
    namesrv = cluster.namesrv
    config = ProducerConfig(send_timeout_ms=8_000, try_timeout_ms=1_000)
    async with contextlib.AsyncExitStack() as stack:
        if plan.has_java:
            queues = range(PYTHON_QUEUES, plan.queues)
            java = kill_java.JavaSenders(namesrv, queues, ledger, cluster.folder / "java")
            stack.callback(lambda: print(f"{java.acknowledged} of them were sent by Java"))
            await stack.enter_async_context(java)
        producer = await stack.enter_async_context(Producer(namesrv, config=config))
        writers = [
            asyncio.create_task(write(producer, queue_id, ledger))
            for queue_id in range(PYTHON_QUEUES)
        ]
        try:
            yield
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)


async def run(plan: Plan, folder: Path) -> Pauses:
    """The rounds; returns the longest pauses in seconds by kind of fault."""
    ledger = Ledger(plan.queues)
    async with (
        ReplicatedCluster(folder, has_etcd=plan.has_etcd) as cluster,
        AdminClient(cluster.namesrv) as admin,
    ):
        await healed(cluster, admin)
        wanted = topics.TopicSettings(read_queues=plan.queues, write_queues=plan.queues)
        await topics.create(admin, TOPIC, wanted)
        rounds = Rounds(cluster, admin, ledger)
        async with load(cluster, plan, ledger):
            for number in range(plan.rounds):
                await rounds.run(number + 1, plan.names[number % len(plan.names)])
            await healed(cluster, admin)
        master, *_ = await healed(cluster, admin)
        await verify(master.address, ledger)
    return rounds.pauses


async def verify(address: str, ledger: Ledger) -> None:
    """Read all queues of the master and judge them."""
    host, _, port = address.rpartition(":")
    twice = stored = 0
    async with await Channel.connect(host, int(port)) as channel:
        for queue_id in range(len(ledger.sent)):
            bodies = await read(channel, queue_id)
            twice += ledger.judge(queue_id, bodies)
            stored += len(bodies)
    print(f"{ledger.count} acknowledged, 0 lost, 0 out of order; {stored} stored, {twice} twice")


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the arguments ask for, as far as this machine has what it takes.

    Raises SystemExit for a kind of fault that there is not.
    """
    has_etcd = args.store != "file" and shutil.which("etcd") is not None
    if args.store != "file" and not has_etcd:
        print(NO_ETCD)
    lack = kill_java.missing() if args.java else "not wanted"
    if args.java and lack is not None:
        print(f"{lack}; no senders in Java")
    names = kinds(has_etcd=has_etcd)
    if args.kinds is not None:
        wanted = [name.strip() for name in args.kinds.split(",")]
        if unknown := [name for name in wanted if name not in KINDS]:
            raise SystemExit(f"no such fault: {', '.join(unknown)}; there are {', '.join(KINDS)}")
        if not (names := [name for name in wanted if name in names]):
            raise SystemExit("no round: all of these faults need etcd")
    rounds = args.rounds if args.rounds is not None else len(names)
    return Plan(rounds=rounds, names=names, has_etcd=has_etcd, has_java=lack is None)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=None, help="one of each kind if not given")
    parser.add_argument("--kinds", default=None, help=f"of {', '.join(KINDS)}; with commas")
    parser.add_argument(
        "--store", choices=("file", "etcd"), default="etcd", help="file where etcd is not on PATH"
    )
    parser.add_argument(
        "--java",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="senders of Apache's Java client as well, where Java and Maven are",
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="a file for the pauses, as JSON")
    parser.add_argument(
        "--folder", type=Path, default=None, help="for stores and logs, which then stay there"
    )
    return parser.parse_args()


def main() -> None:
    """The rounds, and a summary."""
    args = arguments()
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    random.seed(seed)
    plan = plan_of(args)
    state = "etcd, two controllers" if plan.has_etcd else "a file, one controller"
    senders = "Python and Java" if plan.has_java else "Python"
    print(
        f"faults of a replicated cluster, {plan.rounds} rounds, seed {seed}; state in {state}; "
        f"senders in {senders}",
        flush=True,
    )
    with contextlib.ExitStack() as stack:
        if args.folder is None:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-kill-master-"))
            folder = Path(name)
        else:
            folder = args.folder.resolve()
            folder.mkdir(parents=True, exist_ok=True)
        pauses = asyncio.run(run(plan, folder))
    for kind, seconds in pauses.by_kind.items():
        middle = statistics.median(seconds)
        print(f"{kind:17} median pause {middle:6.2f} s, longest {max(seconds):6.2f} s")
    if args.out is not None:
        args.out.write_text(json.dumps({"seed": seed, "pauses": pauses.by_kind}), "utf-8")


if __name__ == "__main__":
    main()
