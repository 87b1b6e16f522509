"""Simulator: a seed repeats byte for byte, in this process and in another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.client.connection import open_consumers
from roquet.model.errors import UsageError
from simulation.balance.workload import BalanceWorkload
from simulation.simulator import isolated_clients, simulate
from simulation.timed.workload import TimedWorkload
from simulation.workloads import run_seed

ROOT = Path(__file__).parents[2]
DIGEST = "import sys; from simulation.workloads import run_seed; "
DIGEST += "print(run_seed((sys.argv[1], int(sys.argv[2]))).digest)"


def digest_elsewhere(workload: str, seed: int, hash_seed: str) -> str:
    """The digest of a seed in another process, with other hashes."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGEST, workload, str(seed)]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_a_seed_repeats_byte_for_byte() -> None:
    one, other = (simulate(BalanceWorkload.of_seed, 4) for _ in range(2))
    assert one.lines == other.lines
    assert one.digest == other.digest
    assert one.acknowledged > 0
    assert simulate(BalanceWorkload.of_seed, 5).digest != one.digest


@pytest.mark.slow
def test_it_does_so_in_another_process_whatever_its_hashes_are() -> None:
    expected = run_seed(("balance", 7)).digest
    assert [digest_elsewhere("balance", 7, seed) for seed in ("1", "2")] == [expected] * 2


def test_a_day_repeats_byte_for_byte_whatever_a_process_hashes_are() -> None:
    one = simulate(TimedWorkload.of_seed, 12)
    assert one.findings == ()
    assert one.acknowledged > 0
    assert digest_elsewhere("day", 12, "1") == one.digest


class Consumer:
    """A consumer of this process, as far as the table of open ones looks at it."""

    group, client_id, name_servers, is_open = "g", "c", ("127.0.0.1:9876",), True


def test_a_simulation_meets_no_earlier_client_and_leaves_none() -> None:
    outside, inside, late = Consumer(), Consumer(), Consumer()
    open_consumers.register(outside)
    with isolated_clients():
        open_consumers.register(inside)
    with pytest.raises(UsageError, match="has a consumer named c"):
        open_consumers.register(late)
    open_consumers.unregister(outside)
    open_consumers.register(late)
    open_consumers.unregister(late)
