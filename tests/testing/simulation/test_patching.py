"""Patching: another attribute for a time, and the old one afterwards whatever happened."""

import pytest

from roquet.testing.simulation.patching import patched


class House:
    rooms = 3


def test_what_was_replaced_is_back_afterwards() -> None:
    with patched(House, "rooms", 4):
        assert House.rooms == 4
    assert House.rooms == 3


def test_it_is_back_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), patched(House, "rooms", 4):
        _ = 1 // 0
    assert House.rooms == 3
