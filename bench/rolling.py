"""A rolling restart of a replicated cluster under load: nothing is lost, no queue waits for long.

    python -m bench.rolling --rounds 3

Three brokers under a controller, each a process of its own. A writer sends to each of eight queues,
one message in flight, and a consumer reads them. In each round every process is stopped in good
order and started again, as an operator upgrades a cluster: the name server, the controller, the
replicas one after the other, and last the master, which hands over the lead before
(`roquet cluster retire`). The next one begins when all are in sync again. At the end the consumer
has to have every acknowledged message, each at its offset. Prints the longest time without an
acknowledgement of any queue in each step; more than two seconds are a failure. Run by `make
rolling`.
"""

import argparse
import asyncio
import itertools
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from harness.ledger import Ledger
from harness.replicated_cluster import BROKER_NAME, BROKERS, NAME_SERVER, ReplicatedCluster
from roquet.admin import controllers, retire, topics
from roquet.admin.client import AdminClient
from roquet.admin.controllers import GroupStatus
from roquet.client import Producer, ProducerConfig, PushConsumer, SendStatus
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.client.reading.message import InboundMessage
from roquet.model.errors import RoquetError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue

TOPIC = "Rolling"
QUEUES = 8
HEAL_SECONDS_MAX = 60
READ_SECONDS_MAX = 60
PAUSE_SECONDS_MAX = 2.0
LOG_FILE_BYTES = 64 * 1024 * 1024
LOAD_SECONDS = 2.0
"""Load between two restarts."""


async def healed(admin: AdminClient, cluster: ReplicatedCluster) -> GroupStatus:
    """Wait until a broker leads and all are in sync."""
    addresses = [cluster.address(name) for name in cluster.controllers]
    deadline = time.monotonic() + HEAL_SECONDS_MAX
    while time.monotonic() < deadline:
        with suppress(RoquetError):
            group = await controllers.group(admin, BROKER_NAME, addresses)
            well = [one for one in group.members if one.is_alive and one.is_in_sync]
            if group.master is not None and len(well) == len(BROKERS):
                return group
        await asyncio.sleep(0.2)
    raise AssertionError(f"the brokers are not in sync after {HEAL_SECONDS_MAX} s")


async def write(producer: Producer, queue_id: int, ledger: Ledger) -> None:
    """Send to one queue, one message in flight, until cancelled."""

    def choose(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        return next(queue for queue in queues if queue.queue_id == queue_id)

    for number in itertools.count():
        body = b"%d:%d" % (queue_id, number)
        while True:
            try:
                receipt = await producer.send(TOPIC, body, selector=choose)
            except (RoquetError, StopIteration, RuntimeError):
                ledger.failures += 1
                await asyncio.sleep(0.02)
                continue
            if receipt.status is SendStatus.SEND_OK:
                assert receipt.queue_offset is not None
                ledger.acknowledge(queue_id, receipt.queue_offset, body, time.monotonic())
                break
            ledger.failures += 1
        await asyncio.sleep(0.005)


@asynccontextmanager
async def load(cluster: ReplicatedCluster, ledger: Ledger) -> AsyncIterator[None]:
    """Writers and a consumer; afterwards the consumer has read all, or the time is over."""

    async def note(message: InboundMessage) -> None:
        ledger.note_read(message.queue.queue_id, message.queue_offset, message.body)

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    sending = ProducerConfig(send_timeout_ms=8_000, try_timeout_ms=1_000)
    async with PushConsumer(
        cluster.namesrv, group="rolling", topic=TOPIC, config=config
    ) as consumer:
        reading = asyncio.create_task(consumer.run(note))
        async with Producer(cluster.namesrv, config=sending) as producer:
            writers = [asyncio.create_task(write(producer, q, ledger)) for q in range(QUEUES)]
            try:
                yield
            finally:
                for writer in writers:
                    writer.cancel()
                await asyncio.gather(*writers, return_exceptions=True)
        deadline = time.monotonic() + READ_SECONDS_MAX
        while ledger.missing and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def roll(cluster: ReplicatedCluster, admin: AdminClient, ledger: Ledger) -> list[float]:
    """Restart every process once, in the documented order; gives the longest pause of each step."""
    group = await healed(admin, cluster)
    brokers = sorted(group.members, key=lambda one: one.is_master)
    names = (cluster.broker_at(one.address) for one in brokers)
    steps = [NAME_SERVER, *cluster.controllers, *names]
    pauses = []
    for name in steps:
        began = time.monotonic()
        role = ""
        if name in BROKERS:
            retired = await retire.retire(admin, cluster.address(name), wait_ms=30_000)
            role = "master" if retired.was_master else "replica"
        handed_over = time.monotonic()
        await cluster.restart(name)
        await healed(admin, cluster)
        took = time.monotonic() - began
        await asyncio.sleep(LOAD_SECONDS)
        pauses.append(ledger.longest_pause(began, time.monotonic()))
        print(
            f"{name:12} {role:7} ready to stop after {handed_over - began:5.2f} s, all in sync"
            f" after {took:6.2f} s; longest pause of a queue {pauses[-1]:5.2f} s;"
            f" {ledger.count} acknowledged, {ledger.failures} not",
            flush=True,
        )
    return pauses


async def run(rounds: int, folder: Path) -> float:
    """The rounds; gives the longest pause in seconds."""
    ledger, pauses = Ledger(QUEUES), list[float]()
    cluster = ReplicatedCluster(folder, has_links=False, mappedFileSizeCommitLog=LOG_FILE_BYTES)
    async with cluster, AdminClient(cluster.namesrv) as admin:
        await healed(admin, cluster)
        wanted = topics.TopicSettings(read_queues=QUEUES, write_queues=QUEUES)
        await topics.create(admin, TOPIC, wanted)
        async with load(cluster, ledger):
            await asyncio.sleep(LOAD_SECONDS)
            for _ in range(rounds):
                pauses += await roll(cluster, admin, ledger)
    if ledger.contradictions:
        raise AssertionError("; ".join(ledger.contradictions))
    if missing := ledger.missing:
        raise AssertionError(f"{len(missing)} acknowledged messages are lost: {missing[:5]}")
    print(
        f"{ledger.count} acknowledged, 0 lost; {ledger.twice} read twice;"
        f" longest pause of a queue {max(pauses):.2f} s"
    )
    return max(pauses)


def main() -> None:
    """The rounds, and a failure for a long pause."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--pause-max", type=float, default=PAUSE_SECONDS_MAX, help="seconds that a queue may wait"
    )
    args = parser.parse_args()
    logging.getLogger("roquet").setLevel(logging.ERROR)  # a consumer says that a broker is away
    with tempfile.TemporaryDirectory(prefix="roquet-rolling-") as name:
        longest = asyncio.run(run(args.rounds, Path(name)))
    if longest > args.pause_max:
        sys.exit(f"a queue waited for {longest:.2f} s, more than {args.pause_max:g}")


if __name__ == "__main__":
    main()
