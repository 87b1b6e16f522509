"""The transactional sink under kills: each row visible once, and nothing that may follow later.

A round writes files of rows to a new topic, some files in each micro-batch. In the end every row is
there once, by its key and by its body; each batch has a record that says done, and nothing else is
beside them; and once the broker has ended or given up all half messages, the rows are the same.
"""

import argparse
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.lib.kill_stage import Stage
from harness.processes import Process
from roquet.model import names

QUEUES = 8
BATCHES = 4
FILES = 2
"""Of each batch, and so its partitions."""

IMMUNE = "10s"
SETTINGS = {
    "ROQUET_TRANSACTION_TIMEOUT": "1s",
    "ROQUET_TRANSACTION_CHECK_INTERVAL": "3s",
    "ROQUET_TRANSACTION_CHECK_MAX": "1",
}
"""A broker so hasty that it gives up half messages within a round: 10 s after they came, and not
after some minutes; so that also commits come too late, and rows are sent anew."""

BEGAN = "the query has begun"
RUNNING_S = (0.0, 8.0)
"""From the beginning of a query to the kill, about the time it takes."""

SENDING_S = (0.0, 2.0)
"""From the first half messages of a batch to the kill."""

COMMITTING_S = (0.0, 1.0)
"""From the commit record to the kill: some rows are visible then."""

ENDED_S_MAX = 120


class Sink:
    """One round: files of rows into a new topic."""

    def __init__(self, stage: Stage, number: int, rows: int) -> None:
        self._stage, self._rows = stage, rows
        self._topic = f"KillSink{number}"
        self._folder = stage.folder / f"sink-{number}"
        self._commits = self._folder / "checkpoint" / "roquet-commits"
        stage.create(self._topic, QUEUES)
        self._fill()

    def _fill(self) -> None:
        """All files of one size: a batch that runs again cuts its partitions in the same way."""
        (self._folder / "rows").mkdir(parents=True)
        count = BATCHES * FILES
        for part in range(count):
            lines = [f"row {at:09d}\n" for at in range(part, self._rows, count)]
            (self._folder / "rows" / f"{part}.txt").write_text("".join(lines))

    def start(self) -> Process:
        command = [
            sys.executable,
            "-m",
            "bench.kill_sink",
            self._stage.namesrv,
            self._topic,
            str(self._folder),
        ]
        return self._stage.start_driver(command)

    def moment(self, driver: Process, deadline: float) -> float | None:
        """Somewhere in a run, or while it sends half messages, or while it commits them."""
        sent = self._sent()
        moments: list[tuple[Callable[[], bool], tuple[float, float]]] = [
            (lambda: True, RUNNING_S),
            (lambda: self._sent() > sent, SENDING_S),
            (lambda: any(self._commits.glob("*.open")), COMMITTING_S),
        ]
        has_come, wait_s = random.choice(moments)
        while driver.is_running and time.monotonic() < deadline:
            if BEGAN in driver.output and has_come():
                return random.uniform(*wait_s)
            time.sleep(0.05)
        return None

    def _sent(self) -> int:
        """How many half messages the broker ever had."""
        return max_offset(self._stage.broker.address, names.HALF_TOPIC)

    def judge(self) -> str:
        self._compare()
        records = sorted(path.name for path in self._commits.iterdir() if path.name != "lock")
        states = Counter(name.rpartition(".")[2] for name in records)
        if states != {"done": BATCHES}:
            raise AssertionError(f"left beside {BATCHES} done batches: {records}")
        half, given_up = self._until_all_have_ended()
        self._compare()
        shutil.rmtree(self._folder)
        return (
            f"{self._rows:,} rows visible, each once; {BATCHES} batches done; "
            f"half messages so far: {half:,}, none open, {given_up:,} given up"
        )

    def _compare(self) -> None:
        """Each row once: by its body, and by its key."""
        found = read(self._stage.namesrv, self._topic)
        bodies = Counter(body for body, _ in found)
        keys = Counter(key for _, key in found)
        wanted = {f"row {at:09d}".encode() for at in range(self._rows)}
        doubled = len(found) - len(bodies), len(found) - len(keys)
        missing, foreign = len(wanted - bodies.keys()), len(bodies.keys() - wanted)
        if any(doubled) or missing or foreign:
            raise AssertionError(
                f"{doubled[0]} bodies and {doubled[1]} keys doubled, {missing} missing, {foreign} "
                f"foreign rows: {[body for body, count in bodies.items() if count > 1][:3]}, "
                f"{sorted(wanted - bodies.keys())[:3]}"
            )

    def _until_all_have_ended(self) -> tuple[int, int]:
        """Wait until the broker has no half message any more that may yet be committed.

        Gives how many it ever had, and how many of them it has given up.
        """
        address = self._stage.broker.address
        deadline = time.monotonic() + ENDED_S_MAX
        while (ended := progress(address)) < (end := self._sent()):
            if time.monotonic() > deadline:
                raise AssertionError(f"half messages are open behind {ended:,} of {end:,}")
            time.sleep(0.5)
        return end, max_offset(address, names.CHECK_MAX_TIME_TOPIC)


def progress(address: str) -> int:
    """How far the broker knows all half messages to be ended."""
    from roquet.broker.services.transactions.transactions import GROUP
    from roquet.net.blocking import BlockingChannel
    from roquet.wire.calls.offset import QueryOffset

    with BlockingChannel(address) as channel:
        call = QueryOffset(consumer_group=GROUP, topic=names.HALF_TOPIC, queue_id=0)
        return channel.call(call).offset


def max_offset(address: str, topic: str) -> int:
    """How many messages a topic of the broker's own ever had."""
    from roquet.model.errors import CallRefused
    from roquet.net.blocking import BlockingChannel
    from roquet.wire.calls.offset import MaxOffset

    with BlockingChannel(address) as channel:
        try:
            return channel.call(MaxOffset(topic=topic, queue_id=0)).offset
        except CallRefused:  # nothing was ever given up
            return 0


def read(namesrv: str, topic: str) -> list[tuple[bytes, str]]:
    """The body and the row's key of each message."""
    from roquet.lake.queue_offsets import ranges
    from roquet.model.properties import SINK_ROW
    from roquet.spark.cluster.cluster_client import ClusterClient
    from roquet.spark.cluster.range_reader import RangeReader
    from roquet.spark.options import SourceOptions

    cluster = ClusterClient(SourceOptions(namesrv=(namesrv,), topics=(topic,), timeout_ms=30_000))
    pieces = ranges(cluster.earliest(), cluster.latest())
    found: list[tuple[bytes, str]] = []
    for batch in RangeReader(cluster, ("body", "properties")).batches(pieces):
        for body, properties in zip(batch["body"], batch["properties"], strict=True):
            found.append((body.as_py(), dict(properties.as_py())[SINK_ROW]))
    return found


def drive(namesrv: str, topic: str, folder: Path) -> None:
    """The query: all files, some in each batch."""
    from roquet.spark.session import session

    spark = session("kill sink", master="local[2,4]")
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", FILES)
    frame = rows.text(str(folder / "rows")).selectExpr("value as body")
    writer = frame.writeStream.format("roquet").options(namesrv=namesrv, topic=topic)
    writer = writer.options(transactional="true", transactionTime=IMMUNE)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    print(BEGAN, flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The driver of one run.")
    parser.add_argument("namesrv")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    drive(**vars(parser.parse_args()))
