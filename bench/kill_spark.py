"""Kill -9 of a Spark job's driver, its Java, its workers and the broker: each message once.

    python -m bench.kill_spark --kind delta --rounds 3
    python -m bench.kill_spark --kind sink --rounds 8
    python -m bench.kill_spark --kind delta --store s3 --rounds 1
    python -m bench.kill_spark --kind materialize --rounds 3
    python -m bench.kill_spark --kind materialize-iceberg --store s3 --rounds 1

A round is an archive of a full topic into a new table, a table of its latest states, or a stream
of rows into a new topic by the transactional sink. At random moments a victim is killed, what died
is started again, until a run comes to its end. Then every message must be there once,
and nothing may lie about that nobody names: no file, no commit record, no half message. With
`--store s3` the table lies in an S3 server, which is a victim, too: it is stopped for seconds.
"""

import argparse
import contextlib
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.kill_sink import SETTINGS, Sink
from bench.lib.kill_archive import READERS, Archive, fill
from bench.lib.kill_materialize import (
    MATERIALIZE,
    MATERIALIZE_ICEBERG,
    LatestStates,
    ObjectIcebergStates,
    ObjectLatestStates,
)
from bench.lib.kill_stage import ENDING, VICTIMS, Stage, Work, strike
from bench.lib.kill_store import ICEBERG, STORE, ObjectArchive, ObjectIceberg, ObjectServer
from harness.processes import Process

SINK = "sink"
KINDS = (*READERS, SINK)
STORE_KINDS = {
    "delta": ObjectArchive,
    ICEBERG: ObjectIceberg,
    MATERIALIZE: ObjectLatestStates,
    MATERIALIZE_ICEBERG: ObjectIcebergStates,
}
"""Kinds of tables that rounds write to an S3 server."""

REASON = re.compile(r"roquet: |[\w.]*(Error|Exception)\b")
"""How the line begins that says why a run ended."""

RUNS_MAX = 12
RUN_S_MAX = 900
"""A run hangs when it takes longer; on a busy machine Spark takes a minute only to begin."""


class Scene(NamedTuple):
    """The cluster, the object store and the arguments of all rounds."""

    stage: Stage
    server: ObjectServer | None
    args: argparse.Namespace

    @property
    def victims(self) -> tuple[str, ...]:
        """Kinds of processes that may be killed or stopped."""
        return VICTIMS if self.server is None else (*VICTIMS, STORE)

    def work(self, kind: str, number: int) -> Work:
        """The work of one round."""
        if kind == SINK:
            return Sink(self.stage, number, self.args.rows)
        if self.server is not None:
            return STORE_KINDS[kind](self.stage, self.server, kind, number, self.args.messages)
        local = LatestStates if kind == MATERIALIZE else Archive
        return local(self.stage, kind, number, self.args.messages)

    def strike(self, driver: Process, victim: str) -> bool:
        """Kill -9, or stop the store; False when there is nobody of that kind at the moment."""
        if victim == STORE and self.server is not None:
            self.server.freeze()
            return True
        return strike(self.stage, driver, victim)


def one_round(scene: Scene, work: Work, number: int) -> tuple[list[str], str]:
    """Runs under kills until one ends well; gives who was killed, and what there is then."""
    victims = scene.victims
    plan = [victims[number % len(victims)], *random.choices(victims, k=random.randrange(3))]
    killed: list[str] = []
    for _ in range(RUNS_MAX):
        code, said = one_run(scene, work, plan, killed)
        if code == 0:
            return killed, work.judge()
        why = [line[:200] for line in said.splitlines() if REASON.match(line)]
        print(f"    a run ended with {code} after {killed}: {why[-1:]}", flush=True)
    raise AssertionError(f"{RUNS_MAX} runs, and none came to its end: {said[-3000:]}")


def one_run(scene: Scene, work: Work, plan: list[str], killed: list[str]) -> tuple[int, str]:
    """One driver until it ends; the next victims of the plan are killed on the way."""
    driver = work.start()
    deadline = time.monotonic() + RUN_S_MAX
    try:
        while plan and (wait_s := work.moment(driver, deadline)) is not None:
            time.sleep(wait_s)
            if not driver.is_running or not scene.strike(driver, plan[0]):
                continue  # nobody of that kind at the moment
            killed.append(plan.pop(0))
            if killed[-1] in ENDING:
                break  # this run ends
        return driver.wait(max(1, deadline - time.monotonic())), driver.output
    except subprocess.TimeoutExpired:
        said = f"a run hangs after {killed}: {driver.output[-3000:]}"
        raise AssertionError(said) from None
    finally:
        driver.kill()


def rounds(scene: Scene, kind: str) -> None:
    """All rounds of a kind, and what they were in all."""
    counts, hard = Counter[str](), 0
    for number in range(scene.args.rounds):
        began = time.monotonic()
        killed, facts = one_round(scene, scene.work(kind, number), number)
        counts.update(killed)
        hard += not ENDING.isdisjoint(killed)
        who, took_s = ", ".join(killed) or "nobody", time.monotonic() - began
        print(f"{kind} round {number + 1:2}: {who} killed; {facts}; {took_s:.0f} s", flush=True)
    told = ", ".join(f"{victim} {counts[victim]}" for victim in scene.victims)
    print(f"{kind}: {scene.args.rounds} rounds; killed: {told}; in {hard} rounds driver or Java")


@contextlib.contextmanager
def staged(messages: int, args: argparse.Namespace) -> Iterator[Scene]:
    """A stage, and an object store if one is asked for; with a topic of so many messages."""
    with tempfile.TemporaryDirectory(prefix="roquet-kill-spark-") as name:
        if messages:
            fill(Path(name) / "data", messages)
        with contextlib.ExitStack() as stack:
            server = ObjectServer(Path(name)) if args.store == "s3" else None
            if server is not None:
                stack.callback(server.close)
            yield Scene(stack.enter_context(Stage(Path(name), SETTINGS)), server, args)


def main() -> None:
    """The rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="of each kind")
    parser.add_argument("--kind", choices=[*KINDS, MATERIALIZE_ICEBERG, "all"], default="all")
    parser.add_argument("--store", choices=["directory", "s3"], default="directory")
    parser.add_argument("--messages", type=int, default=400_000, help="that are archived")
    parser.add_argument("--rows", type=int, default=20_000, help="that are written")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    random.seed(seed)
    kinds = KINDS if args.kind == "all" else (args.kind,)
    if args.store == "s3" and not {*kinds} <= {*STORE_KINDS}:
        parser.error(f"--store s3 needs --kind {' or '.join(sorted(STORE_KINDS))}")
    if args.store != "s3" and MATERIALIZE_ICEBERG in kinds:
        parser.error(f"--kind {MATERIALIZE_ICEBERG} needs --store s3")
    print(f"kill -9 of Spark jobs, {args.rounds} rounds of {', '.join(kinds)}, seed {seed}")
    with staged(0 if kinds == (SINK,) else args.messages, args) as scene:
        for kind in kinds:
            rounds(scene, kind)
    print("every message is there once, and nothing is left over")


if __name__ == "__main__":
    main()
