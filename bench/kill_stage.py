"""Kill tests of Spark jobs share this: processes that are started again, victims, a broker.

Victims are this program's own children and theirs, by their ids; a driver's are its Java, and the
Python workers below that.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).resolve().parent
SRC = str(HERE.parent / "src")
sys.path[:0] = [SRC, str(HERE.parent / "tools" / "fixtures"), str(HERE)]

import genuine  # noqa: E402

VICTIMS = ("driver", "java", "worker", "broker")
ENDING = frozenset({"driver", "java"})
"""Without them a run is over."""

LEFT_S_MAX = 15
"""A killed driver's Java and workers go by themselves; after this they are made to."""


class Child:
    """A process of ours that is started again when it was killed."""

    def __init__(
        self,
        command: list[str],
        log: Path,
        ready: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._log, self._ready = command, log, ready
        self._environment = {**os.environ, "PYTHONPATH": SRC, **(settings or {})}
        self.start()

    def start(self) -> None:
        self._log.unlink(missing_ok=True)  # a killed driver's Java may still write to the old one
        with self._log.open("wb") as sink:
            self.process = subprocess.Popen(
                self._command, stdout=sink, stderr=subprocess.STDOUT, env=self._environment
            )
        if self._ready:
            genuine.wait_for(self._log, self._ready, self.process)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        genuine.stop(self.process)


class Work(Protocol):
    """Work under kills: a driver that is started again until it ends well."""

    def start(self) -> Child:
        """A driver, started."""

    def moment(self, driver: Child, deadline: float) -> float | None:
        """Wait until there is something to disturb; seconds more to wait, or None: none came."""

    def judge(self) -> str:
        """Describe the final state; AssertionError when it is not right."""


class Stage:
    """A name server, and a broker that may be killed."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder, ports = folder, (genuine.free_port(), genuine.free_port())
        self.namesrv, self.address = (f"127.0.0.1:{port}" for port in ports)
        roquet = [sys.executable, "-m", "roquet"]
        names = [*roquet, "namesrv", "--host", "127.0.0.1", "--port", str(ports[0])]
        self._names = Child(names, folder / "namesrv.log", "ready")
        command = [*roquet, "broker", "--name", "broker-a", "--data", str(folder / "data")]
        command += ["--host", "127.0.0.1", "--namesrv", self.namesrv, "--port", str(ports[1])]
        self.broker = Child(command, folder / "broker.log", "ready", settings)

    def create(self, topic: str, queues: int) -> None:
        """A topic, or the one whose queues are there already."""
        from roquet.net.blocking import BlockingChannel
        from roquet.wire.calls.admin.topic import CreateTopic

        call = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
        with BlockingChannel(self.address) as channel:
            channel.call(call)

    def close(self) -> None:
        self.broker.stop()
        self._names.stop()


# -- kills -----------------------------------------------------------------------------------


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
    found, unseen = list[int](), [pid]
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
    """Wait for processes (by id and start time) to end; kill and count those that are left."""
    deadline = time.monotonic() + LEFT_S_MAX
    left = dict(pids)
    while left and time.monotonic() < deadline:
        left = {pid: born for pid, born in left.items() if stat(pid)[19:20] == [born]}
        time.sleep(0.2)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
