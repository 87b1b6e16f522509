"""Replication and failover measured, on our broker and on Apache RocketMQ.

    python -m bench.replication --only send,stream --rounds 3

send        128 bytes that master and replica have to have: throughput, CPU at the master, p50
threads     the same from Java's benchmark Producer: its threads share one connection
stream      an empty replica catches up with a full master: MB of the log a second
failover    a master is killed (-9) or frozen under a controller: seconds to the first SEND_OK
controller  seconds until it leads, and its memory

The sides are measured in turn in each round, with the same settings; figures are medians of the
rounds. Java's groups with a controller take half a minute to form, so of these there is one round.
Linux only.
"""

import argparse
import asyncio
import dataclasses
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.lib import replica_group as group
from bench.lib.arguments import parse, parser_for
from bench.lib.measures import cpu_seconds, rss_mib
from bench.lib.raw_client import Brokers, Load, Result, measure
from bench.lib.replica_group import Processes
from bench.lib.rows import (
    Rounds,
    Row,
    at_least,
    at_most,
    calibrated,
    compared,
    in_each_round,
    save,
    show,
)
from bench.lib.sides import REPORT_S, Side, load
from bench.lib.sides import Load as ClientLoad
from bench.lone import lines
from harness import genuine, servers
from harness.ports import HOST
from harness.servers import GENUINE, OURS, Server
from roquet.net.channel import Channel

WORKS: Final = ("send", "threads", "stream", "failover", "controller")
CONNECTIONS: Final = (64, 1)
THREADS: Final = (64, 1)
WARM_AGAIN: Final = 0.1
"""Share of a measurement that is sent before it, after the first long one."""

BODIES: Final = {"128 B": 128, "64 KiB": 65_536}
RECORD_OVERHEAD: Final = 160
"""Bytes of a filled record besides its body, about."""

MEGABYTES_MAX: Final = 900
"""A classic replica that is empty begins with the file in which the log ends: one of 1 GiB."""

LOOK_S: Final = 0.01
"""Between two questions how far a stream is."""

SETTLE_S: Final = 2.0
"""After the start of a controller, before its memory is read; no longer than a measurement."""

GROUP_SIZE: Final = {OURS: 3, GENUINE: 2}
"""Brokers under a controller. Ours has two of three in sync, its default. With two of three the
genuine one refused sends for half a minute after an election, so it is allowed to go on alone."""

UNDER_CONTROLLER: Final[Mapping[str, Mapping[str, str]]] = {
    OURS: {},
    GENUINE: {"allAckInSyncStateSet": "true", "minInSyncReplicas": "1"},
}

Seconds = dict[str, dict[str, list[float]]]
"""Seconds of each round, by fault or figure, and by side."""


# -- send ----------------------------------------------------------------------------------------


def send(sides: Sequence[str], given: argparse.Namespace, folder: Path) -> list[Row]:
    """Sends that wait for one replica."""
    found: dict[int, dict[str, list[Result]]] = {
        count: {side: [] for side in sides} for count in CONNECTIONS
    }
    with ExitStack() as stack:
        masters = {}
        for side in sides:
            masters[side] = _pair(side, stack.enter_context(Processes(folder / side)))
            measure(masters[side], Load(), 0, warm=given.warm)
        for _ in range(given.rounds):
            for side, master in masters.items():
                for count, rounds in found.items():
                    warm = given.seconds * WARM_AGAIN
                    result = measure(master, Load(connections=count), given.seconds, warm=warm)
                    rounds[side].append(result)
                    print(
                        f"  {side:8} 2 in sync, {count:2} connections: {result.rate:,.0f}/s,"
                        f" {result.broker_us:.0f} us, p50 {result.trip_ms(50):.2f} ms,"
                        f" {result.refused} refused",
                        flush=True,
                    )
    return send_rows(found)


def _pair(side: str, processes: Processes) -> Brokers:
    """A master whose senders wait for a replica, and the replica; gives the master alone."""
    namesrv = processes.start_name_server(side)
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "namesrvAddr": namesrv}
    master = group.broker(side, processes.folder, "master", settings)
    processes.start_master(master, namesrv)
    replica = group.replica(side, processes.folder, namesrv)
    processes.start(replica)
    asyncio.run(group.wait_until_followed(master))
    return Brokers(side, [(HOST, master.port)], [master.pid], namesrv)


