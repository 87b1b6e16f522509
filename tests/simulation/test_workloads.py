"""Workloads: each runs by its name, and each defect belongs to one."""

from simulation.workloads import DEFECTS, WORKLOADS, run_seed


def test_a_seed_of_a_workload_runs_by_name() -> None:
    result = run_seed(("day", 12))
    assert (result.workload, result.seed, result.findings) == ("day", 12, ())


def test_a_defect_is_planted_by_name() -> None:
    assert run_seed(("balance", 0), "lost-notice").findings


def test_every_defect_belongs_to_a_workload_and_says_what_it_is() -> None:
    assert list(WORKLOADS) == ["balance", "day", "replicated"]
    assert {workload for workload, _ in DEFECTS.values()} == set(WORKLOADS)
    assert all(defect.__doc__ for _, defect in DEFECTS.values())
