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

from harness.ports import free_port
from roquet.net.tls import Tls

CERTIFICATES = Path(__file__).parents[2] / "certificates"

SHOWN = Tls(
    ca=CERTIFICATES / "ca.pem", cert=CERTIFICATES / "client.pem", key=CERTIFICATES / "client.key"
)
"""TLS of a client whom an etcd with TLS lets in."""

START_SECONDS_MAX = 20


class RealEtcd:
    """An etcd of one member, which can be stopped and started again with its data."""

    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        """With `tls` it speaks HTTPS, and wants a certificate of every client."""
        self._tls = tls
        self._directory = directory
        self._port, self._peer_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        scheme = "https" if self._tls else "http"
        client, peer = f"{scheme}://{self.address}", f"http://127.0.0.1:{self._peer_port}"
        flags = []
        arguments = {
            "--data-dir": str(self._directory / "etcd"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"default={peer}",
        }
        if self._tls:
            arguments |= {
                "--cert-file": str(CERTIFICATES / "server.pem"),
                "--key-file": str(CERTIFICATES / "server.key"),
                "--trusted-ca-file": str(CERTIFICATES / "ca.pem"),
            }
            flags.append("--client-cert-auth")
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["etcd", *(part for pair in arguments.items() for part in pair), *flags],
                stdout=log,
                stderr=log,
            )
        for _ in range(START_SECONDS_MAX * 20):
            if self._is_healthy():
                return
            time.sleep(0.05)
        raise AssertionError("etcd did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_healthy(self) -> bool:
        scheme, context = "http", None
        if self._tls:
            scheme, context = "https", SHOWN.context()
        try:
            with urlopen(f"{scheme}://{self.address}/health", timeout=1, context=context) as answer:
                return b"true" in answer.read()
        except (URLError, OSError):
            return False


@contextmanager
def running_etcd(directory: Path, *, tls: bool = False) -> Iterator[RealEtcd]:
    if shutil.which("etcd") is None:
        pytest.skip("no etcd on PATH: tools/install/servers.sh installs Debian's etcd-server")
    etcd = RealEtcd(directory, tls=tls)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()
