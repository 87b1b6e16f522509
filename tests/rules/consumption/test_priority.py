"""Priorities: queues, order of reading, ageing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.rules.consumption.priority import (
    AGEING_MS,
    FACTOR,
    aged_priority,
    ageing_ms,
    check_attribute,
    parse_priority,
    priority_queue,
    reads_by_priority,
)


@pytest.mark.parametrize(
    ("text", "priority"),
    [("0", 0), ("7", 7), ("2147483647", 2**31 - 1), ("2147483648", None), ("9" * 30, None),
     ("-1", None), ("", None), ("high", None), ("٣", None)],
)  # fmt: skip
def test_a_priority_is_a_number_from_0_that_fits_in_32_bits(
    text: str, priority: int | None
) -> None:
    assert parse_priority(text) == priority


def test_the_last_queue_takes_all_higher_priorities() -> None:
    assert [priority_queue(priority, 4) for priority in (0, 2, 3, 4, 2**31 - 1)] == [0, 2, 3, 3, 3]
    assert priority_queue(5, 0) == 0, "of a topic that takes no more messages"


@pytest.mark.parametrize(
    ("factor", "percents"),
    [({}, 100), ({FACTOR: "100"}, 100), ({FACTOR: "0"}, 0), ({FACTOR: "30"}, 30),
     ({FACTOR: "many"}, 100), ({FACTOR: "101"}, 100)],
)  # fmt: skip
def test_the_factor_is_the_share_of_pops_that_read_by_priority(
    factor: dict[str, str], percents: int
) -> None:
    assert sum(reads_by_priority(factor, percent) for percent in range(100)) == percents


def test_without_ageing_no_message_rises() -> None:
    assert (ageing_ms({}), ageing_ms({AGEING_MS: "0"}), ageing_ms({AGEING_MS: "x"})) == (0, 0, 0)
    assert ageing_ms({AGEING_MS: "60000"}) == 60_000


def test_a_message_rises_by_one_priority_for_each_time_that_it_has_waited() -> None:
    aged = [aged_priority(3, waited_ms, 1_000) for waited_ms in (0, 999, 1_000, 5_500)]
    assert aged == [3, 3, 4, 8]
    assert aged_priority(1, -5_000, 1_000) == 1, "a message from the future has not waited"


@given(st.integers(0, 15), st.integers(0, 10**9), st.integers(1, 10**6))
def test_no_message_waits_for_ever_behind_new_ones(highest: int, waited: int, ageing: int) -> None:
    longer = waited + (highest + 1) * ageing
    assert aged_priority(0, longer, ageing) > aged_priority(highest, waited, ageing)


@pytest.mark.parametrize(
    ("name", "value"),
    [(FACTOR, "101"), (FACTOR, "-1"), (FACTOR, ""), (AGEING_MS, "1s"), (AGEING_MS, "9" * 20)],
)
def test_an_attribute_that_is_no_number_in_its_bounds_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: '{value}' is no number from 0 to"):
        check_attribute(name, value)


def test_other_attributes_are_not_looked_at() -> None:
    check_attribute("lite.bind.topic", "t")
    check_attribute(FACTOR, "100")
    check_attribute(AGEING_MS, "0")
