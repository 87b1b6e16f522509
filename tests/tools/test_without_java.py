import os
import sys
from pathlib import Path

import pytest

import without_java

SEES = """
import os, shutil, sys
sys.exit(shutil.which("java") is not None or "JAVA_HOME" in os.environ or not shutil.which("sh"))
"""


def program(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\nexit 0\n")
    (folder / name).chmod(0o755)


def test_the_command_sees_every_program_but_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "jdk", "java")
    monkeypatch.setenv("PATH", f"{tmp_path / 'jdk'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert without_java.main([sys.executable, "-c", SEES]) == 0


def test_the_first_program_of_a_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("first", "second"):
        program(tmp_path / folder, "tool")
    monkeypatch.setenv("PATH", f"{tmp_path / 'first'}{os.pathsep}{tmp_path / 'second'}")
    links = tmp_path / "links"
    links.mkdir()
    without_java.link_all_but_java(links)
    assert (links / "tool").resolve() == (tmp_path / "first" / "tool").resolve()


def test_the_commands_failure_is_ours() -> None:
    assert without_java.main([sys.executable, "-c", "raise SystemExit(3)"]) == 3
