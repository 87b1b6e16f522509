"""Kill -9 of the broker under load, again and again: what was acknowledged must be there.

Each round writers send to eight queues, one message in flight each (and one writer sends batches),
until the broker is killed at a random moment. It is started again on the same directory, and every
queue is read from its beginning: offsets dense, every acknowledged message at its offset, nothing
that nobody sent, the messages of each writer in order and none twice. Run by `make kill`.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from harness.ledger import TOPIC, Ledger, read
from harness.servers import Server, broker
from roquet.model.errors import CallError
from roquet.net.channel import Channel
from roquet.store.check import check
from roquet.wire.calls.admin.topic import CreateTopic
from roquet.wire.calls.send import Send, SendBatch
from roquet.wire.records.batch import BatchItem, encode_batch

QUEUES = 8
BATCH_QUEUE = QUEUES - 1
BATCHES = (5, 5, 400)
"""Messages of a batch: small ones go through the log's map, a large one past it."""
LOAD_SECONDS = (0.3, 1.5)
"""How long a round's load lasts before the kill."""


async def write(channel: Channel, queue_id: int, ledger: Ledger) -> None:
    """Send to one queue, one call in flight, until the connection ends."""
    while True:
        count = random.choice(BATCHES) if queue_id == BATCH_QUEUE else 1
        bodies = [ledger.next_body(queue_id) for _ in range(count)]
        kind = SendBatch if len(bodies) > 1 else Send
        body = (
            encode_batch([BatchItem(0, b, b"") for b in bodies]) if len(bodies) > 1 else bodies[0]
        )
        call = kind(
            producer_group="kill",
            topic=TOPIC,
            queue_id=queue_id,
            born_timestamp=time.time_ns() // 1_000_000,
            properties="WAIT\x01true\x02",
            batch=len(bodies) > 1,
            body=body,
        )
        try:
            reply = await channel.call(call, timeout_ms=10_000)
        except CallError:
            return
        for step, one in enumerate(bodies):
            ledger.acknowledge(queue_id, reply.queue_offset + step, one)


async def load(running: Server, ledger: Ledger) -> None:
    """Writers at work until the broker is killed under them."""
    channel = await Channel.connect("127.0.0.1", running.port)
    create = CreateTopic(topic=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
    await channel.call(create)
    writers = [asyncio.create_task(write(channel, q, ledger)) for q in range(QUEUES)]
    await asyncio.sleep(random.uniform(*LOAD_SECONDS))
    running.kill()
    await asyncio.gather(*writers)
    await channel.close()


async def verify(port: int, ledger: Ledger) -> int:
    """Read everything back and judge it; gives the number of messages."""
    channel = await Channel.connect("127.0.0.1", port)
    total = 0
    for queue_id in range(QUEUES):
        bodies = await read(channel, queue_id)
        if ledger.judge(queue_id, bodies):
            raise AssertionError(f"queue {queue_id}: a message is there twice")
        total += len(bodies)
    await channel.close()
    return total


def main() -> None:
    """The rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    random.seed(seed)
    print(f"kill -9 under load, {args.rounds} rounds, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="roquet-kill-") as name:
        folder, ledger = Path(name), Ledger(QUEUES)
        for number in range(1, args.rounds + 1):
            flush = "SYNC_FLUSH" if number % 2 == 0 else "ASYNC_FLUSH"
            with broker(folder, "kill-a", {"flushDiskType": flush}) as running:
                asyncio.run(load(running, ledger))
            report = check(folder / "kill-a" / "store")
            with running:
                total = asyncio.run(verify(running.port, ledger))

            print(
                f"round {number:2}: {flush:11} {ledger.count:7} acknowledged, {total:7} stored, "
                f"0 lost; before recovery: {getattr(report, 'verdict', report)}",
                flush=True,
            )
    print(f"{args.rounds} rounds, every acknowledged message is there, in order, offsets dense")


if __name__ == "__main__":
    main()
