"""The programs of the page on typed bodies print what stands below them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.docs, pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "howto" / "typed-bodies.md"
PROGRAM: Final = re.compile(
    r"^```python\n((?:import|from) .*?)^```.*?^```text\n(.*?)^```", re.DOTALL | re.MULTILINE
)
PROGRAMS: Final = PROGRAM.findall(PAGE.read_text("utf-8"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.namesrv_addr


def test_each_library_has_its_program() -> None:
    libraries = ("pydantic", "msgspec", "dataclasses", "fastavro", "google.protobuf")
    assert len(PROGRAMS) == len(libraries)
    for (text, _), library in zip(PROGRAMS, libraries, strict=True):
        assert f"import {library}" in text or f"from {library}" in text


@pytest.mark.parametrize(("text", "said"), PROGRAMS)
def test_a_program_prints_what_the_page_shows(text: str, said: str, address: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        env={**os.environ, "NAMESRV_ADDR": address, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, said, "")
