import pytest

from roquet.rules.retry import (
    DEAD,
    for_dead_letters,
    for_retry,
    next_level,
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
        (0, 16, DEAD),
        (5, 0, 5),
        (5, 16, DEAD),
        (-1, 0, DEAD),
        (0, 99, DEAD),
    ],
)
def test_the_next_try_is_one_level_later_until_the_last(asked: int, times: int, level: int) -> None:
    assert next_level(asked, times, 16) == level


def test_a_failed_message_remembers_where_it_came_from() -> None:
    found = for_retry({"TAGS": "red", "UNIQ_KEY": "k", "WAIT": "true"}, "orders", "ID1", 3)
    assert found == {
        "TAGS": "red", "UNIQ_KEY": "k", "WAIT": "false", "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "ID1", "DELAY": "3",
    }  # fmt: skip
    again = for_retry(found, "%RETRY%g", "ID2", 4)
    assert again == {**found, "DELAY": "4"}


def test_a_dead_letter_waits_for_nothing_and_tells_its_past() -> None:
    failed = for_retry({"UNIQ_KEY": "k"}, "orders", "ID1", 3)
    assert for_dead_letters(failed, "%RETRY%g", "ID9") == {
        **failed, "DELAY": "0", "DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "k",
    }  # fmt: skip


def test_a_message_without_a_unique_key_is_known_by_its_first_place() -> None:
    found = for_dead_letters({}, "orders", "ID1")
    assert (found["DLQ_ORIGIN_MESSAGE_ID"], found["RETRY_TOPIC"]) == ("ID1", "orders")


def test_tries_are_counted_as_far_as_a_record_can_hold_them() -> None:
    assert [times_after(times) for times in (-1, 0, 2**31 - 2, 2**31 - 1)] == [
        0, 1, 2**31 - 1, 2**31 - 1,
    ]  # fmt: skip
