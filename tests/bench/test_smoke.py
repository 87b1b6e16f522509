"""Files of bench/ and tools/ run: each prints its help, the quick ones do a little work.

What is here keeps benchmarks from rotting between two measurements; it measures nothing. Programs
that need Java, Maven, the network or minutes say only how they are used.
"""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
FILES = sorted([*BENCH.rglob("*.py"), *(ROOT / "tools").rglob("*.py")])
COMMANDS = [path for path in FILES if 'if __name__ == "__main__":' in path.read_text("utf-8")]
LIBRARIES = [path for path in FILES if path not in COMMANDS]

SMALL = {
    "access_cost": "--ours-only --rounds 1 --seconds 0.1 --out DIRECTORY/access-cost.json",
    "balance": "--queues 40 --members 20 --repeats 1 --out DIRECTORY/balance.json",
    "celery_tasks": "--ours-only --tasks 20 --rounds 1 --out DIRECTORY/celery-tasks.json",
    "codec": "--repeats 1",
    "connections": "half --connections 20 --sends 10",
    "dashboard": "--topics 20 --groups 10 --brokers 2 --repeats 1 --out DIRECTORY/dashboard.json",
    "faststream_messages": "--messages 64 --tasks 4 --rounds 1 --out DIRECTORY/faststream.json",
    "fill": "DIRECTORY --messages 20",
    "filter_scan": "--messages 100 --rounds 1 --directory DIRECTORY"
    " --out DIRECTORY/filter_scan.json",
    "filters": "--ours-only --messages 1000 --passes 1 --out DIRECTORY/filters.json",
    "flame_graphs": "--only 1 --seconds 0.5 --tools perf --no-install --out DIRECTORY",
    "footprint": "--only help,import --rounds 1 --out DIRECTORY/footprint.json",
    "growth": "--ours-only --only body --most 16 --rounds 1 --seconds 0.1 --warm 0"
    " --out DIRECTORY/growth.json",
    "grpc_proxy": "--ours-only --rounds 1 --seconds 0.2 --idle-clients 0"
    " --out DIRECTORY/grpc-proxy.json",
    "keys": "--ours-only --messages 200 --queries 20 --passes 1 --out DIRECTORY/keys.json",
    "lone": "--ours-only --rounds 1 --seconds 0.1 --warm 0 --out DIRECTORY/lone.json",
    "metrics_cost": "--rounds 1 --seconds 0.1 --pages 1 --out DIRECTORY/metrics-cost.json",
    "net": "--requests 100 --repeats 1",
    "pop": "--ours-only --messages 500 --processes 1 --out DIRECTORY/pop.json",
    "produce": "--only many --scale 0.001 --rounds 1 --out DIRECTORY/produce.json",
    "replication": "--ours-only --only send,controller --rounds 1 --seconds 0.1 --warm 0"
    " --out DIRECTORY/replication.json",
    "report": "--build DIRECTORY --out DIRECTORY/report.html",
    "soak": "--work batches --minutes 0.005 --period 0.1 --out DIRECTORY/bench-batches.json",
    "taskiq_tasks": "--ours-only --tasks 50 --rounds 1 --out DIRECTORY/taskiq-tasks.json",
    "store": "--count 100 --recover-gb 0.001 --recover-batches 1 --directory DIRECTORY"
    " --out DIRECTORY/store.json",
}
"""Benchmarks of our own programs alone, with arguments that leave a second or two of work."""

SHELL_SCRIPTS = sorted((ROOT / "tools").rglob("*.sh"))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("script", COMMANDS, ids=name_of)
def test_a_command_says_how_it_is_used(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(script), run_name="__main__")
    assert exit_.value.code in (0, None)
    assert capsys.readouterr().out.startswith(f"usage: {script.name}")


@pytest.mark.parametrize("module", LIBRARIES, ids=name_of)
def test_a_library_can_be_imported(module: Path) -> None:
    assert runpy.run_path(str(module))["__doc__"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_quick_benchmark_runs_with_its_smallest_inputs(name: str, tmp_path: Path) -> None:
    arguments = SMALL[name].replace("DIRECTORY", str(tmp_path)).split()
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=name_of)
def test_a_shell_script_can_be_parsed(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_every_benchmark_has_its_line_in_the_readme() -> None:
    text = (BENCH / "README.md").read_text("utf-8")
    listed = re.findall(r"^\| \[([\w/]+\.\w+)\]\(\1\) \|", text, re.MULTILINE)
    files = (path for path in BENCH.rglob("*.py") if path.stem != "__init__")
    assert sorted(listed) == sorted(str(path.relative_to(BENCH)) for path in files)
