"""Fuzz inputs: a seed gives the same calls, and odd columns are known to be odd."""

import re
from random import Random

import pytest

from fuzz_inputs import CALLS, EDGES, column_of, damage, number


@pytest.mark.parametrize("name", CALLS)
def test_a_seed_gives_the_same_calls(name: str) -> None:
    first, second = (repr(CALLS[name](Random(3)).arguments) for _ in range(2))
    address = re.compile("0x[0-9a-f]+")
    assert address.sub("", first) == address.sub("", second)


def test_columns_have_their_values_unless_they_are_known_to_be_odd() -> None:
    random, values = Random(1), [b"a", None, b"", b"long" * 9]
    odd = 0
    for _ in range(300):
        column, is_sound = column_of(random, values)
        odd += not is_sound
        if is_sound:
            column.validate(full=True)
            assert column.to_pylist() == values
    assert 20 < odd < 200


def test_numbers_are_small_or_near_a_limit() -> None:
    random = Random(2)
    drawn = {number(random) for _ in range(9_000)}
    assert drawn - set(range(-5, 1_000)) == set(EDGES) - set(range(-5, 1_000))


def test_damages_change_some_of_the_bytes() -> None:
    random, whole = Random(3), bytes(range(100))
    damaged = [damage(random, whole) for _ in range(100)]
    assert 20 < damaged.count(whole) < 60
    assert {len(raw) for raw in damaged} > {100}
