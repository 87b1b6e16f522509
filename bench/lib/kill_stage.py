"""A stage for Spark jobs under kills: a name server, a broker, and whom to kill.

Victims are this program's own children and theirs, by their ids; a driver's are its Java, and the
Python workers below that.
"""

import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from harness import servers
from harness.process_tree import descendants, end_all, stat
from harness.processes import Process

VICTIMS = ("driver", "java", "worker", "broker")
ENDING = frozenset({"driver", "java"})
"""Without them a run is over."""


class Work(Protocol):
    """Work under kills: a driver that is started again until it ends well."""

    def start(self) -> Process:
        """A driver, started."""

    def moment(self, driver: Process, deadline: float) -> float | None:
        """Wait until there is something to disturb; seconds more to wait, or None: none came."""

    def judge(self) -> str:
        """Describe the final state; AssertionError when it is not right."""


class Stage:
    """A name server, and a broker that may be killed; as a context, while both run."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self._names = servers.name_server(folder)
        self.namesrv = self._names.address
        self.broker = servers.broker(
            folder,
            "broker-a",
            {"namesrvAddr": self.namesrv, "storePathRootDir": folder / "data"},
            environ=environ,
        )

    def __enter__(self) -> "Stage":
        self._names.start()
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        self._names.stop()

    def start_driver(self, command: list[str]) -> Process:
        """Start a Spark job in a process of its own."""
        driver = Process(command, self.folder / "driver.log")
        driver.start()
        return driver

    def create(self, topic: str, queues: int) -> None:
        """A topic, or the one whose queues are there already."""
        from roquet.net.blocking import BlockingChannel
        from roquet.wire.calls.admin.topic import CreateTopic

        call = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
        with BlockingChannel(self.broker.address) as channel:
            channel.call(call)


def strike(stage: Stage, driver: Process, victim: str) -> bool:
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
    with suppress(ProcessLookupError):
        os.kill(random.choice(pids), signal.SIGKILL)
    return True


def victims(driver: int, kind: str) -> list[int]:
    """The processes of a kind that a driver has below it."""
    below = descendants(driver)
    if kind == "java":
        return [pid for pid in below if stat(pid)[:1] == ["java"]]
    pythons = [pid for pid in below if stat(pid)[:1] and stat(pid)[0].startswith("python")]
    return [pid for pid in pythons if not descendants(pid)]  # the daemon is their parent
