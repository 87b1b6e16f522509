"""An archive under kills: each message in the table once, at its place, and no file left over."""

import contextlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from bench.lib.kill_stage import Stage
from harness.processes import Process

TOPIC = "KillSpark"
QUEUES = 8
BATCHES = 8
"""Commits of a run that nobody kills."""

WAITS_S = (0.0, 3.0)
"""From the beginning of a run's first attempt to the kill."""

COLUMNS = ["broker", "queue_id", "queue_offset", "message_id"]


KEYS = 40_000
"""Keys of the messages, in turn. A multiple of the queues, so each key is always in one queue."""


def fill(data: Path, messages: int) -> None:
    """A topic full of messages, in the directory of a broker that does not run yet."""
    command = [
        sys.executable,
        "-m",
        "bench.fill",
        str(data),
        "--messages",
        str(messages),
    ]
    command += ["--size", "200", "--topic", TOPIC, "--queues", str(QUEUES)]
    command += ["--keys", str(KEYS), "--tombstones"]
    subprocess.run(command, check=True)


Place = tuple[str, int, int, str]


def place_of(number: int) -> Place:
    """Broker, queue, offset and id of a message of the topic."""
    return "broker-a", number % QUEUES, number // QUEUES, f"7F0000010001000000000000{number:08X}"


class Archive:
    """One round: the topic into a new table."""

    job: ClassVar = "archive"
    columns: ClassVar = COLUMNS

    def __init__(self, stage: Stage, kind: str, number: int, messages: int) -> None:
        self._stage, self._kind, self.messages = stage, kind, messages
        self._table = stage.folder / f"{kind}-{number}"
        self.target = str(self._table)
        self._began = 0.0
        stage.create(TOPIC, QUEUES)

    def start(self) -> Process:
        command = [sys.executable, "-m", "roquet", "spark", self.job, TOPIC, self.target]
        command += [*self.options(), "--namesrv", self._stage.namesrv, "--json"]
        command += ["--option", f"maxOffsetsPerTrigger={self.messages // BATCHES}"]
        command += ["--master", "local[2,4]"]
        self._began = time.time()
        return self._stage.start_driver(command)

    def options(self) -> list[str]:
        """The options of the job alone."""
        return ["--kind", self._kind, "--compact"]

    def moment(self, driver: Process, deadline: float) -> float | None:
        """Behind the moment in which a run of ours has begun to write."""
        while driver.is_running and time.monotonic() < deadline:
            for attempt in self._table.rglob("_roquet/staging/*"):
                with contextlib.suppress(FileNotFoundError):
                    if attempt.stat().st_mtime >= self._began and any(attempt.iterdir()):
                        return random.uniform(*WAITS_S)
            time.sleep(0.02)
        return None

    def judge(self) -> str:
        """Each message once, at its place; no file that no commit names."""
        root = self._table
        rows, named = READERS[self._kind](root, self.columns)
        self.compare(rows)
        there = {path.name for path in root.rglob("*.parquet")}
        if orphans := there - named:
            raise AssertionError(f"{len(orphans)} orphan files: {sorted(orphans)[:3]}")
        left = [*root.rglob("_roquet/staging/*"), *root.rglob("_roquet/intent.json*")]
        if left:
            raise AssertionError(f"left behind: {left}")
        shutil.rmtree(root)
        counted = f"{rows.num_rows:,} rows of {self.messages:,} messages"
        return f"{counted}, each once; {len(there)} files, 0 orphans"

    def wanted(self) -> set[Place]:
        """Broker, queue, offset and id of the messages that the table has to have."""
        return {place_of(number) for number in range(self.messages)}

    def compare(self, rows: pa.Table) -> None:
        """AssertionError unless each message is there once, at its place."""
        places = Counter(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))
        doubled = sum(count - 1 for count in places.values())
        wanted = self.wanted()
        missing, foreign = len(wanted - places.keys()), len(places.keys() - wanted)
        if doubled or missing or foreign:
            raise AssertionError(f"{doubled} doubled, {missing} missing, {foreign} foreign rows")


# -- what a table holds ----------------------------------------------------------------------


def delta(root: Path, columns: list[str]) -> tuple[pa.Table, set[str]]:
    """The rows, and the files that any version names."""
    from deltalake import DeltaTable

    named = set()
    for entry in (root / "_delta_log").glob("*.json"):
        for line in entry.read_text("utf-8").splitlines():
            action: dict[str, Any] = json.loads(line)
            if "add" in action:
                named.add(Path(action["add"]["path"]).name)
    table = DeltaTable(str(root)).to_pyarrow_table(columns=columns)
    return table, named


def iceberg(root: Path, columns: list[str]) -> tuple[pa.Table, set[str]]:
    """The rows, and the files that any snapshot names."""
    from pyiceberg.catalog.sql import SqlCatalog

    with SqlCatalog("roquet", uri=f"sqlite:///{root}/catalog.db") as catalog:
        table = catalog.load_table(f"roquet.{TOPIC}")
        named = table.inspect.all_files()["file_path"].to_pylist()
        rows = table.scan(selected_fields=tuple(columns)).to_arrow()
        return rows, {Path(path).name for path in named}


READERS = {"delta": delta, "iceberg": iceberg, "materialize": delta}
