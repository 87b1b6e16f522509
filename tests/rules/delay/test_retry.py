import pytest

from roquet.rules.delay.retry import (
    DEAD_LETTER,
    dead_letter_properties,
    next_level,
    retry_properties,
    times_after,
    tries_limit,
)


@pytest.mark.parametrize(
    ("asked", "of_group", "limit"),
    [(None, 16, 16), (3, 16, 3), (40, 16, 40), (0, 16, 0), (-1, 16, 16)],
)
def test_a_member_may_ask_for_another_limit(asked: int | None, of_group: int, limit: int) -> None:
    assert tries_limit(asked, of_group) == limit


@pytest.mark.parametrize(
    ("asked", "times", "level"),
    [
        (0, -9, 3),
        (0, 0, 3),
        (0, 15, 18),
        (0, 16, DEAD_LETTER),
        (5, 0, 5),
        (5, 16, DEAD_LETTER),
        (-1, 0, DEAD_LETTER),
        (0, 99, DEAD_LETTER),
    ],
)
def test_the_next_try_is_one_level_later_until_the_last(asked: int, times: int, level: int) -> None:
    assert next_level(asked, times, 16) == level


def test_a_failed_message_remembers_where_it_came_from() -> None:
    properties = retry_properties(
        {"TAGS": "red", "UNIQ_KEY": "k", "WAIT": "true"}, "orders", "ID1", 3
    )
    assert properties == {
        "TAGS": "red", "UNIQ_KEY": "k", "WAIT": "false", "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "ID1", "DELAY": "3",
    }  # fmt: skip
    again = retry_properties(properties, "%RETRY%g", "ID2", 4)
    assert again == {**properties, "DELAY": "4"}


def test_a_dead_letter_waits_for_nothing_and_tells_its_past() -> None:
    failed = retry_properties({"UNIQ_KEY": "k"}, "orders", "ID1", 3)
    assert dead_letter_properties(failed, "%RETRY%g", "ID9") == {
        **failed, "DELAY": "0", "DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "k",
    }  # fmt: skip


def test_a_message_without_a_unique_key_is_known_by_its_first_place() -> None:
    properties = dead_letter_properties({}, "orders", "ID1")
    assert (properties["DLQ_ORIGIN_MESSAGE_ID"], properties["RETRY_TOPIC"]) == ("ID1", "orders")


def test_tries_are_counted_as_far_as_a_record_can_hold_them() -> None:
    assert [times_after(times) for times in (-1, 0, 2**31 - 2, 2**31 - 1)] == [
        0, 1, 2**31 - 1, 2**31 - 1,
    ]  # fmt: skip
