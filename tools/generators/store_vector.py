"""Store vector: a data directory with every kind of message, kept so that later versions open it.

    python tools/generators/store_vector.py tests/vectors/store-0.1     once for each version

It writes data.tar.xz and expected.json: the bodies of each topic, and the progress of the group.
Timer log and timer wheel, which are large and made anew, are left out.
"""

import argparse
import asyncio
import json
import tarfile
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from roquet.client.producer import Producer
from roquet.testing.cluster import Cluster, cluster

SIZES: dict[str, Any] = {
    "log_file_size": 64 * 1024,
    "queue_file_entries": 20,
    "index_slots": 100,
    "index_entries": 400,
}
"""Sizes of files, with which the directory has to be opened."""

LEFT_OUT = ("timerlog", "timerwheel", "lock")


async def fill(running: Cluster) -> dict[str, Any]:
    """Send and read all kinds of messages; gives what a later version has to find."""
    namesrv = running.namesrv_addr
    async with Producer(namesrv) as producer:
        for number in range(100):
            body = f"plain {number} ".encode().ljust(1000, b".")
            await producer.send("plain", body, keys=[f"K{number}"], tag=f"T{number % 3}")
        await producer.send_many([Message("batched", b"batch %d" % n) for n in range(10)])
        for number in range(5):
            await producer.send("ordered", b"step %d" % number, order_key="one")
        await producer.send("waiting", b"by level", delay_level=5)
        await producer.send("waiting", b"by time", delay=timedelta(minutes=1))
        await producer.send("popped", b"popped and not acknowledged")
    await end_transactions(namesrv)
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with PushConsumer(namesrv, group="readers", topic="plain", config=config) as consumer:
        for message in await consumer.fetch(40, timeout_ms=10_000):
            await message.ack()
    async with PopConsumer(namesrv, group="poppers", topic="popped") as consumer:
        await consumer.fetch(1, timeout_ms=5_000)
    return {
        "topics": {
            "plain": 100, "batched": 10, "ordered": 5, "booked": 1, "waiting": 2, "popped": 1,
        },
        "half": 3,
        "key": "K42",
        "group": "readers",
        "sizes": SIZES,
    }  # fmt: skip


async def end_transactions(namesrv: str) -> None:
    """One transaction is committed, one rolled back, one left open."""

    async def check(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async with TransactionProducer(namesrv, group="bookers", check=check) as producer:
        for state in (
            TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
        ):  # fmt: skip

            async def decided(_: object, state: TransactionState = state) -> TransactionState:
                return state

            await producer.send_in_transaction("booked", state.name.encode(), local=decided)


async def make(place: Path) -> dict[str, Any]:
    """Make the directory below `place`; gives what is in it."""
    async with cluster(store=place, **SIZES) as running:
        return await fill(running)


def main(target: Path) -> None:
    """Make a directory, and pack it into `target`."""
    with TemporaryDirectory() as place:
        expected = asyncio.run(make(Path(place)))
        data = Path(place) / "broker-a"
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target / "data.tar.xz", "w:xz") as archive:
            for path in sorted(data.rglob("*")):
                name = path.relative_to(data)
                if path.is_file() and name.parts[0] not in LEFT_OUT:
                    archive.add(path, name.as_posix(), filter=anonymous)
    (target / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without its owner."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, help="a directory for data.tar.xz and expected.json")
    main(parser.parse_args().target)
