"""Whole seeds: they repeat byte for byte, in this process and in another."""

import os
import subprocess
import sys

from roquet.testing.simulation.balance.run import simulate

DIGEST = "import sys; from roquet.testing.simulation.balance.run import simulate; "
DIGEST += "print(simulate(int(sys.argv[1])).digest)"


def test_a_seed_repeats_byte_for_byte() -> None:
    one, other = simulate(4), simulate(4)
    assert one.lines == other.lines
    assert one.digest == other.digest
    assert one.acknowledged > 0
    assert simulate(5).digest != one.digest


def test_it_does_so_in_another_process_whatever_its_hashes_are() -> None:
    wanted = simulate(7).digest
    for hash_seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(
            [sys.executable, "-c", DIGEST, "7"], env=environ, capture_output=True, check=True
        )
        assert told.stdout.decode().strip() == wanted
