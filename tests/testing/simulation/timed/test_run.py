"""Whole days: they repeat byte for byte, in this process and in another."""

import os
import subprocess
import sys

from roquet.testing.simulation.timed.run import simulate_timed

DIGEST = "import sys; from roquet.testing.simulation.timed.run import simulate_timed; "
DIGEST += "print(simulate_timed(int(sys.argv[1])).digest)"


def test_a_day_repeats_byte_for_byte_whatever_a_process_hashes_are() -> None:
    one = simulate_timed(12)
    assert one.faults == ()
    assert one.acknowledged > 0
    environ = {**os.environ, "PYTHONHASHSEED": "1"}
    told = subprocess.run(
        [sys.executable, "-c", DIGEST, "12"], env=environ, capture_output=True, check=True
    )
    assert told.stdout.decode().strip() == one.digest
