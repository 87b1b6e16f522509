"""A driver killed in the middle of its commits: afterwards all rows are visible, each once.

The broker's times are short, so that what takes 15 minutes and more at its defaults (it gives up
the half messages that nobody ended) is over in 30 s. `bench/sink_restart.py` does it in real time.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark_suite

ROOT = Path(__file__).parents[2]
ROWS = 40_000


@pytest.mark.timeout(600)
def test_rows_are_visible_once_after_their_driver_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.sink_restart", str(tmp_path / "run")]
    command += ["--hasty", "--rows", str(ROWS)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert ROWS * 0.4 <= result["visible_when_killed"] < ROWS
    assert result["given_up_by_the_broker"] > 0
    assert (result["visible"], result["missing"], result["doubled"]) == (ROWS, 0, 0), result