def send_rows(found: Mapping[int, Rounds[Result]]) -> list[Row]:
    """The table of sends, with its goals."""
    rate, cpu, p50, _ = lines(64, found[64])
    lone_rate, lone_cpu, lone_p50, _ = lines(1, found[1])
    table = [
        at_least(rate, "1.2 x"),
        at_most(cpu, "0.6 x"),
        p50,
        lone_rate,
        lone_cpu,
        at_most(lone_p50, "2"),
    ]
    return [dataclasses.replace(line, work=f"2 in sync, {line.work}") for line in table]


# -- threads -------------------------------------------------------------------------------------


def threads(sides: Sequence[str], given: argparse.Namespace, folder: Path) -> list[Row]:
    """Sends of Java's benchmark Producer that wait for one replica."""
    if lack := genuine.missing():
        print(f"threads need the genuine benchmark clients; {lack}")
        return []
    found: dict[int, dict[str, list[ClientLoad]]] = {
        count: {side: [] for side in sides} for count in THREADS
    }
    with ExitStack() as stack:
        masters = {
            side: _pair(side, stack.enter_context(Processes(folder / side))) for side in sides
        }
        for _ in range(given.rounds):
            for side, master in masters.items():
                producers = Side(side, master.namesrv, *master.pids)
                for count, rounds in found.items():
                    reports = max(1, round(given.seconds / REPORT_S))
                    figures = load(
                        producers, "Producer", "-w", str(count), "-s", "128", reports=reports
                    )
                    rounds[side].append(figures)
                    print(f"  {side:8} 2 in sync, {count:2} threads: {figures}", flush=True)
    return thread_rows(found)


def thread_rows(found: Mapping[int, Rounds[ClientLoad]]) -> list[Row]:
    """The table of sends of Java's threads, with its goals."""

    def line(count: int, name: str, unit: str, figure: Callable[[ClientLoad], float]) -> Row:
        plural = "s" if count > 1 else ""
        work = f"2 in sync, Producer, {count} thread{plural}: {name}"
        return compared(work, unit, found[count], figure)

    rate = at_least(line(64, "throughput", "msg/s", lambda each: each.rate), "1.3 x")
    return [
        *in_each_round(rate, found[64], lambda each: each.rate),
        at_most(line(64, "master's CPU a message", "us", lambda each: each.broker_cpu_us), "0.6 x"),
        line(1, "master's CPU a message", "us", lambda each: each.broker_cpu_us),
        line(1, "average round trip", "ms", lambda each: each.round_trip_ms or 0.0),
    ]


# -- stream --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A look at a stream."""

    at_s: float
    position: int
    """Up to where the replica has the log."""
    master_s: float
    """CPU seconds of the master so far."""
    replica_s: float


@dataclass(frozen=True)
class Caught:
    """One replica that has caught up, from the first look at which it had something."""

    first: Moment
    whole: Moment
    """It had the whole log."""
    built: Moment
    """Its queues and its key index were built, too."""

    @property
    def log_rate(self) -> float:
        """MB of the log a second."""
        return self._megabytes / max(self.whole.at_s - self.first.at_s, LOOK_S)

    @property
    def queue_rate(self) -> float:
        """MB of the log a second until the queues were built, too."""
        return self._megabytes / max(self.built.at_s - self.first.at_s, LOOK_S)

    @property
    def master_cpu(self) -> float:
        """CPU ms of the master for a MB of the log."""
        return (self.whole.master_s - self.first.master_s) * 1e3 / self._megabytes

    @property
    def replica_cpu(self) -> float:
        """CPU ms of the replica for a MB of the log and its queues."""
        return (self.built.replica_s - self.first.replica_s) * 1e3 / self._megabytes

    @property
    def _megabytes(self) -> float:
        """All of it where the first look was the last one."""
        return ((self.whole.position - self.first.position) or self.whole.position) / 1e6


