"""Kill -9 of an archive's driver, its Java, its workers and the broker: each message once.

    python bench/kill_spark.py --kind delta --rounds 3

A topic is filled. Each round archives it into a new table with real processes: at random moments a
victim is killed, what died is started again, until a run comes to its end. Then every message must
be in the table once, at its own queue and offset, and no file may lie about that no commit names.
Victims are this program's own children and theirs, by their ids.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "tools"), str(HERE)]

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import genuine  # noqa: E402

TOPIC = "KillSpark"
QUEUES = 8
BATCHES = 8
"""Commits of a run that nobody kills."""

KINDS = ("parquet", "delta", "iceberg")
VICTIMS = ("driver", "java", "worker", "broker")
WAITS_S = (0.0, 3.0)
"""From the beginning of a run's first attempt to the kill."""

RUNS_MAX = 12
RUN_S_MAX = 180
COLUMNS = ["broker", "queue_id", "queue_offset", "message_id"]


# -- processes -------------------------------------------------------------------------------


class Child:
    """A process of ours that is started again when it was killed."""

    def __init__(self, command: list[str], log: Path, ready: str | None = None) -> None:
        self._command, self._log, self._ready = command, log, ready
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
        with self._log.open("wb") as sink:
            self.process = subprocess.Popen(
                self._command, stdout=sink, stderr=subprocess.STDOUT, env=environment
            )
        if self._ready:
            genuine.wait_for(self._log, self._ready, self.process)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        genuine.stop(self.process)


def stat(pid: int) -> list[str]:
    """Name, state, parent and so on of a process; nothing when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return []
    name, _, rest = text.partition("(")[2].rpartition(")")
    return [name, *rest.split()]


def descendants(pid: int) -> list[int]:
    """The processes below one, parents first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := stat(int(entry.name))):
            parents.setdefault(int(fields[2]), []).append(int(entry.name))
    found, unseen = [], [pid]
    while unseen:
        children = parents.get(unseen.pop(), [])
        found += children
        unseen += children
    return found


def victims(driver: int, kind: str) -> list[int]:
    """The processes of a kind that a driver has below it."""
    below = descendants(driver)
    if kind == "java":
        return [pid for pid in below if stat(pid)[:1] == ["java"]]
    pythons = [pid for pid in below if stat(pid)[:1] and stat(pid)[0].startswith("python")]
    return [pid for pid in pythons if not descendants(pid)]  # the daemon is their parent


def end_all(pids: dict[int, str]) -> int:
    """What a killed driver has left, if anything is left after a while; by id and time of birth."""
    deadline = time.monotonic() + 15
    left = dict(pids)
    while left and time.monotonic() < deadline:
        left = {pid: born for pid, born in left.items() if stat(pid)[19:20] == [born]}
        time.sleep(0.2)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


# -- a round ---------------------------------------------------------------------------------


class Stage:
    """A full topic on a broker that may be killed."""

    def __init__(self, folder: Path, messages: int) -> None:
        self.folder, self.messages = folder, messages
        data = folder / "data"
        fill = [sys.executable, str(HERE / "fill.py"), str(data), "--messages", str(messages)]
        fill += ["--size", "200", "--topic", TOPIC, "--queues", str(QUEUES)]
        subprocess.run(fill, check=True)
        ports = genuine.free_port(), genuine.free_port()
        self.namesrv = f"127.0.0.1:{ports[0]}"
        python = [sys.executable, "-m", "roquet"]
        self._names = Child(
            [*python, "namesrv", "--host", "127.0.0.1", "--port", str(ports[0])],
            folder / "namesrv.log",
            "ready",
        )
        command = [*python, "broker", "--name", "broker-a", "--data", str(data), "--host"]
        command += ["127.0.0.1", "--namesrv", self.namesrv, "--port", str(ports[1])]
        self.broker = Child(command, folder / "broker.log", "ready")
        create(f"127.0.0.1:{ports[1]}")

    def close(self) -> None:
        self.broker.stop()
        self._names.stop()

    def archive(self, kind: str, table: Path) -> Child:
        """A driver, started."""
        command = [sys.executable, "-m", "roquet", "spark", "archive", TOPIC, str(table)]
        command += ["--kind", kind, "--namesrv", self.namesrv, "--compact", "--json"]
        command += ["--option", f"maxOffsetsPerTrigger={self.messages // BATCHES}"]
        command += ["--master", "local[2,4]"]
        return Child(command, self.folder / "driver.log")


