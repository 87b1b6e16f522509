"""Footprint of our programs: imports, `--help`, memory at rest, Spark's part of the demo.

    python -m bench.footprint --only help
    python -m bench.footprint --only import --roquet A/bin/python --aiokafka B/bin/python

import  CPU of a process that imports `roquet.client`, beside one that imports aiokafka
help    milliseconds of `roquet --help`
idle    memory and CPU of a broker with nothing to do
dev     memory of `roquet dev` with nothing to do
demo    seconds of the part of `roquet demo` that is Spark's

The peer is measured where it can be imported: aiokafka is in no environment of ours. Give Roquet an
environment of its own as well, with msgspec alone: what else is installed slows each start. Linux
only.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from bench.lib.calibration import REPEATS_MAX
from bench.lib.measures import cpu_seconds, rss_mib
from bench.lib.rows import Row, at_most, bound, calibrated, save, show
from bench.lib.sides import ours
from harness.processes import ROQUET
from harness.servers import DevServer

TIMED: Final = ("import", "help")
"""Works that are measured again where the machine changed its speed: short ones."""
OURS: Final = ("import roquet.client", "from roquet.client import Producer")
"""The package alone, which loads no part of itself, and what a program needs to send."""
SETTLE_S: Final = 3.0
"""Between the ready line of a server and the first look at its memory."""
SPARK_BEGINS: Final = "Spark streams"
"""Begins the line of `roquet demo` that its part of Spark prints first."""


def run(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds of a process, and seconds until it ended; it has to succeed."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _pid, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def imports(given: argparse.Namespace, _: Path) -> Iterator[Row]:
    """CPU of an import, interpreter included; sides in turn."""
    sides = dict.fromkeys(OURS, given.roquet or sys.executable)
    if given.aiokafka or importlib.util.find_spec("aiokafka"):
        sides["import aiokafka"] = given.aiokafka or sys.executable
    found: dict[str, list[float]] = {statement: [] for statement in sides}
    for _round in range(given.rounds):
        for statement, python in sides.items():
            found[statement].append(run([python, "-c", statement])[0] * 1000)
    peer = median(found["import aiokafka"]) if "import aiokafka" in found else None
    for statement in OURS:
        row = Row(f"{statement}, beside aiokafka: CPU", "ms", median(found[statement]), peer)
        yield at_most(row, "1.0 x")


def help_text(given: argparse.Namespace, _: Path) -> Iterator[Row]:
    """The time that a user waits for `roquet --help`."""
    times = [run([*ROQUET, "--help"])[1] * 1000 for _ in range(given.rounds)]
    yield bound("roquet --help", "ms", median(times), 150)


def idle(given: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """A broker with nothing to do."""
    with ours(folder) as side:
        time.sleep(SETTLE_S)
        before = cpu_seconds(side.pid)
        time.sleep(given.seconds)
        share = (cpu_seconds(side.pid) - before) / given.seconds * 100
        yield bound("idle broker: RSS", "MiB", rss_mib(side.pid), 40)
        yield bound("idle broker: CPU", "%", share, 1)


def dev(_: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """A name server and a broker in one process, with nothing to do."""
    with DevServer(folder) as server:
        time.sleep(SETTLE_S)
        yield bound("idle roquet dev: RSS", "MiB", rss_mib(server.pid), 60)


def demo(given: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Spark's part of the demo: the stream, stopped once, and its table."""
    command = [*ROQUET, "demo", "--html", str(folder / "demo.html")]
    command += ["--flights", str(given.flights)] if given.flights else []
    began = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            began = time.monotonic() if line.startswith(SPARK_BEGINS) else began
        took = time.monotonic() - began
    if child.returncode or not began:
        raise subprocess.CalledProcessError(child.returncode, command)
    yield bound("roquet demo: Spark's part", "s", took, 41)


WORKS: Final[dict[str, Callable[[argparse.Namespace, Path], Iterator[Row]]]] = {
    "import": imports,
    "help": help_text,
    "idle": idle,
    "dev": dev,
    "demo": demo,
}


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(WORKS), help=f"some of {','.join(WORKS)}")
    parser.add_argument("--rounds", type=int, default=15, help="of processes that end at once")
    parser.add_argument("--seconds", type=float, default=20, help="of a look at an idle broker")
    parser.add_argument("--flights", type=int, help="of the demo; all without it")
    parser.add_argument("--aiokafka", metavar="PYTHON", help="an interpreter that has aiokafka")
    parser.add_argument("--roquet", metavar="PYTHON", help="one that imports Roquet; else this one")
    parser.add_argument("--out", type=Path, default=Path("build/bench-footprint.json"))
    given = parser.parse_args()
    table: list[Row] = []
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(prefix="roquet-footprint-") as folder:
            (Path(folder) / name).mkdir()
            work = partial(WORKS[name], given, Path(folder) / name)
            table += calibrated(work, REPEATS_MAX if name in TIMED else 0)
    show(table, peer="aiokafka")
    save(table, given.out, peer="other")


if __name__ == "__main__":
    main()
