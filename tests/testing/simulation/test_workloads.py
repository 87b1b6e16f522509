"""Kinds: each is lived through by its name, and each bug belongs to one."""

from roquet.testing.simulation.workloads import BALANCE, DAY, DEFECTS, WORKLOADS, run_seed


def test_a_seed_of_a_kind_is_lived_through_by_name() -> None:
    outcome = run_seed((DAY, 12))
    assert (outcome.kind, outcome.seed, outcome.faults) == (DAY, 12, ())


def test_a_bug_is_planted_by_name() -> None:
    assert run_seed((BALANCE, 0), "lost-notice").faults


def test_every_bug_belongs_to_a_kind_and_says_what_it_is() -> None:
    assert {kind for kind, _ in DEFECTS.values()} == set(WORKLOADS)
    assert all(planted.__doc__ for _, planted in DEFECTS.values())
