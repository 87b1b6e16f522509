import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

PROJECT = """
from roquet.client.producer import Producer

seen = []

async def test_sends(roquet_cluster):
    async with Producer(roquet_cluster.namesrv_addr) as producer:
        receipt = await producer.send("orders", b"one")
    assert receipt.ok
    seen.append(roquet_cluster.namesrv_addr)

def test_another_test_has_a_cluster_of_its_own(roquet_cluster):
    assert len(roquet_cluster.brokers) == 1
    assert roquet_cluster.namesrv_addr

def test_the_sessions_cluster_is_another(roquet_session_cluster):
    seen.append(roquet_session_cluster.namesrv_addr)

def test_the_sessions_cluster_stays(roquet_session_cluster):
    assert seen[-1] == roquet_session_cluster.namesrv_addr
"""

WITHOUT = """
import sys

def test_nothing_of_roquet_is_imported_but_the_plugin():
    ours = {name for name in sys.modules if name.split(".")[0] == "roquet"}
    assert ours == {"roquet", "roquet.testing", "roquet.testing.plugin"}
    assert "msgspec" not in sys.modules
"""


PLUGINS = ("-p", "pytest_asyncio.plugin", "-p", "roquet.testing.plugin")
"""Named, since the code may or may not be installed in the environment that tests it."""


OURS_ALONE = PLUGINS[2:]

PAGE = SOURCE.parent / "docs" / "howto" / "testing.md"


def pytest_of(project: Path, code: str, plugins: Sequence[str] = PLUGINS) -> str:
    (project / "test_it.py").write_text(code)
    settings = "asyncio_mode = auto" if plugins == PLUGINS else ""
    (project / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "test_it.py"],
        cwd=project,
        env={"PYTHONPATH": str(SOURCE), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout + run.stderr


def test_the_fixtures_give_a_real_cluster_to_plain_and_async_tests(tmp_path: Path) -> None:
    assert "4 passed" in pytest_of(tmp_path, PROJECT)


def test_a_project_that_does_not_use_them_pays_for_no_import(tmp_path: Path) -> None:
    assert "1 passed" in pytest_of(tmp_path, WITHOUT)


def test_the_tests_of_the_page_pass_with_pytest_alone(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    assert "5 passed" in pytest_of(tmp_path, "\n".join(blocks), OURS_ALONE)


def test_an_async_test_that_uses_none_of_our_fixtures_is_left_to_others(tmp_path: Path) -> None:
    code = "async def test_another(tmp_path): ..."
    assert "async def functions are not natively supported" in pytest_of(tmp_path, code, OURS_ALONE)