def create(broker: str) -> None:
    """The topic of the queues that are already there."""
    from roquet.net.blocking import BlockingChannel
    from roquet.wire.calls.topic import CreateTopic

    call = CreateTopic(topic=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
    with BlockingChannel(broker) as channel:
        channel.call(call)


def one_round(stage: Stage, kind: str, number: int) -> str:
    """Archive under kills until a run ends well; gives what was done."""
    table = stage.folder / f"table-{number}"
    plan = [VICTIMS[number % len(VICTIMS)], *random.choices(VICTIMS, k=2)]
    killed: list[str] = []
    for _ in range(RUNS_MAX):
        code, said = one_run(stage, kind, table, plan, killed)
        if code == 0:
            break
        why = [line for line in said.splitlines() if line.startswith("roquet: ")]
        print(f"    a run ended with {code} after {killed}: {why}", flush=True)
    else:
        raise AssertionError(f"{RUNS_MAX} runs, and none came to its end: {said[-3000:]}")
    facts = judge(kind, table, stage.messages)
    shutil.rmtree(table)
    return f"{', '.join(killed) or 'nobody'} killed; {facts}"


def one_run(
    stage: Stage, kind: str, table: Path, plan: list[str], killed: list[str]
) -> tuple[int, str]:
    """One driver until it ends; the next victim of the plan is killed on the way."""
    driver = stage.archive(kind, table)
    deadline = time.monotonic() + RUN_S_MAX
    try:
        while plan and until_attempt(driver, table):
            time.sleep(random.uniform(*WAITS_S))
            if driver.process.poll() is not None or not strike(stage, driver, plan[0]):
                continue  # nobody of that kind at the moment
            killed.append(plan.pop(0))
            if killed[-1] in {"driver", "java"}:
                break  # this run ends
        return driver.process.wait(max(1, deadline - time.monotonic())), driver.said
    finally:
        if driver.process.poll() is None:
            driver.kill()


def until_attempt(driver: Child, table: Path) -> bool:
    """Wait until a run of ours has begun to write; False when it ends before."""
    began = time.time()
    while driver.process.poll() is None:
        for attempt in table.rglob("_roquet/staging/*"):
            with contextlib.suppress(FileNotFoundError):
                if attempt.stat().st_mtime >= began - 1 and any(attempt.iterdir()):
                    return True
        time.sleep(0.02)
    return False


def strike(stage: Stage, driver: Child, victim: str) -> bool:
    """Kill -9; False when there is nobody of that kind at the moment."""
    if victim == "broker":
        stage.broker.kill()
        time.sleep(random.uniform(0.0, 1.0))
        stage.broker.start()
        return True
    if victim == "driver":
        below = {pid: stat(pid)[19] for pid in descendants(driver.pid) if stat(pid)}
        driver.kill()
        if random.random() < 0.5:
            end_all(below)  # else the next driver starts while they may still be there
        return True
    pids = victims(driver.pid, victim)
    if not pids:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(random.choice(pids), signal.SIGKILL)
    return True


# -- the verdict -----------------------------------------------------------------------------


def judge(kind: str, root: Path, messages: int) -> str:
    """Each message once, at its place; no file that no commit names."""
    rows, named = READERS[kind](root)
    places = Counter(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))
    doubled = sum(count - 1 for count in places.values())
    wanted = {
        ("broker-a", at % QUEUES, at // QUEUES, f"7F0000010001000000000000{at:08X}")
        for at in range(messages)
    }
    missing, foreign = len(wanted - places.keys()), len(places.keys() - wanted)
    if doubled or missing or foreign:
        raise AssertionError(f"{doubled} doubled, {missing} missing, {foreign} foreign rows")
    there = {path.name for path in root.rglob("*.parquet")}
    if orphans := there - named:
        raise AssertionError(f"{len(orphans)} orphan files: {sorted(orphans)[:3]}")
    left = [*root.rglob("_roquet/staging/*"), *root.rglob("_roquet/intent.json*")]
    if left:
        raise AssertionError(f"left behind: {left}")
    return (
        f"{rows.num_rows:,} rows of {messages:,} messages, each once; {len(there)} files, 0 orphans"
    )


def parquet(root: Path) -> tuple[pa.Table, set[str]]:
    """The rows, and the files that are shown."""
    paths = sorted(root.glob("day=*/*.parquet"))
    tables = [pq.read_table(path, columns=COLUMNS, partitioning=None) for path in paths]
    return pa.concat_tables(tables), {path.name for path in paths}


def delta(root: Path) -> tuple[pa.Table, set[str]]:
    """The rows, and the files that any version names."""
    from deltalake import DeltaTable

    named = set()
    for entry in (root / "_delta_log").glob("*.json"):
        for line in entry.read_text("utf-8").splitlines():
            action: dict[str, Any] = json.loads(line)
            if "add" in action:
                named.add(Path(action["add"]["path"]).name)
    table = DeltaTable(str(root)).to_pyarrow_table(columns=COLUMNS)
    return table, named


def iceberg(root: Path) -> tuple[pa.Table, set[str]]:
    """The rows, and the files that any snapshot names."""
    from pyiceberg.catalog.sql import SqlCatalog

    with SqlCatalog("roquet", uri=f"sqlite:///{root}/catalog.db") as catalog:
        table = catalog.load_table(f"roquet.{TOPIC}")
        named = table.inspect.all_files()["file_path"].to_pylist()
        rows = table.scan(selected_fields=tuple(COLUMNS)).to_arrow()
        return rows, {Path(path).name for path in named}


READERS = {"parquet": parquet, "delta": delta, "iceberg": iceberg}


@contextlib.contextmanager
def staged(messages: int) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="roquet-kill-spark-") as name:
        stage = Stage(Path(name), messages)
        try:
            yield stage
        finally:
            stage.close()


def main() -> None:
    """The rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="of each kind")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    random.seed(seed)
    kinds = KINDS if args.kind == "all" else (args.kind,)
    print(f"kill -9 of archives, {args.rounds} rounds of {', '.join(kinds)}, seed {seed}")
    with staged(args.messages) as stage:
        for kind in kinds:
            for number in range(args.rounds):
                told = one_round(stage, kind, number)
                print(f"{kind} round {number + 1:2}: {told}", flush=True)
    print("every message is there once, and no file is left over")


if __name__ == "__main__":
    main()
