"""What is fetched for tests is fetched once, however many processes want it."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import genuine


def test_jars_that_are_not_wanted_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(genuine, "CACHE", tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    genuine.fetched("some", ["a:b:1", "c:d:2"], without=["jdk.tools:jdk.tools"])
    text = (tmp_path / "some" / "pom.xml").read_text()
    left_out = "<groupId>jdk.tools</groupId><artifactId>jdk.tools</artifactId></exclusion>"
    assert text.count(left_out) == 2


def test_processes_that_need_the_same_jars_wait_for_one_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Path] = []

    def maven(_: list[str], cwd: Path, **__: object) -> None:
        ran.append(cwd)
        time.sleep(0.2)
        (cwd / "lib").mkdir()

    monkeypatch.setattr(genuine, "CACHE", tmp_path)
    monkeypatch.setattr(subprocess, "run", maven)
    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(lambda _: genuine.fetched("some", ["a:b:1"]), range(4)))
    assert paths == [tmp_path / "some" / "lib"] * 4
    assert ran == [tmp_path / "some"]
    assert "<artifactId>b</artifactId>" in (ran[0] / "pom.xml").read_text()
