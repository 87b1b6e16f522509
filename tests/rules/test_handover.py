"""A queue changes hands."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.handover import (
    HANDOVER_MS,
    SETTLED_MS,
    SIGN_MS,
    Hold,
    loser,
    owners,
    patience_ms,
)


def test_a_queue_at_which_nobody_was_seen_has_no_owner() -> None:
    assert owners({}, 0) == []
    assert owners({"a": Hold()}, 0) == [], "it asked where to read on, no more"


def test_the_owner_is_who_began_last() -> None:
    holds = {"a": Hold(begun_ms=0, seen_ms=900), "b": Hold(begun_ms=1_000, seen_ms=1_000)}
    assert owners(holds, 1_000) == ["b"]


def test_of_two_who_began_at_once_the_later_one_owns() -> None:
    holds = {"b": Hold(begun_ms=5, seen_ms=5), "a": Hold(begun_ms=5, seen_ms=5)}
    assert owners(holds, 5) == ["a"]


def test_a_losers_last_commit_does_not_make_it_an_owner() -> None:
    began = 1_000
    holds = {
        "a": Hold(begun_ms=0, seen_ms=began + HANDOVER_MS),
        "b": Hold(begun_ms=began, seen_ms=began),
    }
    assert owners(holds, 3_000) == ["b"]


def test_who_goes_on_working_is_a_second_owner_for_a_while() -> None:
    seen = 1_000 + HANDOVER_MS + 1
    holds = {
        "z": Hold(begun_ms=0, seen_ms=seen),
        "b": Hold(begun_ms=1_000, seen_ms=9_000),
    }
    assert owners(holds, 9_000) == ["b", "z"]
    assert owners(holds, seen + SIGN_MS) == ["b", "z"]
    assert owners(holds, seen + SIGN_MS + 1) == ["b"]


def test_an_owner_that_is_busy_for_long_stays_the_owner() -> None:
    assert owners({"a": Hold(begun_ms=0, seen_ms=0)}, 10 * SIGN_MS) == ["a"]


def test_a_taker_waits_for_the_last_one_at_the_queue() -> None:
    assert loser({}, "b") is None
    assert loser({"b": Hold()}, "b") is None, "it was its own"
    assert loser({"b": Hold(), "a": Hold()}, "b") == "a"
    assert loser({"a": Hold(), "b": Hold()}, "b") is None


def test_a_taker_waits_a_second_and_no_more_for_all_its_queues() -> None:
    assert patience_ms(10_000, 9_990, 10_000) == HANDOVER_MS
    assert patience_ms(10_400, 9_990, 10_000) == HANDOVER_MS - 400
    assert patience_ms(12_000, 9_990, 10_000) == 0


def test_long_after_a_change_nobody_waits() -> None:
    assert patience_ms(SETTLED_MS, 0, SETTLED_MS) == HANDOVER_MS
    assert patience_ms(SETTLED_MS + 1, 0, SETTLED_MS + 1) == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_patience_is_never_more_than_a_hand_over(now: int, ago: int, since: int) -> None:
    assert 0 <= patience_ms(now, now - ago, now - since) <= HANDOVER_MS
