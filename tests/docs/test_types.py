"""Programs that pages show are typed: who copies one into a strict project gets no complaint."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.docs, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
IMPORTS: Final = re.compile(r"^(import|from) ", re.MULTILINE)
"""What has imports is a program, what has none is a part of one."""


SETTINGS: Final = """
[mypy]
strict = true
[mypy-pyarrow.*,lz4.*,hive_metastore.*,thrift.*,yaml.*]
ignore_missing_imports = true
"""


THEIRS: Final = re.compile(r"^from (rocketmq|celery) ", re.MULTILINE)
"""The official client and Celery have no types."""

PORTED: Final = re.compile(r"^from (rocketmq\.client|aiokafka) ", re.MULTILINE)
"""Programs for other libraries that pages named `from-…` show before our own."""


UNTYPED: Final = re.compile(
    r"\b(deltalake|fastavro|pyarrow|pyiceberg|roquet\.lake|roquet\.spark)\b"
)
"""Libraries with incomplete types, and modules that return such: too little for strict mode."""


def programs() -> dict[str, str]:
    """Each with a name that says its page and line."""
    programs = {}
    for page in PAGES:
        text = page.read_text("utf-8")
        for block in BLOCK.finditer(text):
            is_theirs = THEIRS.search(block[1]) or (
                page.stem.startswith("from-") and PORTED.search(block[1])
            )
            if IMPORTS.search(block[1]) and not is_theirs:
                line = text[: block.start()].count("\n") + 2
                programs[f"{page.stem.replace('-', '_')}_{line}.py"] = block[1]
    return programs


def check(folder: Path, *arguments: str | Path) -> None:
    """Run a type checker on the programs in a folder; it finds nothing."""
    run = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_programs_of_pages_pass_mypy_strict(tmp_path: Path) -> None:
    written = programs()
    assert len(written) > 25
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    check(tmp_path, "mypy", "--cache-dir", tmp_path / "cache", *written)


def test_the_programs_of_pages_pass_pyright_strict(tmp_path: Path) -> None:
    for name, text in programs().items():
        mode = "standard" if UNTYPED.search(text) else "strict"
        (tmp_path / name).write_text(f"{text}\n# pyright: {mode}\n")
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    check(tmp_path, "basedpyright", "--pythonpath", sys.executable)
