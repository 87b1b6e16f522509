"""What the interoperability tests stand on: our system as a process, the genuine one beside it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import genuine, java_client
from harness.servers import DevServer

SHORT_LEVELS = " ".join(["1s"] * 18)
"""Delay levels of the genuine broker: its retries would take minutes."""


@pytest.fixture(scope="session", autouse=True)
def short_lived_java() -> Iterator[None]:
    """Starts every Java with the first compiler alone: it lives for seconds, on a few cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@contextlib.contextmanager
def roquet_dev(folder: Path) -> Iterator[str]:
    """The name server's address of a `roquet dev` on a directory, as a process."""
    with DevServer(folder) as server:
        yield server.address


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[str]:
    """The address of a name server and broker of ours, which nobody else uses."""
    with roquet_dev(tmp_path) as address:
        yield address


@pytest.fixture(scope="session")
def ours_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same for tests that have topics and groups of their own: a start takes seconds."""
    with roquet_dev(tmp_path_factory.mktemp("ours")) as address:
        yield address


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where Apache RocketMQ cannot be run."""
    if lack := genuine.missing():
        pytest.skip(lack)


@pytest.fixture(scope="session")
def theirs(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[genuine.Genuine]:
    """A running Apache RocketMQ 5.5.0."""
    folder = tmp_path_factory.mktemp("genuine")
    settings = {"messageDelayLevel": SHORT_LEVELS, "recallMessageEnable": "true"}
    with genuine.cluster(folder, **settings) as running:
        yield running


@pytest.fixture(scope="session")
def java_member(
    java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[java_client.JavaClient]:
    """A process in which consumers and producers of the genuine Java client live."""
    with java_client.java_client(tmp_path_factory.mktemp("java")) as client:
        yield client


@pytest.fixture(scope="session")
def cpp_python() -> str:
    """A Python of its own in which PyPI's C++ based client is installed."""
    return python_with("rocketmq==0.4.4")


@pytest.fixture(scope="session")
def grpc_python() -> str:
    """A Python of its own in which the official client of RocketMQ 5 is installed."""
    return python_with("rocketmq-python-client==5.1.2")


def python_with(package: str) -> str:
    try:
        return genuine.python_with(package)
    except RuntimeError as error:
        pytest.skip(str(error))
