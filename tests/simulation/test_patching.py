"""Patching: another attribute for a time, and the old one afterwards whatever happened."""

import pytest

from simulation.patching import patched


class Limits:
    connections = 3


def test_patched_attributes_are_restored_afterwards() -> None:
    with patched(Limits, "connections", 4):
        assert Limits.connections == 4
    assert Limits.connections == 3


def test_it_is_back_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), patched(Limits, "connections", 4):
        _ = 1 // 0
    assert Limits.connections == 3
