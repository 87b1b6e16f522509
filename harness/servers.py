"""Servers as processes on this machine: name servers, controllers and brokers, ours or genuine.

Each has a folder of its own for its store, its log and its settings, and listens on a port that is
free when it is described, and stays its own when it is started again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness import genuine
from harness.ports import HOST, free_port
from harness.processes import ROQUET, Process
from roquet.cli.process.runtime import LIFELINE

OURS: Final = "ours"
GENUINE: Final = "genuine"

READY: Final = {OURS: "ready", GENUINE: "boot success"}
"""Text of the output of each side's servers once they serve."""


class Server(Process):
    """A process that listens on a port."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        name: str,
        port: int,
        *,
        ready: str = "ready",
        environ: Mapping[str, str] = {},
    ) -> None:
        """Ours ends when this process does, even if that is killed."""
        super().__init__(
            command,
            folder / f"{name}.log",
            ready=ready,
            home=folder / name / "home",
            environ={LIFELINE: "1", **environ},
        )
        self.name = name
        self.port = port

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self.port}"


class DevServer(Server):
    """`roquet dev`: a name server, whose port this is, and a broker in one process."""

    def __init__(self, folder: Path, *options: str, broker_port: int | None = None) -> None:
        """Without options its data are in `folder/data`."""
        port, broker_port = free_port(), broker_port or free_port()
        where = options or ("--data", str(folder / "data"))
        ports = ["--namesrv-port", str(port), "--port", str(broker_port)]
        super().__init__([*ROQUET, "dev", *where, *ports], folder, "dev", port)
        self.broker = f"{HOST}:{broker_port}"


def name_server(folder: Path, *, side: str = OURS, port: int | None = None) -> Server:
    """A name server."""
    port = port or free_port()
    if side == OURS:
        command = [*ROQUET, "namesrv", "--host", HOST, "--port", str(port)]
    else:
        config = write_settings(folder / "namesrv.conf", {"listenPort": port})
        command = genuine.java("namesrv.NamesrvStartup", "-c", str(config), heap="256m")
    return Server(command, folder, "namesrv", port, ready=READY[side])


def controller(
    folder: Path,
    *,
    side: str = OURS,
    name: str = "controller",
    port: int | None = None,
    state: str = "",
) -> Server:
    """A controller; `state` is ours alone, a file in the folder if it is empty."""
    port = port or free_port()
    if side == OURS:
        command = [*ROQUET, "controller", "--host", HOST, "--port", str(port)]
        command += ["--advertise", f"{HOST}:{port}"]
        command += ["--store", state or f"file:{folder / 'controller-state'}"]
        return Server(command, folder, name, port)
    settings = {
        "controllerDLegerGroup": "g1",
        "controllerDLegerPeers": f"n0-{HOST}:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": folder / "controller-state",
        "mappedFileSize": "10485760",
    }
    config = write_settings(folder / f"{name}.conf", settings)
    command = genuine.java("controller.ControllerStartup", "-c", str(config), heap="192m")
    return Server(command, folder, name, port, ready=READY[side])


def broker(
    folder: Path,
    name: str,
    settings: Mapping[str, object] = {},
    *,
    side: str = OURS,
    heap: str = "1g",
    environ: Mapping[str, str] = {},
) -> Server:
    """A broker with its store in `folder/NAME/store`; `settings` are keys of broker.conf.

    `heap` is Java's.
    """
    store = folder / name / "store"
    own = {"bindAddress": HOST, "vip_port": "false"}
    theirs = {"brokerIP2": HOST, "storePathCommitLog": store / "commitlog"}
    config = {
        "brokerName": name,
        "brokerIP1": HOST,
        "listenPort": free_port(),
        "haListenPort": free_port(),
        "storePathRootDir": store,
        **(own if side == OURS else theirs),
        **settings,
    }
    path = str(write_settings(folder / f"{name}.conf", config))
    if side == OURS:
        command = [*ROQUET, "broker", "--config", path]
    else:
        command = genuine.java("broker.BrokerStartup", "-c", path, heap=heap)
    port = int(str(config["listenPort"]))
    return Server(command, folder, name, port, ready=READY[side], environ=environ)


def etcd(folder: Path, name: str, port: int, peer_ports: Mapping[str, int]) -> Server:
    """A member of an etcd, which has to be on PATH; `peer_ports` are those of all by name."""
    peers = {each: f"http://{HOST}:{peer_port}" for each, peer_port in peer_ports.items()}
    client = f"http://{HOST}:{port}"
    options = {
        "--name": name,
        "--data-dir": str(folder / name / "data"),
        "--listen-client-urls": client,
        "--advertise-client-urls": client,
        "--listen-peer-urls": peers[name],
        "--initial-advertise-peer-urls": peers[name],
        "--initial-cluster": ",".join(f"{each}={url}" for each, url in peers.items()),
    }
    command = ["etcd", *(word for option in options.items() for word in option)]
    return Server(command, folder, name, port, ready="ready to serve client requests")


def write_settings(path: Path, settings: Mapping[str, object]) -> Path:
    """Write a file of `key=value` lines; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
    return path
