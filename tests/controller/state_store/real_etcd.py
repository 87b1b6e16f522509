"""Real etcd for tests: a process with one member, or a skip that says what to install."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from genuine import free_port

START_SECONDS_MAX = 20


class RealEtcd:
    """An etcd of one member, which can be stopped and started again with its data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port, self._peer_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        client, peer = f"http://{self.address}", f"http://127.0.0.1:{self._peer_port}"
        arguments = {
            "--data-dir": str(self._directory / "etcd"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"default={peer}",
        }
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["etcd", *(part for pair in arguments.items() for part in pair)],
                stdout=log,
                stderr=log,
            )
        for _ in range(START_SECONDS_MAX * 20):
            if self._is_healthy():
                return
            time.sleep(0.05)
        raise AssertionError("etcd did not start")

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_healthy(self) -> bool:
        try:
            with urlopen(f"http://{self.address}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except (URLError, OSError):
            return False


@contextmanager
def running_etcd(directory: Path) -> Iterator[RealEtcd]:
    if shutil.which("etcd") is None:
        pytest.skip("no etcd on PATH: tools/install_etcd.sh installs Debian's etcd-server")
    etcd = RealEtcd(directory)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()
