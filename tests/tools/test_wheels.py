"""Wheels hold the package and nothing else, and are built with and without a C compiler."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import wheels

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
    assert "roquet = roquet.cli.main:main" in entry_points
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
