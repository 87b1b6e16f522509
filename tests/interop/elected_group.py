"""Groups under a controller, ours or that of Apache RocketMQ 5.5.0, and what a test waits for."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import genuine
from harness.ports import free_port
from harness.processes import Process
from roquet.broker.app import BrokerServer
from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.testing.cluster import BlockingCluster

FILE_SIZE = 1 << 20
"""Bytes of a file of either log: small, so that the stream crosses into other files."""

CLUSTER, GROUP = "C", "bc"

SMALL: dict[str, Any] = {
    "log_file_size": FILE_SIZE,
    "queue_file_entries": 1_000,
    "cluster_name": CLUSTER,
    "controller_mode": True,
}

WAIT_S = 90


def wait_until(is_done: Callable[[], bool], what: str) -> None:
    for _ in range(WAIT_S * 10):
        if is_done():
            return
        time.sleep(0.1)
    raise AssertionError(what)


def role_of(server: BrokerServer) -> Any:
    return server.broker.replication.role.current


def master_of(servers: Sequence[BrokerServer]) -> BrokerServer | None:
    leading = [server for server in servers if role_of(server).is_active]
    return leading[0] if len(leading) == 1 else None


def in_sync(server: BrokerServer | None) -> int:
    return 0 if server is None else server.broker.replication.acknowledgements.in_sync


@contextmanager
def our_controller(running: BlockingCluster) -> Iterator[ControllerServer]:
    """A controller of ours on the loop of a cluster."""
    config = ControllerConfig(host="127.0.0.1", port=0, advertise="127.0.0.1")
    controller = ControllerServer(config)
    running.run(controller.__aenter__())
    try:
        yield controller
    finally:
        running.run(controller.__aexit__(None, None, None))


@contextmanager
def apaches_controller(folder: Path) -> Iterator[str]:
    """The address of a controller of Apache's."""
    folder.mkdir()
    address = f"127.0.0.1:{free_port()}"
    (folder / "controller.conf").write_text(
        "controllerDLegerGroup=g1\n"
        f"controllerDLegerPeers=n0-{address}\n"
        "controllerDLegerSelfId=n0\n"
        f"controllerStorePath={folder / 'store'}\n"
        "mappedFileSize=10485760\n"
    )
    command = genuine.java(
        "controller.ControllerStartup", "-c", str(folder / "controller.conf"), heap="192m"
    )
    log, home = folder / "controller.log", folder / "home"
    with Process(command, log, ready="boot success", home=home):
        yield address


def add_brokers(running: BlockingCluster, folder: Path, controller: str, count: int) -> None:
    """Add brokers of ours to the group."""
    for number in range(count):
        running.add_broker(
            broker_name=GROUP, store_dir=folder / f"b{number}", controllers=(controller,)
        )