def stream(sides: Sequence[str], given: argparse.Namespace, folder: Path) -> list[Row]:
    """Empty replicas behind a full master."""
    table = []
    for title, size in BODIES.items():
        found: dict[str, list[Caught]] = {side: [] for side in sides}
        with ExitStack() as stack:
            filled = folder / "filled"
            _fill(filled, size, given.megabytes)
            running = {}
            for side in sides:
                processes = stack.enter_context(Processes(folder / side))
                namesrv = processes.start_name_server(side)
                running[side] = processes, namesrv, _filled_master(side, processes, namesrv, filled)
            shutil.rmtree(filled)
            for _ in range(given.rounds):
                for side, (processes, namesrv, master) in running.items():
                    replica = group.replica(side, processes.folder, namesrv)
                    caught = _catch_up(processes, master, replica)
                    found[side].append(caught)
                    print(
                        f"  {side:8} stream of {title}: {caught.log_rate:.0f} MB/s,"
                        f" with queues {caught.queue_rate:.0f} MB/s, CPU ms/MB of master"
                        f" {caught.master_cpu:.2f} and replica {caught.replica_cpu:.2f}",
                        flush=True,
                    )
        shutil.rmtree(folder)
        table += stream_rows(title, found)
    return table


def _fill(directory: Path, size: int, megabytes: int) -> None:
    count = megabytes * 1_000_000 // (size + RECORD_OVERHEAD)
    command = [sys.executable, "-m", "bench.fill", str(directory)]
    subprocess.run([*command, "--messages", str(count), "--size", str(size)], check=True)


def _filled_master(side: str, processes: Processes, namesrv: str, filled: Path) -> Server:
    """A master with a copy of a directory."""
    master = group.broker(side, processes.folder, "master", {"namesrvAddr": namesrv})
    store = processes.folder / master.name / "store"
    store.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-r", "--sparse=always", str(filled), str(store)], check=True)
    processes.start_master(master, namesrv)
    return master


def _catch_up(processes: Processes, master: Server, replica: Server) -> Caught:
    """A new replica until it has everything."""
    processes.launch(replica)
    try:
        return asyncio.run(asyncio.wait_for(_caught_up(master, replica), group.WAIT_SECONDS_MAX))
    finally:
        replica.kill()
        shutil.rmtree(processes.folder / replica.name)


async def _caught_up(master: Server, replica: Server) -> Caught:
    """Look at a stream until the replica has everything."""

    def moment(position: int) -> Moment:
        return Moment(
            time.perf_counter(), position, cpu_seconds(master.pid), cpu_seconds(replica.pid)
        )

    first: Moment | None = None
    async with await Channel.connect(HOST, master.port) as channel:
        while True:
            status = await group.ha_status(channel)
            replicas = status.ha_connection_info
            now = moment(max((each.slave_ack_offset for each in replicas), default=0))
            first = first or (now if now.position > 0 else None)
            if first is not None and now.position >= status.master_commit_log_max_offset:
                break
            await asyncio.sleep(LOOK_S)
    await asyncio.to_thread(replica.wait_ready)
    async with await Channel.connect(HOST, replica.port) as channel:
        while int((await group.runtime_info(channel))["dispatchBehindBytes"]) > 0:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    return Caught(first, now, moment(now.position))


def stream_rows(title: str, found: Mapping[str, Sequence[Caught]]) -> list[Row]:
    """The table of streams of one size of messages, with its goal."""

    def line(name: str, figure: Callable[[Caught], float], unit: str = "MB/s") -> Row:
        rounds = {side: list(map(figure, all_)) for side, all_ in found.items()}
        return medians(f"stream of {title}: {name}", rounds, unit)

    return [
        at_least(line("a replica catches up", lambda c: c.log_rate), "1 x"),
        line("with queues and key index", lambda c: c.queue_rate),
        line("master's CPU", lambda c: c.master_cpu, "ms/MB"),
        line("replica's CPU, with queues", lambda c: c.replica_cpu, "ms/MB"),
    ]


# -- failover ------------------------------------------------------------------------------------


def failover(sides: Sequence[str], given: argparse.Namespace, folder: Path) -> list[Row]:
    """Masters killed and frozen under a controller."""
    found: Seconds = {"kill -9": {}, "frozen": {}}
    for side in sides:
        rounds = given.rounds if side == OURS else 1
        with Processes(folder / side) as processes:
            _faults(side, processes, rounds, found)
    return [
        at_most(
            medians("killed master: to the first SEND_OK at the new one", found["kill -9"]), "0.3"
        ),
        at_most(
            medians("frozen master: to the first SEND_OK at the new one", found["frozen"]), "4"
        ),
    ]


