"""Wheels hold the package and nothing else, and are built with and without a C compiler."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import exact_environment
import wheels
from harness.ports import free_port

COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.docs,  # an installation is built, as the commands of pages do
    pytest.mark.skipif(find_spec("Cython") is None, reason="builds need Cython: make install"),
]
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    without = {"CC": "/nonexistent", "CXX": "/nonexistent"}
    return wheels.build_wheel(tmp_path_factory.mktemp("pure"), environment=without)


def version(wheel: Path, directory: Path) -> str:
    """What `roquet --version` prints of the package in a wheel."""
    with ZipFile(wheel) as archive:
        archive.extractall(directory)
    run = subprocess.run(
        [sys.executable, "-m", "roquet", "--version"], check=True, capture_output=True, text=True,
        cwd=directory, env={**os.environ, "PYTHONPATH": str(directory)},
    )  # fmt: skip
    return run.stdout


@needs_compiler
def test_a_wheel_holds_the_compiled_inner_loops(wheel: Path, tmp_path: Path) -> None:
    assert wheels.is_compiled(wheel)
    assert version(wheel, tmp_path).endswith(" (compiled inner loops)\n")


def test_without_a_compiler_the_package_is_pure_python(pure: Path, tmp_path: Path) -> None:
    assert not wheels.is_compiled(pure)
    assert version(pure, tmp_path).endswith(" (pure Python)\n")


ROUND_TRIP = """
import sys
from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.client.blocking import Producer, PushConsumer

first = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
with Producer(sys.argv[1]) as producer:
    producer.send("orders", b"x" * 10_000)
with PushConsumer(sys.argv[1], group="g", topic="orders", config=first) as consumer:
    (message,) = consumer.fetch(1)
    print(len(message.body))
"""


@contextmanager
def dev_server(programs: Path, log: Path) -> Iterator[str]:
    """The name server's address of a `roquet dev`, whose stderr goes to a file."""
    namesrv = free_port()
    ports = ["--namesrv-port", str(namesrv), "--port", str(free_port())]
    with log.open("w") as errors, subprocess.Popen(
        [programs / "roquet", "dev", "--memory", *ports],
        stdout=subprocess.PIPE, stderr=errors, text=True, env={"PATH": os.environ["PATH"]},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            assert any("ready" in line for line in process.stdout), log.read_text()
            yield f"127.0.0.1:{namesrv}"
        finally:
            process.terminate()


def run_program(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=100
    )


def test_a_client_needs_one_package_and_talks_to_a_server_of_more(
    wheel: Path, tmp_path: Path
) -> None:
    assert exact_environment.closure("roquet", wheel).keys() == {"msgspec"}
    bare = exact_environment.make(tmp_path / "bare", "roquet", wheel)
    full = exact_environment.make(tmp_path / "full", "roquet[server]", wheel)
    with dev_server(full, tmp_path / "log") as namesrv:
        done = run_program(bare / "python", "-c", ROUND_TRIP, namesrv)
    assert (done.stdout, done.stderr) == ("10000\n", "")
    assert (tmp_path / "log").read_text() == ""


def test_each_install_says_what_it_lacks(wheel: Path, tmp_path: Path) -> None:
    bare = exact_environment.make(tmp_path / "bare", "roquet", wheel)
    done = run_program(bare / "roquet", "dev")
    assert done.returncode == 2
    assert "pip install 'roquet[server]'" in done.stderr
    cli = exact_environment.make(tmp_path / "cli", "roquet[cli]", wheel)
    with dev_server(cli, tmp_path / "log") as namesrv:
        assert run_program(cli / "roquet", "topic", "ls", "-n", namesrv).returncode == 0
        done = run_program(bare / "python", "-c", ROUND_TRIP, namesrv)
        assert (done.stdout, done.stderr) == ("10000\n", "")
    assert "pip install 'roquet[server]'" in (tmp_path / "log").read_text()
    for needing, extra in (("dashboard", "dashboard"), ("proxy", "grpc"), ("lake query x", "lake")):
        done = run_program(cli / "roquet", *needing.split())
        assert f"pip install 'roquet[{extra}]'" in done.stderr, needing


def test_a_wheel_holds_the_package_its_data_and_its_entry_points(pure: Path) -> None:
    with ZipFile(pure) as archive:
        names = set(archive.namelist())
        (entries,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        entry_points = archive.read(entries).decode()
    assert {
        "roquet/__init__.py",
        "roquet/py.typed",
        "roquet/broker/settings/apache-settings.txt",
        "roquet/wire/records/_speedups.pyx",
        "roquet/wire/records/_numbers.pxi",
        "pyspark_roquet/__init__.py",
    } <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "roquet = roquet.__main__:main" in entry_points
    assert (
        "[apache_airflow_provider]\nprovider_info = roquet.integrations.airflow:get_"
        in entry_points
    )
    assert "[pytest11]\nroquet = roquet.testing.plugin" in entry_points
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if ".dist-info" not in top} == {"roquet", "pyspark_roquet"}
    assert not [name for name in names if name.endswith((".c", ".so", ".pyd", ".pyc"))]


def test_a_source_distribution_holds_what_a_build_reads(tmp_path: Path) -> None:
    sources = wheels.copy_sources(tmp_path / "sources")
    build = "import setuptools.build_meta as build, sys; build.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], check=True, cwd=sources, capture_output=True
    )
    (archive,) = tmp_path.glob("roquet-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    records = "src/roquet/wire/records"
    compiled = (f"{records}/_speedups.pyx", f"{records}/_numbers.pxi")
    for name in ("LICENSE", "docs/wheel.md", *compiled):
        assert (unpacked / name).read_bytes() == (wheels.ROOT / name).read_bytes()
