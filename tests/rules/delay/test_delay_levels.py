from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines, vector_pairs

from roquet.model.errors import ConfigError
from roquet.rules.delay import delay_levels

ROWS = vector_lines("delay.jsonl")


def test_the_vectors_are_all_used() -> None:
    assert {row["in"]["op"] for row in ROWS} == {
        "parse_levels", "deliver_time", "level_to_queue", "retry_delay",
    }  # fmt: skip


@pytest.mark.parametrize(("given", "out"), vector_pairs("delay.jsonl", "parse_levels"))
def test_levels_are_read_as_java_reads_them(given: dict[str, Any], out: dict[str, Any]) -> None:
    if not out["ok"]:
        with pytest.raises(ConfigError, match="delay levels"):
            delay_levels.parse_levels(given["text"])
        return
    levels = delay_levels.parse_levels(given["text"])
    assert {str(n): ms for n, ms in enumerate(levels, 1)} == out["levels_ms"]
    assert len(levels) == out["max_level"]


@for_each(vector_pairs("delay.jsonl", "deliver_time"))
def test_a_message_is_due_when_java_says(given: dict[str, Any], out: int) -> None:
    levels = delay_levels.parse_levels(given["text"])
    assert delay_levels.due_ms(given["level"], given["store_timestamp"], levels) == out


@pytest.mark.parametrize(
    ("asked", "level"), [(-1, 0), (0, 0), (1, 1), (18, 18), (19, 18), (99, 18), (2**70, 18)]
)
def test_more_than_the_highest_level_is_the_highest(asked: int, level: int) -> None:
    assert delay_levels.effective_level(asked, delay_levels.DEFAULT_LEVELS) == level


def test_without_levels_nothing_waits() -> None:
    assert delay_levels.effective_level(3, ()) == 0


POLICIES: dict[str, dict[str, str]] = {
    "default": {},
    "CUSTOMIZED": {"type": "CUSTOMIZED"},
    "EXPONENTIAL": {"type": "EXPONENTIAL"},
}


def policy_of(given: dict[str, Any]) -> dict[str, Any]:
    policy: dict[str, Any] = dict(POLICIES[given["policy"]])
    if given["params"]:
        policy[f"{given['policy'].lower()}RetryPolicy"] = given["params"]
    return policy


@for_each(vector_pairs("delay.jsonl", "retry_delay"))
def test_a_groups_policy_says_the_time_that_java_says(given: dict[str, Any], out: int) -> None:
    assert delay_levels.retry_delay_ms(policy_of(given), given["reconsume_times"]) == out


def test_a_group_without_a_policy_has_the_default_ladder() -> None:
    assert [delay_levels.retry_delay_ms(None, times) for times in range(16)] == list(
        delay_levels.DEFAULT_LEVELS[2:]
    )


@pytest.mark.parametrize(
    "policy",
    [
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": []}},
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": ["soon"]}},
        {"type": "CUSTOMIZED", "customizedRetryPolicy": "soon"},
        {"type": "EXPONENTIAL", "exponentialRetryPolicy": 3},
        {"type": "LATER"},
    ],
)
def test_a_policy_that_makes_no_sense_is_the_default(policy: dict[str, object]) -> None:
    assert delay_levels.retry_delay_ms(policy, 0) == 10_000


def test_an_exponential_policy_fills_in_its_gaps() -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {}}
    assert [delay_levels.retry_delay_ms(policy, times) for times in (-1, 0, 1, 2, 10**6)] == [
        5_000, 5_000, 10_000, 20_000, 7_200_000,
    ]  # fmt: skip


def test_the_ladder_of_sixteen_retries_begins_at_ten_seconds() -> None:
    levels = [
        delay_levels.effective_level(delay_levels.retry_level(times), delay_levels.DEFAULT_LEVELS)
        for times in range(17)
    ]
    assert levels == [*range(3, 19), 18]


TIMES = st.integers(0, 2**42)


@given(TIMES, TIMES, st.integers(0, 10**9))
def test_nothing_is_early_nor_waits_longer_than_its_level(due: int, now: int, delay: int) -> None:
    at = due - delay_levels.excess_delay_ms(due, now, delay)
    assert at == due if due <= now + delay else at == now + delay


def test_distances_of_store_times_survive_a_clock_set_back() -> None:
    ahead = delay_levels.excess_delay_ms(1_000_000, 5_000, 10_000)
    assert 1_000_000 - ahead == 15_000
    assert 1_000_300 - delay_levels.excess_delay_ms(1_000_300, 15_000, 10_000, ahead) == 15_300
    assert delay_levels.excess_delay_ms(24_000, 15_300, 10_000, ahead) == 0


@pytest.mark.parametrize("text", ["1s 2m ", "1s 2m   "])
def test_blanks_at_the_end_of_the_levels_are_passed_over(text: str) -> None:
    assert delay_levels.parse_levels(text) == (1_000, 120_000)


@pytest.mark.parametrize("text", [" 1s", "1s  2m", " "])
def test_other_blanks_too_many_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="delay levels"):
        delay_levels.parse_levels(text)


@pytest.mark.parametrize(
    ("asked", "of_group", "limit"),
    [(None, 16, 16), (3, 16, 3), (40, 16, 40), (0, 16, 0), (-1, 16, 16)],
)
def test_a_member_may_ask_for_another_limit(asked: int | None, of_group: int, limit: int) -> None:
    assert delay_levels.tries_limit(asked, of_group) == limit


@pytest.mark.parametrize(
    ("asked", "times", "level"),
    [
        (0, -9, 3),
        (0, 0, 3),
        (0, 15, 18),
        (0, 16, delay_levels.DEAD_LETTER),
        (5, 0, 5),
        (5, 16, delay_levels.DEAD_LETTER),
        (-1, 0, delay_levels.DEAD_LETTER),
        (0, 99, delay_levels.DEAD_LETTER),
    ],
)
def test_the_next_try_is_one_level_later_until_the_last(asked: int, times: int, level: int) -> None:
    assert delay_levels.next_level(asked, times, 16) == level


def test_a_failed_message_remembers_where_it_came_from() -> None:
    properties = delay_levels.retry_properties(
        {"TAGS": "red", "UNIQ_KEY": "k", "WAIT": "true"}, "orders", "ID1", 3
    )
    assert properties == {
        "TAGS": "red", "UNIQ_KEY": "k", "WAIT": "false", "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "ID1", "DELAY": "3",
    }  # fmt: skip
    again = delay_levels.retry_properties(properties, "%RETRY%g", "ID2", 4)
    assert again == {**properties, "DELAY": "4"}


def test_a_dead_letter_waits_for_nothing_and_tells_its_past() -> None:
    failed = delay_levels.retry_properties({"UNIQ_KEY": "k"}, "orders", "ID1", 3)
    assert delay_levels.dead_letter_properties(failed, "%RETRY%g", "ID9") == {
        **failed, "DELAY": "0", "DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "k",
    }  # fmt: skip


def test_a_message_without_a_unique_key_is_known_by_its_first_place() -> None:
    properties = delay_levels.dead_letter_properties({}, "orders", "ID1")
    assert (properties["DLQ_ORIGIN_MESSAGE_ID"], properties["RETRY_TOPIC"]) == ("ID1", "orders")


def test_tries_are_counted_as_far_as_a_record_can_hold_them() -> None:
    assert [delay_levels.times_after(times) for times in (-1, 0, 2**31 - 2, 2**31 - 1)] == [
        0, 1, 2**31 - 1, 2**31 - 1,
    ]  # fmt: skip
