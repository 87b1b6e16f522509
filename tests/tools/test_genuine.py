"""What is fetched for tests is fetched once, however many processes want it."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import genuine


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
