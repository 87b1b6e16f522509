"""Patching: another attribute for a time, and the old one afterwards whatever happened."""

from typing import Any

import pytest

from simulation.patching import by_name, patched, planted, wrapped


class Limits:
    connections = 3

    def allowed(self, more: int = 0) -> int:
        return self.connections + more


@planted(Limits, "allowed")
def one_too_many(allowed: Any, limits: Limits, more: int = 0) -> Any:
    """One connection more than there may be."""
    return allowed(limits, more) + 1


def test_patched_attributes_are_restored_afterwards() -> None:
    with patched(Limits, "connections", 4):
        assert Limits.connections == 4
    assert Limits.connections == 3


def test_it_is_back_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), patched(Limits, "connections", 4):
        _ = 1 // 0
    assert Limits.connections == 3


def test_a_wrapper_gets_the_original_and_its_arguments() -> None:
    with wrapped(Limits, "allowed", lambda allowed, limits, more: allowed(limits, 2 * more)):
        assert Limits().allowed(5) == 13
    assert Limits().allowed(5) == 8


def test_a_defect_is_planted_for_as_long_as_it_is_entered() -> None:
    for _ in range(2):
        with one_too_many():
            assert Limits().allowed(more=1) == 5
        assert Limits().allowed(more=1) == 4
    assert one_too_many.__doc__ == "One connection more than there may be."


def test_defects_have_the_names_of_their_functions() -> None:
    assert by_name(one_too_many) == {"one-too-many": one_too_many}