def _faults(side: str, processes: Processes, rounds: int, found: Seconds) -> None:
    """Rounds of both faults, each in a group of its own."""
    groups = _under_controller(side, processes)
    for number in range(rounds):
        is_last = number == rounds - 1
        for fault, brokers in groups.items():
            seconds = asyncio.run(_fault(fault, brokers, is_mended=not is_last))
            found[fault].setdefault(side, []).append(seconds)
            print(f"  {side:8} {fault} master: {seconds:.3f} s to the first SEND_OK", flush=True)


def _under_controller(side: str, processes: Processes) -> dict[str, list[Server]]:
    """A name server, a controller, and a group of brokers for each fault."""
    folder = processes.folder
    namesrv = processes.start_name_server(side)
    controller = servers.controller(folder, side=side)
    processes.start(controller)
    settings = {
        "namesrvAddr": namesrv,
        "enableControllerMode": "true",
        "controllerAddr": controller.address,
        "mappedFileSizeCommitLog": "16777216",
        **UNDER_CONTROLLER[side],
    }
    groups = {
        fault: [
            group.broker(
                side, folder, f"{name}{number}", {**settings, "brokerName": name}, heap="512m"
            )
            for number in range(GROUP_SIZE[side])
        ]
        for fault, name in (("kill -9", "killed"), ("frozen", "frozen"))
    }
    processes.start(*(each for brokers in groups.values() for each in brokers))
    return groups


async def _fault(fault: str, brokers: Sequence[Server], *, is_mended: bool) -> float:
    """Seconds without a master; the group is whole again where another round follows."""
    master = await group.elected(brokers)
    await group.seconds_until_sent([master], lambda: None)  # the topic is there
    await asyncio.sleep(1)
    number = signal.SIGKILL if fault == "kill -9" else signal.SIGSTOP
    others = [each for each in brokers if each is not master]
    seconds = await group.seconds_until_sent(others, lambda: master.signal(number))
    if is_mended and number == signal.SIGSTOP:
        master.thaw()
    elif is_mended:
        master.kill()
        await asyncio.to_thread(master.start)
    return seconds


# -- controller ----------------------------------------------------------------------------------


def controllers(sides: Sequence[str], given: argparse.Namespace, folder: Path) -> list[Row]:
    """Controllers that are started, alone."""
    found: Seconds = {"start": {}, "memory": {}}
    for side in sides:
        for number in range(given.rounds if side == OURS else 1):
            with Processes(folder / f"{side}{number}") as processes:
                controller = servers.controller(processes.folder, side=side)
                began = time.perf_counter()
                processes.launch(controller)
                asyncio.run(group.wait_until_led(controller.port))
                seconds = time.perf_counter() - began
                time.sleep(min(SETTLE_S, given.seconds))
                memory = rss_mib(controller.pid)
            found["start"].setdefault(side, []).append(seconds)
            found["memory"].setdefault(side, []).append(memory)
            print(f"  {side:8} controller: {seconds:.2f} s, {memory:.0f} MiB", flush=True)
    return [
        at_most(medians("controller: start until it leads", found["start"]), "0.4"),
        at_most(medians("controller: RSS", found["memory"], "MiB"), "40"),
    ]


# -- all -----------------------------------------------------------------------------------------


def medians(work: str, rounds: Mapping[str, Sequence[float]], unit: str = "s") -> Row:
    """The medians of both sides as a line of the table, without a goal."""
    values = {side: statistics.median(all_) for side, all_ in rounds.items()}
    return Row(work, unit, values[OURS], values.get(GENUINE))


def main() -> None:
    """Measure, print, write the JSON."""
    parser = parser_for(__doc__, "replication", WORKS, seconds=4, warm=6)
    parser.add_argument("--megabytes", type=int, default=192, help="of the log of a full master")
    given = parse(parser)
    if given.megabytes > MEGABYTES_MAX:
        parser.error(f"--megabytes: {MEGABYTES_MAX} at most, one file of the log")
    sides = [OURS] if given.ours_only else [GENUINE, OURS]
    if not given.ours_only and (lack := genuine.missing()):
        print(lack)
        sides = [OURS]
    works = {
        "send": send,
        "threads": threads,
        "stream": stream,
        "failover": failover,
        "controller": controllers,
    }
    table: list[Row] = []
    for name in given.only:
        with tempfile.TemporaryDirectory(prefix="roquet-replication-") as folder:
            work = partial(works[name], sides, given, Path(folder) / name)
            table += calibrated(
                work, repeats_max=0
            )  # minutes; its loads are repeated by themselves
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
